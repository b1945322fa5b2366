"""What predictions are worth: the process behind `trivet ghn eval`.

`python -m trivet.tasks.ghn_eval REQUEST` takes one JSON argument and answers with one JSON line a split. REQUEST names
the hypernetwork, the splits, how many networks and images, and how many networks get a twin trained by SGD.

Not covered: fine-tuning of predictions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from trivet.core.config import build, load_yaml
from trivet.core.errors import MissingDataError
from trivet.core.seeding import derive, seed_everything
from trivet.ghn.folder import find_folder
from trivet.ghn.ghn import GHN
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.equivalent import equivalent_steps
from trivet.ghn.meta.evaluate import Scores
from trivet.ghn.meta.networks import Pool
from trivet.ghn.meta.twins import Twin, TwinConfig, train_twin
from trivet.tasks.ghn import Setting, answer
from trivet.tasks.ghn_tasks import TaskSetting, setting_of
from trivet.training.environment import apply_environment

Kind = bool | None
KINDS: tuple[tuple[str, Kind], ...] = (("all", None), ("bn", True), ("bn_free", False))
"""Networks together, and those with and without batch normalisation apart."""


def find_recipe(name_or_folder: str) -> Path:
    """The recipe that a hypernetwork was trained by: `recipe.yaml` in its folder.

    Raises:
        ValueError: There is no such hypernetwork.
        MissingDataError: There is no such file beside it.
    """
    path = find_folder(name_or_folder) / "recipe.yaml"
    if not path.is_file():
        raise MissingDataError(
            f"{name_or_folder}: no recipe.yaml beside the hypernetwork, so its data and networks are not known; "
            "give a configuration with --config"
        )
    return path


def evaluate_splits(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One answer a split.

    Args:
        request: `ghn`: name or folder; `config`: file, or "" for its own recipe; `splits`; `networks`; `images`;
            `twins`: networks of each split that get a twin; `twin`: values of `TwinConfig`.

    Raises:
        ConfigError, MissingDataError, ValueError: Something named in the request is not usable.
    """
    path = request["config"] or find_recipe(request["ghn"])
    config = build(MetaConfig, load_yaml(path), file=str(path))
    device = torch.device(apply_environment(config.environment).device)
    ghn = GHN.from_pretrained(request["ghn"]).to(device)
    twin = build(TwinConfig, request["twin"], key="twin")
    if config.tasks:
        config = replace(config, ghn=ghn.config)  # another number of classes can be asked for
    setting = setting_of(config, device)
    for split in request["splits"]:
        networks = setting.networks(split, request["networks"])
        scores = setting.judge(ghn, networks, "test", request["images"])
        images = setting.case("test", 0, networks[0])[1].test.head(request["images"])
        row: dict[str, Any] = {"split": split, "images": len(images.labels), **scores.summary()}
        row["each"] = [score.accuracy for score in scores.networks]
        if isinstance(setting, TaskSetting):
            row["chance"] = 1 / setting.num_classes
            row["nearest_mean"] = setting.nearest_mean(len(networks), request["images"])
        if request["twins"]:
            row["twins"] = _twins(setting, networks, scores, min(request["twins"], len(networks)), twin)
        yield row


def _twins(setting: Setting, networks: Pool, scores: Scores, count: int, config: TwinConfig) -> dict[str, Any]:
    """Curves of the twins of the first networks, and what predictions are worth in their steps."""
    twins: list[Twin] = []
    for number in range(count):
        seed = derive(setting.config.seed, "twin", number)
        seed_everything(seed)
        module = networks.entries[number].architecture.build(
            setting.num_classes, setting.config.data.channels, setting.config.data.image_size
        )
        skeleton = networks[number].skeleton
        images = setting.case("test", number, networks[number])[1]
        test = images.test.head(setting.config.evaluation.images)
        twins.append(train_twin(module.to(setting.device), skeleton, test, images, config, seed=seed))
    steps = (0, *config.points)
    content: dict[str, Any] = {"steps": steps, "curves": [twin.accuracies for twin in twins]}
    content["seconds_per_step"] = fmean(twin.seconds_per_step for twin in twins)
    content["seconds_per_prediction"] = fmean(score.seconds for score in scores.networks[:count])
    content["rates"] = [twin.rate for twin in twins]
    for name, kind in KINDS:
        chosen = [i for i in range(count) if kind in (None, scores.networks[i].has_batch_norm)]
        content[name] = _equivalent(chosen, scores, twins, steps)
    return content


def _equivalent(chosen: Sequence[int], scores: Scores, twins: Sequence[Twin], steps: Sequence[int]) -> dict[str, Any]:
    if len(chosen) < 2:
        return {}
    predicted = [scores.networks[i].accuracy for i in chosen]
    curves = [twins[i].accuracies for i in chosen]
    found = equivalent_steps(predicted, steps, curves)
    return {
        "sentence": str(found),
        "steps": found.steps,
        "low": found.low,
        "high": found.high,
        "networks": found.networks,
        "predicted": fmean(predicted),
        "curve": [fmean(column) for column in zip(*curves, strict=True)],
    }


def main(arguments: list[str]) -> int:
    """Answer the request and return the exit code; the last line of standard error says what went wrong."""
    return answer(arguments, "trivet.tasks.ghn_eval", evaluate_splits)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
