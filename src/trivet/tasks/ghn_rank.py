"""How well rankers order unseen networks: the process behind `trivet ghn rank`.

`python -m trivet.tasks.ghn_rank REQUEST` takes one JSON argument and answers with JSON lines: progress, and the result
last. Networks of the hypernetwork's own recipe are trained from scratch (the truth) and scored without training.

Truth is measured on test images, scores on validation images, so that the two share no chance of which images are
hard. What is done for a network is written at once, one file each, in a folder whose name tells what it depends on:
`truth-…` and `early-…` on the recipe and the training, `scores-…` on the weights of the hypernetwork too. A run that
was killed goes on; another hypernetwork of the same recipe finds the truth done.

Not covered: agreement of scores with the truth, which the command line asks of `trivet.stats`.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

from trivet.core.config import build, digest, load_yaml, to_plain
from trivet.core.errors import ConfigError, Problem
from trivet.core.io import FileLock, write_json
from trivet.core.seeding import derive, seed_everything
from trivet.ghn.early import EarlyConfig, outcome, train_early
from trivet.ghn.folder import find_folder, weights_digest
from trivet.ghn.ghn import GHN
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.networks import Pool
from trivet.ghn.meta.twins import TwinConfig, train_twin
from trivet.ghn.ranking import evaluating, mean_embedding
from trivet.ghn.regression import FEWEST, fit_regression
from trivet.tasks.ghn import Setting, answer
from trivet.tasks.ghn_eval import find_recipe
from trivet.training.environment import apply_environment

Row = dict[str, Any]

FAR = 1_000_000
"""First step of the batches of the short training: other images in another order than the truth begins with."""


@dataclass(frozen=True)
class Bench:
    """Networks of one split, and what is known of each."""

    setting: Setting
    """Recipe, data, device."""
    ghn: GHN
    """The hypernetwork."""
    weights: str
    """Digest of its weights."""
    images: int
    """Images that scores and truth are measured on."""
    twin: TwinConfig
    """How the truth is trained."""
    early: EarlyConfig
    """The short training."""
    out: Path
    """Folder of the files."""
    pools: dict[str, Pool] = field(default_factory=dict[str, Pool])
    """Networks of each split."""

    def open(self, split: str, count: int) -> int:
        """Choose networks of a split; returns how many there are."""
        self.pools[split] = self.setting.networks(split, count)
        return len(self.pools[split])

    def truth(self, split: str, number: int) -> Row:
        """Test accuracy of a network that was trained from scratch."""
        return self._kept("truth", {"twin": to_plain(self.twin)}, split, number, self._train)

    def short(self, split: str, number: int) -> Row:
        """Loss and accuracy on validation images after a few steps."""
        return self._kept("early", {"early": to_plain(self.early)}, split, number, self._train_early)

    def scores(self, split: str, number: int) -> Row:
        """What needs no training of the network."""
        return self._kept("scores", {"weights": self.weights}, split, number, self._score)

    def _kept(self, kind: str, about: Row, split: str, number: int, make: Callable[[str, int], Row]) -> Row:
        """A row from its file, or made and written."""
        config = self.setting.config
        rules = {name: value for name, value in to_plain(config.pool).items() if name != "size"}
        key = {"pool": rules, "data": to_plain(config.data), "seed": config.seed, "images": self.images, **about}
        path = self.out / f"{kind}-{digest(key)}" / f"{split}-{number:05d}.json"
        name = self.pools[split].entries[number].architecture.digest
        try:
            row: Row = json.loads(path.read_text(encoding="utf-8"))
            if row["architecture"] == name:
                return row
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not there yet, or not whole
        row = {"architecture": name, **make(split, number)}
        write_json(path, row)
        return row

    def _module(self, split: str, number: int, seed: int) -> nn.Module:
        """A network with random parameters."""
        seed_everything(seed)
        config = self.setting.config.data
        network = self.pools[split].entries[number].architecture
        module = network.build(self.setting.num_classes, config.channels, config.image_size)
        return module.to(self.setting.device)

    def _train(self, split: str, number: int) -> Row:
        images = self.setting.images
        seed = derive(self.setting.config.seed, "twin", number)
        module = self._module(split, number, seed)
        skeleton = self.pools[split][number].skeleton
        clock = _Clock()
        twin = train_twin(module, skeleton, images.test.head(self.images), images, self.twin, seed=seed)
        seconds = clock.lap()
        return {"accuracy": twin.accuracies[-1], "untrained": twin.accuracies[0], "rate": twin.rate, "seconds": seconds}

    def _train_early(self, split: str, number: int) -> Row:
        images = self.setting.images
        module = self._module(split, number, derive(self.setting.config.seed, "early", number))
        skeleton = self.pools[split][number].skeleton
        judged = self.judged
        clock = _Clock()
        size = self.early.batch_size
        steps = range(FAR, FAR + self.early.steps)
        batches = (images.batch(step=step, place=0, size=size, places=1) for step in steps)
        found = outcome(skeleton, train_early(module, batches, self.early), *judged)
        seconds = clock.lap()
        loss = found.loss if math.isfinite(found.loss) else None
        return {"loss": loss, "accuracy": found.accuracy, "seconds": seconds}

    def _score(self, split: str, number: int) -> Row:
        judged = self.judged
        clock = _Clock()
        network = self.pools[split][number]
        graph = clock.lap()
        embedding = mean_embedding(self.ghn, network.graph)
        embedded = clock.lap()
        with evaluating(self.ghn):
            parameters = self.ghn.predict_batch([network.graph])[0]
        found = outcome(network.skeleton, parameters, *judged)
        predicted = clock.lap()
        config = self.setting.config.data
        totals = network.entry.architecture.totals(self.setting.num_classes, config.channels, config.image_size)
        counted = clock.lap()
        seconds = {
            "predicted": graph + embedded + predicted,  # what embedding planned, prediction would have to plan
            "embedding": graph + embedded,
            "counts": counted,
        }
        return {
            "predicted": found.accuracy,
            "embedding": embedding,
            "parameters": totals.parameters,
            "macs": totals.macs,
            "batch_norm": network.skeleton.has_batch_norm,
            "seconds": seconds,
        }

    @cached_property
    def judged(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Validation images as networks take them, and their labels."""
        split = self.setting.images.validation.head(self.images)
        return self.setting.images.prepare(split.images), split.labels


