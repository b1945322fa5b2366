"""`trivet ghn rank`: which rankers order unseen networks as training them would."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.cli.console import emit_json, show, table, talk, verb

MODULE = "trivet.tasks.ghn_rank"
EVERY = 10
"""Progress is said once in so many networks."""
FEWEST = 3
"""Fewest networks that have a rank correlation."""


@verb
def rank(
    ghn: Annotated[str, typer.Argument(metavar="GHN", help="Folder of a hypernetwork, or the name of a shipped one.")],
    config: Annotated[Path | None, typer.Option("--config", help="Data and networks; else its recipe.yaml.")] = None,
    split: Annotated[str, typer.Option("--split", help="Networks to rank: a split of DeepNets.")] = "test",
    networks: Annotated[int, typer.Option("--networks", min=FEWEST, help="How many of them.")] = 100,
    fit_split: Annotated[str, typer.Option("--fit-split", help="Networks the fitted rankers learn from.")] = "val",
    fit_networks: Annotated[int, typer.Option("--fit-networks", min=0, help="How many of them; 0 fits none.")] = 100,
    twin_steps: Annotated[int, typer.Option("--twin-steps", min=1, help="SGD steps of the truth.")] = 400,
    rates: Annotated[
        str, typer.Option("--rates", help="Its learning rates, the best of a short trial; one saves the trial.")
    ] = "0.1,0.05,0.01",
    early_steps: Annotated[int, typer.Option("--early-steps", min=1, help="SGD steps of the short training.")] = 50,
    images: Annotated[
        int, typer.Option("--images", min=2, help="First images that accuracies are measured on.")
    ] = 2000,
    out: Annotated[Path, typer.Option("--out", help="Folder of what is done; a stopped run goes on.")] = Path(
        "ghn-rank"
    ),
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Train unseen networks from scratch, and see which cheap scores put them in the same order."""
    from trivet.cli.stream import answers
    from trivet.core.config import digest
    from trivet.core.io import write_json

    _check(ghn, split, fit_split if fit_networks else "", fit_networks, out)
    request = {
        "ghn": ghn,
        "config": str(config) if config else "",
        "split": split,
        "networks": networks,
        "fit_split": fit_split,
        "fit_networks": fit_networks,
        "images": images,
        "twin": {"points": [twin_steps], "rates": _rates(rates)},
        "early": {"steps": early_steps},
        "out": str(out),
    }
    result: dict[str, Any] = {}
    try:
        for row in answers(MODULE, request, "the networks cannot be ranked"):
            result = row.get("result", result)
            if "done" in row and (row["done"] % EVERY == 0 or row["done"] == row["of"]):
                talk(f"{row['split']}: {row['done']} of {row['of']} networks")
    except KeyboardInterrupt:
        talk(f"stopped; what is done is kept in {out}, the same command goes on")
        raise
    result |= _agreement(result)
    about = {name: value for name, value in request.items() if name != "out"}
    path = out / f"ranking-{digest({**about, 'weights': result['weights']})}.json"
    write_json(path, result)
    if json:
        emit_json({"file": str(path), **result})
        return
    _print(result)
    print(f"\n{path}")


def _check(ghn: str, split: str, fit_split: str, fit_networks: int, out: Path) -> None:
    """Refuse what can be refused before a process starts."""
    from trivet.ghn.deepnets.splits import PREDEFINED, get_split
    from trivet.ghn.folder import find_folder
    from trivet.ghn.regression import FEWEST as FEWEST_KNOWN

    for name in (split, fit_split):
        if name == PREDEFINED:
            raise ValueError(f"the split '{name}' has two networks, too few to rank; test is the default")
        if name:
            get_split(name)
    if split == fit_split:
        raise ValueError(f"`--fit-split {split}` must differ from `--split`: a ranker may not know what it ranks")
    if 0 < fit_networks < FEWEST_KNOWN:
        raise ValueError(f"`--fit-networks {fit_networks}` must be {FEWEST_KNOWN} or more, or 0 for no fitted rankers")
    if out.exists() and not out.is_dir():
        raise ValueError(f"`--out {out}` is a file; give a folder")
    find_folder(ghn)


