"""`trivet data`: which data sets there are, which of them are on this machine, and how to get the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.cli.console import USAGE, emit_json, fail, show, table, talk, verb
from trivet.core.errors import unknown_name

ACTIONS = ("list", "fetch", "check")

Root = Annotated[Path | None, typer.Option("--data-root", help="Folder to look in (or to download to) first.")]


@verb
def data(
    action: Annotated[str, typer.Argument(metavar="[list|fetch|check]", help="What to do; list by default.")] = "list",
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Data set, for fetch and check.")] = "",
    data_root: Root = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """List data sets, check that one can be read, or download one (the only verb that uses the network)."""
    if action not in ACTIONS:
        raise ValueError(unknown_name("action", action, ACTIONS))
    if action == "list":
        _list(data_root, json)
        return
    if not name:
        fail(f"`trivet data {action}` needs the NAME of a data set; see `trivet data list`", USAGE)
    if action == "fetch":
        _fetch(name, data_root, json)
    else:
        _check(name, data_root, json)


def _list(data_root: Path | None, json: bool) -> None:
    from trivet.tasks.data import describe

    infos = describe(data_root=data_root)
    if json:
        emit_json([info.to_dict() for info in infos])
        return
    rows = [
        [
            info.name,
            f"{info.num_train:,}" if info.num_train else "–",
            f"{info.num_test:,}" if info.num_test else "–",
            info.shape,
            str(info.num_classes or "–"),
            info.licence,
            info.found or f"not here: {info.how_to_get}",
        ]
        for info in infos
    ]
    show(table(["name", "train", "test", "shape", "classes", "license", "where"], rows, left=(0, 3, 5, 6)))


def _fetch(name: str, data_root: Path | None, json: bool) -> None:
    from trivet.core.logging import setup_logging
    from trivet.tasks.data import fetch

    setup_logging()
    place = fetch(name, data_root)
    if json:
        emit_json({"name": name, "found": place})
        return
    talk(f"{name} is in {place}")


def _check(name: str, data_root: Path | None, json: bool) -> None:
    from trivet.tasks.data import load_images

    images = load_images(name, data_root=data_root)
    shape = " × ".join(map(str, images.image_shape))
    answer = {
        "name": name,
        "source": images.source,
        "num_train": len(images.train_labels),
        "num_test": len(images.test_labels),
        "shape": shape,
        "num_classes": len(images.classes),
        "license": images.licence,
    }
    if json:
        emit_json(answer)
        return
    print(
        f"{name}: {answer['num_train']:,} train + {answer['num_test']:,} test images, {shape}, "
        f"{len(images.classes)} classes; read from {images.source}; license: {images.licence}"
    )