class _Clock:
    """Processor seconds since the last lap."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def lap(self) -> float:
        """Seconds since the last lap, or the beginning."""
        now = time.process_time()
        seconds, self._last = now - self._last, now
        return seconds


def rank(request: Mapping[str, Any]) -> Iterator[Row]:
    """Progress, one row a network, and the result last.

    Args:
        request: `ghn`: name or folder; `config`: file, or "" for its own recipe; `split` and `networks` to rank;
            `fit_split` and `fit_networks` to fit on, 0 for none; `images`; `twin` and `early`: values of `TwinConfig`
            and `EarlyConfig`; `out`: folder.

    Raises:
        ConfigError, MissingDataError, ValueError: Something named in the request is not usable.
        RunFolderError: Another process works in the folder.
    """
    path = request["config"] or find_recipe(request["ghn"])
    config = build(MetaConfig, load_yaml(path), file=str(path))
    bench = Bench(
        setting=Setting(config, torch.device(apply_environment(config.environment).device)),
        ghn=GHN.from_pretrained(request["ghn"]),
        weights=weights_digest(find_folder(request["ghn"])),
        images=request["images"],
        twin=build(TwinConfig, request["twin"], key="twin"),
        early=build(EarlyConfig, request["early"], key="early"),
        out=Path(request["out"]),
    )
    bench.ghn.to(bench.setting.device)
    if bench.ghn.config.num_classes != bench.setting.num_classes:
        allowed = f"a hypernetwork of {bench.setting.num_classes} classes for {config.data.name}"
        raise ConfigError([Problem("", "ghn", f"{request['ghn']} of {bench.ghn.config.num_classes} classes", allowed)])
    bench.judged  # noqa: B018  data that do not fit are refused before any work
    with FileLock(bench.out / ".lock", busy=f"{bench.out}: another process ranks networks there"):
        fit: list[tuple[Row, Row]] = []
        if request["fit_networks"]:
            split = request["fit_split"]
            count = bench.open(split, request["fit_networks"])
            for number in range(count):
                fit.append((bench.scores(split, number), bench.truth(split, number)))
                yield {"split": split, "done": number + 1, "of": count}
        split = request["split"]
        rows: list[tuple[Row, Row, Row]] = []
        count = bench.open(split, request["networks"])
        for number in range(count):
            rows.append((bench.scores(split, number), bench.short(split, number), bench.truth(split, number)))
            yield {"split": split, "done": number + 1, "of": count}
    yield {"result": _result(request, bench, rows, fit)}


def _result(
    request: Mapping[str, Any], bench: Bench, rows: Sequence[tuple[Row, Row, Row]], fit: Sequence[tuple[Row, Row]]
) -> Row:
    """Scores of every method beside the truth; what cannot be fitted is left out."""
    scores, early, truth = zip(*rows, strict=True)
    methods: dict[str, Row] = {}

    def add(name: str, values: Sequence[float | None], seconds: float) -> None:
        methods[name] = {"scores": list(values), "seconds_per_network": seconds}

    def mean_seconds(name: str) -> float:
        return fmean(row["seconds"][name] for row in scores)

    add("predicted", [row["predicted"] for row in scores], mean_seconds("predicted"))
    fitted: Row = {}
    if len(fit) >= FEWEST:
        known, reached = [row for row, _ in fit], [row["accuracy"] for _, row in fit]
        fitted = {"networks": len(fit), "seconds": sum(row["seconds"] for _, row in fit)}
        for name, features in (("embedding", _embedding), ("size", _size)):
            regression = fit_regression(list(map(features, known)), reached, seed=bench.setting.config.seed)
            source = "embedding" if name == "embedding" else "counts"
            add(name, regression.predict(list(map(features, scores))).tolist(), mean_seconds(source))
            fitted[f"error_{name}"] = regression.error
    for name in ("parameters", "macs"):
        add(name, [row[name] for row in scores], mean_seconds("counts"))
    losses = [None if row["loss"] is None else -row["loss"] for row in early]
    add("loss", losses, fmean(row["seconds"] for row in early))
    return {
        **{name: request[name] for name in ("ghn", "split", "fit_split")},
        "weights": bench.weights,
        "data": bench.setting.config.data.name,
        "images": len(bench.judged[1]),
        "truth_images": len(bench.setting.images.test.head(bench.images).labels),
        "networks": len(rows),
        "architectures": [row["architecture"] for row in scores],
        "batch_norm": [row["batch_norm"] for row in scores],
        "truth": [row["accuracy"] for row in truth],
        "truth_steps": bench.twin.points[-1],
        "truth_seconds_per_network": fmean(row["seconds"] for row in truth),
        "early_steps": bench.early.steps,
        "fit": fitted,
        "methods": methods,
    }


def _embedding(row: Row) -> list[float]:
    return row["embedding"]


def _size(row: Row) -> list[float]:
    """Logarithms of parameters and multiply-accumulates: what an embedding must know more than."""
    return [math.log(row["parameters"]), math.log(row["macs"])]


def main(arguments: list[str]) -> int:
    """Answer the request and return the exit code; the last line of standard error says what went wrong."""
    return answer(arguments, "trivet.tasks.ghn_rank", rank)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