def _rates(text: str) -> list[float]:
    rates: list[float] = []
    with contextlib.suppress(ValueError):
        rates = [float(part) for part in text.split(",")]
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise ValueError(f"`--rates {text}` must be numbers above 0 and commas; such as 0.1,0.01")
    return rates


def _agreement(result: Mapping[str, Any]) -> dict[str, Any]:
    """Kendall's τ of every method: over all networks, those with and without batch normalisation, and differences."""
    from trivet.stats import agreement_difference, rank_agreement

    methods = {name: _numbers(found["scores"]) for name, found in result["methods"].items()}
    truth, norms = result["truth"], result["batch_norm"]
    kinds: dict[str, list[int]] = {
        "all": list(range(len(truth))),
        "bn": [place for place, has in enumerate(norms) if has],
        "bn_free": [place for place, has in enumerate(norms) if not has],
    }
    agreement: dict[str, dict[str, Any]] = {name: {} for name in methods}
    for kind, places in kinds.items():
        known = [truth[place] for place in places]
        if len(known) < FEWEST or len(set(known)) == 1:
            continue
        for name, scores in methods.items():
            agreement[name][kind] = rank_agreement([scores[place] for place in places], known).to_dict()
    differences: list[dict[str, Any]] = []
    for name in ("predicted", "embedding"):
        for other in methods:
            if name in methods and other not in ("predicted", "embedding") and agreement[name]:
                found = agreement_difference(methods[other], methods[name], truth)
                differences.append({"of": name, "minus": other, **found.to_dict()})
    return {"agreement": agreement, "differences": differences}


def _numbers(scores: Sequence[float | None]) -> list[float]:
    """Scores; a network that diverged comes last."""
    return [float("-inf") if score is None else score for score in scores]


def _labels(result: Mapping[str, Any]) -> dict[str, str]:
    return {
        "predicted": "accuracy with predicted parameters",
        "embedding": "fitted: node embeddings",
        "size": "fitted: parameters and MACs",
        "parameters": "parameters",
        "macs": "multiply-accumulates",
        "loss": f"loss after {result['early_steps']} steps",
    }


COLUMNS = ("ranker", "Kendall τ", "95 % interval", "n", "with BN", "n", "without", "n", "CPU s a network")


def _print(result: Mapping[str, Any]) -> None:
    labels = _labels(result)
    rows: list[list[str]] = []
    for name, found in result["methods"].items():
        cells = [labels[name]]
        for kind in ("all", "bn", "bn_free"):
            one = result["agreement"][name].get(kind)
            cells.append(f"{one['tau']:+.2f}" if one else "–")
            if kind == "all":
                cells.append(f"{one['low']:+.2f} to {one['high']:+.2f}" if one else "–")
            cells.append(str(one["n"]) if one else "–")
        rows.append([*cells, f"{found['seconds_per_network']:.3g}"])
    show(table(COLUMNS, rows))
    truth = result["truth"]
    talk(
        f"\nTruth: accuracy on {result['truth_images']:,} test images after {result['truth_steps']:,} SGD steps, one "
        f"run a network, {100 * min(truth):.1f} to {100 * max(truth):.1f} %, "
        f"{result['truth_seconds_per_network']:.3g} CPU s a network; scores on {result['images']:,} validation images."
    )
    talk("Intervals: percentile bootstrap over networks, whose truth is taken as it is.")
    if result["fit"]:
        talk(
            f"Fitted on {result['fit']['networks']} networks of {result['fit_split']}, whose training took "
            f"{result['fit']['seconds']:.3g} CPU s."
        )
    if result["differences"]:
        print()
    for one in result["differences"]:
        print(
            f"{labels[one['of']]} minus {labels[one['minus']]}: {one['difference']:+.2f} "
            f"({one['low']:+.2f} to {one['high']:+.2f}, {one['method']}, n = {one['n']})"
        )
