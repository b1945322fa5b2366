"""Checkpoints of the code that was published with GHN-1, GHN-2 and GHN-3: their layout and key names.

A file holds a state dictionary, alone or under `state_dict` beside a `config`. The structure is read off the shapes of
its tensors; the configuration tells only what they cannot. Files are read with `weights_only`, so that nothing in them
runs; a plain `argparse.Namespace`, which training checkpoints contain, is the one class let through, and ignored.

Not covered: files written by joblib, which are unrestricted pickles. Optimizers and training states are left unread.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trivet.ghn.config import GHNConfig
from trivet.ghn.ghn import GHN
from trivet.ghn.store import fill

_RULES: tuple[tuple[str, str], ...] = (
    (r"embed\.", "word."),
    (r"shape_enc\.embed_channel\.", "channel."),
    (r"shape_enc\.embed_spatial\.", "kernel."),
    (r"ln\.", "norm."),
    (r"gnn\.mlp\.fc\.0\.", "encoder.message.first."),
    (r"gnn\.mlp\.fc\.2\.", "encoder.message.second."),
    (r"gnn\.mlp_ve\.fc\.0\.", "encoder.virtual_message.first."),
    (r"gnn\.mlp_ve\.fc\.2\.", "encoder.virtual_message.second."),
    (r"gnn\.gru\.", "encoder.gru."),
    (r"gnn\.fc\.0\.", "encoder.first."),
    (r"gnn\.fc\.2\.", "encoder.second."),
    (r"(?:gnn\.0\.)?centrality_embed_in\.", "encoder.in_degree."),
    (r"(?:gnn\.0\.)?centrality_embed_out\.", "encoder.out_degree."),
    (r"(?:gnn\.0\.)?input_dist_embed\.", "encoder.input_distance."),
    (r"gnn\.0\.attn\.edge_embed\.embed\.", "encoder.edge_bias.distances."),
    (r"gnn\.0\.attn\.proj_e\.0\.", "encoder.edge_bias.first."),
    (r"gnn\.0\.attn\.proj_e\.2\.", "encoder.edge_bias.second."),
    (r"gnn\.(\d+)\.ln([12])\.", r"encoder.layers.\1.norm\2."),
    (r"gnn\.(\d+)\.attn\.to_qkv\.", r"encoder.layers.\1.qkv."),
    (r"gnn\.(\d+)\.attn\.to_out\.0\.", r"encoder.layers.\1.out."),
    (r"gnn\.(\d+)\.ff\.net\.0\.", r"encoder.layers.\1.expand."),
    (r"gnn\.(\d+)\.ff\.net\.3\.", r"encoder.layers.\1.contract."),
    (r"decoder\.mlp\.fc\.0\.", "decoder.hidden."),
    (r"decoder\.mlp\.fc\.2\.", "decoder.out."),
    (r"decoder\.fc\.0\.", "decoder.spatial."),
    (r"decoder\.conv\.0\.", "decoder.hidden."),
    (r"decoder\.conv\.2\.", "decoder.out."),
    (r"decoder\.class_layer_predictor\.1\.", "decoder.classes."),
    (r"decoder_1d\.fc\.0\.", "vectors.hidden."),
    (r"decoder_1d\.fc\.2\.", "vectors.out."),
    (r"bias_class\.1\.", "vectors.classes."),
)
"""Beginning of a published key → beginning of ours."""

_INDICES = ("decoder.cols_1d", "decoder.cols_4d", "shape_enc.dummy_ind")
"""Tables that some versions saved along; they hold no weights."""


def load(path: Path) -> GHN:
    """Load a published checkpoint; see `GHN.from_reference_checkpoint`."""
    published, config = _read(path)
    state: dict[str, Tensor] = {}
    foreign = []
    for key, value in published.items():
        name = _renamed(key)
        if name:
            # 1 × 1 convolutions are linear layers here.
            state[name] = value.flatten(1) if value.dim() == 4 else value
        elif key not in _INDICES:
            foreign.append(key)
    if foreign:
        raise ValueError(f"{path} has {len(foreign)} keys that no published hypernetwork has: {', '.join(foreign[:5])}")
    try:
        structure = _structure(state, config)
    except KeyError as error:
        raise ValueError(f"{path} lacks the tensor {error}, without which it is no hypernetwork") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return fill(structure, state, str(path))


def _read(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """The published state dictionary and configuration in a file."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as a checkpoint of plain tensors: it is damaged, holds other objects, which could "
            "run code and are refused, or was written by joblib; if you trust its origin, load it there and write it "
            f"again with `torch.save(state_dict, …)` ({(str(error) or type(error).__name__).splitlines()[0]})"
        ) from error
    config: Any = {}
    if isinstance(content, Mapping) and "state_dict" in content:
        content, config = content["state_dict"], content.get("config") or {}
    if not isinstance(content, Mapping) or not content:
        raise ValueError(f"{path} holds no state dictionary")
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise ValueError(f"{path}: `{key}` is a {type(value).__name__} and must be a tensor")
    return {key.removeprefix("module."): value for key, value in content.items()}, (
        config if isinstance(config, Mapping) else vars(config)
    )


def _renamed(key: str) -> str:
    """Our name of a published key; empty if there is none."""
    for pattern, replacement in _RULES:
        match = re.match(pattern, key)
        if match and key[match.end() :] in _LEAVES:
            return match.expand(replacement) + key[match.end() :]
    return ""


_LEAVES = ("weight", "bias", "weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _structure(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> GHNConfig:
    """The configuration that tensors of these shapes belong to."""
    hid = state["word.weight"].shape[1]
    num_classes = state["vectors.classes.weight"].shape[0]
    fields: dict[str, Any] = {
        "hid": hid,
        "num_classes": num_classes,
        "words": state["word.weight"].shape[0],
        "layer_norm": "norm.weight" in state,
        "virtual_edges": 50,
    }
    if "encoder.gru.weight_ih" in state:
        fields |= {"encoder": "gated", "virtual_edges": 50 if "encoder.virtual_message.first.weight" in state else 0}
    elif "encoder.in_degree.weight" in state:
        layers = sum(name.endswith(".qkv.weight") for name in state)
        heads = state["encoder.edge_bias.second.weight"].shape[0]
        fields |= {"encoder": "graphormer", "layers": layers, "heads": heads}
        fields["virtual_edges"] = 50 if config.get("ve", True) else 0
    else:
        fields["encoder"] = "mlp"
    if "decoder.spatial.weight" in state:
        fields["decoder"] = "linear" if fields["encoder"] == "graphormer" else "conv"
        channels = math.isqrt(state["decoder.out.weight"].shape[0])
        kernel = math.isqrt(state["decoder.spatial.weight"].shape[0] // (4 * hid))
        fields["max_shape"] = (channels, channels, kernel, kernel)
    else:
        fields["decoder"] = "mlp"
        shape = config.get("max_shape")
        if not isinstance(shape, (list, tuple)) or math.prod(shape) != state["decoder.out.weight"].shape[0]:
            raise ValueError(f"its configuration must have a `max_shape` that fits its decoder and has {shape!r}")
        fields["max_shape"] = tuple(int(n) for n in shape)
    # GHN-1 is the one that has neither; where a file says nothing, it is told by its structure.
    plain = fields["encoder"] == "gated" and not fields["virtual_edges"] and not fields["layer_norm"]
    fields["weight_norm"] = bool(config.get("weight_norm", not plain))
    return GHNConfig(**fields)
