"""Hypernetworks on disk: a folder with `config.json` and `model.safetensors`, and those that come with this package.

The configuration carries the format's number. Sizes are compared before any memory is taken, and nothing is unpickled.

Not covered: downloads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trivet.core.errors import unknown_name
from trivet.core.io import write_bytes, write_json
from trivet.ghn.config import GHNConfig
from trivet.ghn.ghn import GHN

FORMAT = 1
"""Number of the format that is written; others are refused."""

SHIPPED = Path(__file__).parent / "pretrained"
"""Folder of the hypernetworks that come with this package, one folder each."""


def names() -> list[str]:
    """Names of the hypernetworks that come with this package."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def save(ghn: GHN, folder: Path) -> Path:
    """Write a hypernetwork into a folder; see `GHN.save_pretrained`."""
    from safetensors.torch import save as serialize

    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in ghn.state_dict().items()}
    write_bytes(folder / "model.safetensors", serialize(state, metadata={"kind": "ghn", "format": str(FORMAT)}))
    write_json(folder / "config.json", {"format": FORMAT, "kind": "ghn", **ghn.config.to_dict()})
    return folder


def load(name_or_folder: str | Path) -> GHN:
    """Load a hypernetwork; see `GHN.from_pretrained`."""
    folder = Path(name_or_folder)
    if not folder.is_dir():
        folder = SHIPPED / str(name_or_folder)
        if str(name_or_folder) not in names():
            raise ValueError(f"no folder and no {unknown_name('hypernetwork', str(name_or_folder), names())}")
    config = _config(folder / "config.json")
    return fill(config, _tensors(folder / "model.safetensors"), str(folder / "model.safetensors"))


def fill(config: GHNConfig, state: Mapping[str, Tensor], source: str) -> GHN:
    """A hypernetwork with these weights.

    Raises:
        ValueError: A tensor is missing, left over, of another shape, or not finite.
    """
    with torch.device("meta"):
        ghn = GHN(config)
    wanted = {name: tuple(value.shape) for name, value in ghn.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in state.items()}
    for text, extra in (("lacks", wanted.keys() - given.keys()), ("has left over", given.keys() - wanted.keys())):
        if extra:
            some = ", ".join(sorted(extra)[:5])
            raise ValueError(
                f"{source} {text} {len(extra)} tensors of such a hypernetwork ({some}); is it another kind?"
            )
    for name, shape in wanted.items():
        if given[name] != shape:
            raise ValueError(
                f"{source}: `{name}` is {list(given[name])} and must be {list(shape)} by its configuration"
            )
        if not state[name].is_floating_point() or not bool(state[name].isfinite().all()):
            raise ValueError(f"{source}: `{name}` holds values that are no finite numbers; the file is damaged")
    ghn.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
    return ghn.requires_grad_(True)


def _config(path: Path) -> GHNConfig:
    try:
        content: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; a hypernetwork's folder holds one") from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(content, dict) or content.pop("kind", "") != "ghn":
        raise ValueError(f'{path} is not that of a hypernetwork: it lacks `"kind": "ghn"`')
    number = content.pop("format", None)
    if number != FORMAT:
        raise ValueError(
            f"{path} has format {number!r} and this version reads {FORMAT}; update trivet, or save it again"
        )
    try:
        return GHNConfig.from_dict(content)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}; the file is missing or damaged") from error
