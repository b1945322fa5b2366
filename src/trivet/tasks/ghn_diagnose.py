"""Why a prediction is good or bad: the process behind `trivet ghn diagnose`.

`python -m trivet.tasks.ghn_diagnose REQUEST` takes one JSON argument. It answers with JSON lines: `{"done", "of"}` for
each layer, and at the end the diagnosis as plain values and as text.

Not covered: hypernetworks without a recipe, for whose data and training architectures a configuration must be given.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from trivet.core.config import build, load_yaml
from trivet.core.errors import TrivetError
from trivet.core.logging import setup_logging
from trivet.core.seeding import derive, seed_everything
from trivet.ghn.deepnets.architecture import Architecture, CellArchitecture
from trivet.ghn.diagnosis import diagnose
from trivet.ghn.ghn import GHN
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.skeleton import Skeleton
from trivet.ghn.meta.twins import TwinConfig, train_twin
from trivet.graph import Graph, graph_of
from trivet.models import build_model
from trivet.tasks.ghn import Setting
from trivet.training.environment import apply_environment

logger = logging.getLogger(__name__)

DEEPNETS = "deepnets:"
TRIAL_STEPS = 60
"""Most steps of the trial that chooses a twin's learning rate."""


def diagnose_request(request: Mapping[str, Any], progress: Callable[[int, int], None]) -> dict[str, Any]:
    """The answer to a request.

    Args:
        request: `ghn`: name or folder; `config`: file of its recipe; `model`: a model's name or deepnets:SPLIT:NUMBER;
            `width`: of a ResNet; `data`: another data set than the recipe's, or ""; `images`: the first test images;
            `twin_steps`: SGD steps of the twin, 0 for none; `draws`; `neighbors`: training architectures to look at;
            `seed`.
        progress: Called after each layer.

    Returns:
        `diagnosis`: plain values; `about`: what was diagnosed; `text`: short; `table`: every layer.

    Raises:
        ConfigError, MissingDataError, ValueError: Something named in the request is not usable.
    """
    config = _config(request)
    device = torch.device(apply_environment(config.environment).device)
    ghn = GHN.from_pretrained(request["ghn"]).to(device).eval()
    if ghn.config.num_classes != config.ghn.num_classes:
        raise ValueError(
            f"{request['ghn']} predicts {ghn.config.num_classes} classes and its configuration "
            f"{request['config']} says {config.ghn.num_classes}; give the one that it was trained by"
        )
    setting = Setting(config, device)
    images = setting.images
    seed_everything(derive(request["seed"], "diagnose"))
    module, name = make_network(request, setting)
    module.to(device)
    shape = (2, config.data.channels, config.data.image_size, config.data.image_size)
    graph = graph_of(module, torch.zeros(shape, device=device))
    test = images.test.head(request["images"])
    skeleton = Skeleton(copy.deepcopy(module), device=device, unused=graph.unplaced)
    pixels = images.prepare(test.images)
    if skeleton.channels_last:
        pixels = pixels.contiguous(memory_format=torch.channels_last)
    twin = None
    if request["twin_steps"]:
        steps = request["twin_steps"]
        logger.info("training a twin for %d steps", steps)
        trial = TwinConfig(points=(steps,), trial_steps=min(TRIAL_STEPS, steps))
        twin = train_twin(module, skeleton, test, images, trial, seed=derive(request["seed"], "twin")).parameters
    found = diagnose(
        module,
        ghn,
        batch=(pixels, test.labels),
        twin=twin,
        graph=graph,
        training=_training(setting, request["neighbors"]),
        draws=request["draws"],
        batch_size=config.evaluation.batch_size,
        seed=request["seed"],
        progress=progress,
    )
    about = {
        "ghn": request["ghn"],
        "model": request["model"],
        "network": name,
        "data": setting.about[0],
        "twin_steps": request["twin_steps"],
        "seed": request["seed"],
    }
    return {"about": about, "diagnosis": found.to_dict(), "text": str(found), "table": found.table()}


def _config(request: Mapping[str, Any]) -> MetaConfig:
    config = build(MetaConfig, load_yaml(request["config"]), file=request["config"])
    if not request["data"]:
        return config
    return dataclasses.replace(
        config, data=dataclasses.replace(config.data, name=request["data"], stream=None, crop=None)
    )


def make_network(request: Mapping[str, Any], setting: Setting) -> tuple[nn.Module, str]:
    """The network that a request names, freshly drawn, and what it is.

    Args:
        request: `model`, and `width` for a ResNet.
        setting: Data and pools of the recipe.

    Raises:
        ValueError: The split has fewer networks, or as `build_model`.
    """
    model, data = request["model"], setting.config.data
    if not model.startswith(DEEPNETS):
        module = build_model(
            model,
            num_classes=setting.num_classes,
            in_channels=data.channels,
            image_size=data.image_size,
            width=request["width"],
        )
        return module, model
    split, _, number = model.removeprefix(DEEPNETS).partition(":")
    entries = setting.entries(split, int(number) + 1)
    if int(number) >= len(entries):
        raise ValueError(f"`{model}`: the split {split!r} has {len(entries)} networks, counted from 0")
    architecture = entries[int(number)].architecture
    module = architecture.build(setting.num_classes, data.channels, data.image_size)
    return module, f"{split}:{number}, {describe(architecture)}"


def _training(setting: Setting, count: int) -> dict[str, Graph]:
    """Graphs of the first training architectures, by a name that says what they are."""
    count = min(count, setting.config.pool.size)
    if not count:
        return {}
    logger.info("reading %d training architectures", count)
    networks = setting.networks("train", count)
    return {
        f"train:{number}, {describe(networks[number].entry.architecture)}": networks[number].graph
        for number in range(count)
    }


def describe(architecture: Architecture) -> str:
    """An architecture in a few words.

    Examples:
        >>> from trivet.ghn.deepnets import DeepNets
        >>> describe(DeepNets("test")[17])
        '13 cells of 48 channels, bn, imagenet stem'
    """
    if not isinstance(architecture, CellArchitecture):
        return str(architecture.to_dict()["family"])
    norm = "bn" if architecture.norm == "bn" else "no norm"
    kind = ", attention" if architecture.is_transformer else ""
    return f"{architecture.num_cells} cells of {architecture.channels} channels, {norm}, {architecture.stem} stem{kind}"


def main(arguments: list[str]) -> int:
    """Answer the request and return the exit code; the last line of standard error says what went wrong."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m trivet.tasks.ghn_diagnose REQUEST\n")
        return 2
    setup_logging()
    answers = sys.stdout

    def write(row: Mapping[str, Any]) -> None:
        answers.write(f"{json.dumps(row)}\n")
        answers.flush()

    try:
        with contextlib.redirect_stdout(sys.stderr):  # a user's model may print
            write(diagnose_request(json.loads(arguments[0]), lambda done, of: write({"done": done, "of": of})))
    except (TrivetError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return getattr(error, "exit_code", 2)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
