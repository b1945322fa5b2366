"""Hypernetworks on disk: a folder with `config.json` and `model.safetensors`, and those that come with this package.

The configuration carries the format's number. Sizes are compared before any memory is taken, and nothing is unpickled.

Not covered: downloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from trivet.core.io import write_bytes, write_json
from trivet.ghn.config import GHNConfig
from trivet.ghn.folder import FORMAT, WEIGHTS, find_folder, read_config
from trivet.ghn.ghn import GHN


def save(ghn: GHN, folder: Path) -> Path:
    """Write a hypernetwork into a folder; see `GHN.save_pretrained`."""
    from safetensors.torch import save as serialize

    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in ghn.state_dict().items()}
    write_bytes(folder / WEIGHTS, serialize(state, metadata={"kind": "ghn", "format": str(FORMAT)}))
    write_json(folder / "config.json", {"format": FORMAT, "kind": "ghn", **ghn.config.to_dict()})
    return folder


def load(name_or_folder: str | Path) -> GHN:
    """Load a hypernetwork; see `GHN.from_pretrained`."""
    folder = find_folder(name_or_folder)
    return fill(read_config(folder), _tensors(folder / WEIGHTS), str(folder / WEIGHTS))


def fill(config: GHNConfig, state: Mapping[str, Tensor], source: str) -> GHN:
    """A hypernetwork with these weights.

    Raises:
        ValueError: A tensor is missing, left over, of another shape, or not finite.
    """
    try:
        if config.layers > len(state):
            raise ValueError(f"{source} lacks tensors of {config.layers} layers; it holds {len(state)} in all")
        with torch.device("meta"):
            ghn = GHN(config)
    except RuntimeError as error:
        raise ValueError(f"{source}: no such network can be made of its configuration ({error})") from error
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


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}; the file is missing or damaged") from error
