"""`trivet ghn eval`: what a hypernetwork's predictions are worth on architectures it has never seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.cli.child import ChildError
from trivet.cli.console import emit_json, show, table, talk, verb

SPLITS = ("test", "wide", "deep", "dense", "bn_free", "predefined")


@verb
def eval_(
    ghn: Annotated[str, typer.Argument(metavar="GHN", help="Folder of a hypernetwork, or the name of a shipped one.")],
    config: Annotated[Path | None, typer.Option("--config", help="Data and networks; else its recipe.yaml.")] = None,
    split: Annotated[
        list[str] | None, typer.Option("--split", help=f"{', '.join(SPLITS)}; repeatable. test by default.")
    ] = None,
    networks: Annotated[int, typer.Option("--networks", min=2, help="Unseen networks of each split.")] = 500,
    images: Annotated[int, typer.Option("--images", min=2, help="The first test images.")] = 10_000,
    twins: Annotated[int, typer.Option("--twins", min=0, help="Networks that are also trained by SGD.")] = 0,
    points: Annotated[
        str, typer.Option("--points", help="SGD steps after which twins are tested.")
    ] = "10,20,50,100,200,400",
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Predict each network's parameters once and test it untrained, with batch statistics in batch normalisation."""
    from trivet.cli.stream import answers
    from trivet.ghn.deepnets.splits import PREDEFINED, get_split
    from trivet.ghn.folder import find_folder

    chosen = split or ["test"]
    for name in chosen:
        if name != PREDEFINED:
            get_split(name)
    steps = _numbers(points)
    find_folder(ghn)
    request = {
        "ghn": ghn,
        "config": str(config) if config else "",
        "splits": chosen,
        "networks": networks,
        "images": images,
        "twins": twins,
        "twin": {"points": steps},
    }
    rows = []
    try:
        for row in answers("trivet.tasks.ghn_eval", request, "the hypernetwork cannot be evaluated"):
            talk(f"{row['split']}: {row['networks']} networks")
            rows.append(row)
    except (KeyboardInterrupt, ChildError):
        if json and rows:  # minutes of work that the stop need not lose
            emit_json({"ghn": ghn, "splits": rows, "missing": chosen[len(rows) :]})
        raise
    if json:
        emit_json({"ghn": ghn, "splits": rows})
        return
    show(table(COLUMNS, [_cells(row) for row in rows]))
    talk("\nTop-1 in %, ± standard error over networks; batches of 64, whose statistics batch normalisation takes.")
    for row in rows:
        _print_tasks(row)
        _print_twins(row)


COLUMNS = ("split", "n", "images", "top-1", "max", "with BN", "n", "without", "n", "s a network")


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [row["split"], str(row["networks"]), str(row["images"]), _accuracy(row, "accuracy")]
    cells.append(f"{100 * row['accuracy_max']:.1f}")
    for name in ("accuracy_bn", "accuracy_bn_free"):
        cells += [_accuracy(row, name), f"{row.get(f'{name}_n', 0):.0f}"]
    return [*cells, f"{row['seconds_per_network']:.3f}"]


def _accuracy(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return "–"
    error = row.get(f"{name}_se", math.nan)
    return f"{100 * row[name]:.1f}" + ("" if math.isnan(error) else f" ± {100 * error:.1f}")


def _print_tasks(row: Mapping[str, Any]) -> None:
    """Where each network had a task of its own, what the tasks are worth without any network."""
    if found := row.get("nearest_mean"):
        pixels = f"{100 * found['accuracy']:.1f} ± {100 * found['se']:.1f} (n = {found['n']})"
        print(
            f"{row['split']}: each network has a held-out task; chance is {100 * row['chance']:.1f}, and the nearest "
            f"mean of a class's pixels reaches {pixels}"
        )


def _print_twins(row: Mapping[str, Any]) -> None:
    twins = row.get("twins")
    if not twins:
        return
    labels = (("all", "all networks"), ("bn", "with BN"), ("bn_free", "without"))
    rows = []
    for name, label in labels:
        found = twins[name]
        if found:
            rows.append([label, f"{100 * found['predicted']:.1f}", *(f"{100 * value:.1f}" for value in found["curve"])])
    head = ["twins", "predicted", *(f"{count} steps" for count in twins["steps"])]
    show(f"\n{row['split']}: the same networks trained from scratch by SGD, top-1 in %", table(head, rows))
    for name, label in labels:
        if twins[name]:
            print(f"{label}: a prediction is worth {twins[name]['sentence']}")
    ratio = twins["seconds_per_prediction"] / twins["seconds_per_step"]
    print(f"a prediction takes as long as {ratio:.2f} SGD steps")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"`--points {text}` must be whole numbers and commas; such as 10,100") from None
