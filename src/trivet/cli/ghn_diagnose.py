"""`trivet ghn diagnose`: which layers of a predicted network are good, and which break it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import emit_json, show, talk, verb
from trivet.cli.options import WidthOption, check_place

if TYPE_CHECKING:
    from trivet.ghn.meta.config import MetaConfig

DEEPNETS = "deepnets:"
TOLD = 10
"""How many times a diagnosis says how far it is."""


@verb
def diagnose(
    ghn: Annotated[str, typer.Argument(metavar="GHN", help="Folder of a hypernetwork, or the name of a shipped one.")],
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="resnet20, torchvision:NAME, python:pkg.mod:fn, or deepnets:SPLIT:NUMBER (of its pool).",
        ),
    ],
    config: Annotated[Path | None, typer.Option("--config", help="Data and networks; else its recipe.yaml.")] = None,
    data: Annotated[str, typer.Option("--data", help="Labelled images; those of the recipe by default.")] = "",
    images: Annotated[int, typer.Option("--images", min=2, help="The first test images.")] = 512,
    twin_steps: Annotated[
        int, typer.Option("--twin-steps", min=0, help="Also train the network by SGD for so many steps.")
    ] = 0,
    draws: Annotated[int, typer.Option("--draws", min=1, help="Random draws of each layer.")] = 3,
    neighbors: Annotated[
        int, typer.Option("--neighbors", min=0, help="Training architectures to look for the nearest among.")
    ] = 100,
    width: WidthOption = 16,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of draws and twin.")] = 0,
    layers: Annotated[bool, typer.Option("--layers", help="List every layer.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page (.html).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Replace each layer of a predicted network by random numbers, zeros or its trained twin; say what that does."""
    from trivet.cli.stream import answers

    recipe = _check(ghn, model, config, data, width)
    if html is not None:
        check_place(html, "--html", (".html",))
    request = {
        "ghn": ghn, "config": str(recipe), "model": model, "width": width, "data": data, "images": images,
        "twin_steps": twin_steps, "draws": draws, "neighbors": neighbors, "seed": seed,
    }  # fmt: skip
    answer: dict[str, Any] = {}
    told = 0
    for answer in answers("trivet.tasks.ghn_diagnose", request, "the network cannot be diagnosed"):
        if "done" in answer and answer["done"] * TOLD >= (told + 1) * answer["of"]:
            told = answer["done"] * TOLD // answer["of"]
            talk(f"{answer['done']} of {answer['of']} layers")
    if html is not None:
        _write(html, answer, request, config)
        talk(f"written to {html}")
    if json:
        emit_json({**answer["about"], **answer["diagnosis"]})
        return
    about = answer["about"]
    show(f"{about['network']} as predicted by {about['ghn']}, {about['data']}")
    print(answer["text"])
    if layers:
        print(f"\n{answer['table']}")


def _check(ghn: str, model: str, config: Path | None, data: str, width: int) -> Path:
    """Refuse what cannot be diagnosed, as far as that shows without torch; the configuration file."""
    from trivet.core.config import build, load_yaml
    from trivet.core.errors import MissingDataError
    from trivet.ghn.folder import find_folder, read_config
    from trivet.ghn.meta.config import MetaConfig
    from trivet.tasks.data.sources import check_images

    folder = find_folder(ghn)
    read_config(folder)
    recipe = config or folder / "recipe.yaml"
    if not recipe.is_file() and config is None:
        raise MissingDataError(
            f"{ghn}: no recipe.yaml beside the hypernetwork, so its data and networks are not known; "
            "give a configuration with --config"
        )
    made = build(MetaConfig, load_yaml(recipe), file=str(recipe))
    _check_model(model, width)
    check_images(data or made.data.name)
    _check_classes(made, data)
    return recipe


def _check_model(model: str, width: int) -> None:
    from trivet.ghn.deepnets.splits import PREDEFINED, get_split
    from trivet.models.names import check_model_name

    if not model.startswith(DEEPNETS):
        check_model_name(model, width=width)
        return
    match = re.fullmatch(r"deepnets:(\w+):(\d{1,7})", model)
    if match is None:
        raise ValueError(f"model {model!r}: write deepnets:SPLIT:NUMBER, such as deepnets:test:3")
    if match[1] != PREDEFINED:
        get_split(match[1])


def _check_classes(config: MetaConfig, data: str) -> None:
    """Whether data that the recipe does not name have as many classes as are predicted."""
    from trivet.tasks.data.sources import find_source

    name = data or config.data.name
    found = find_source(name).info.num_classes
    if found and found != config.ghn.num_classes:
        raise ValueError(
            f"the data set {name!r} has {found} classes and this hypernetwork predicts {config.ghn.num_classes}; "
            "take data with as many"
        )


def _write(path: Path, answer: Mapping[str, Any], request: Mapping[str, Any], config: Path | None) -> None:
    from trivet.core.io import write_text
    from trivet.report.diagnosis import render_diagnosis

    words = ["trivet", "ghn", "diagnose", request["ghn"], request["model"], "--images", str(request["images"])]
    words += ["--config", str(config)] if config else []
    words += ["--data", request["data"]] if request["data"] else []
    words += ["--width", str(request["width"])] if request["width"] != 16 else []
    words += ["--twin-steps", str(request["twin_steps"]), "--draws", str(request["draws"])]
    words += ["--neighbors", str(request["neighbors"]), "--seed", str(request["seed"]), "--html", str(path)]
    about = {**answer["about"], "command": shlex.join(words)}
    write_text(path, render_diagnosis(answer["diagnosis"], about))
