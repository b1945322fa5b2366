"""Multiply-accumulates of a model's layers, found without touching the model.

A copy of the model without storage ("meta" tensors) runs one forward pass: no arithmetic happens, and weights, running
statistics, training flags and random generators of the model itself are never reached. A model that needs real
numbers to run (it branches on values) is copied and run for real instead.

The cost in BitOPs follows in closed form (`bitops.py`). The same covers count here and during training, so both agree.
Not covered: what `discover.py` and `products.py` do not cover.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trivet.precision.bitops import LayerCost
from trivet.precision.inject import chosen_layers, cover_, covers, dequantize_, is_chosen
from trivet.precision.quantizer import AffineQuantizer
from trivet.precision.sites import Site

_log = logging.getLogger(__name__)


def layer_macs(model: nn.Module, example_input: Any) -> list[LayerCost]:
    """Multiply-accumulates per example of every product that runs, layers and functional calls alike.

    Args:
        model: Any module. When it is quantized, its quantized layers are marked; otherwise those that `quantize_`
            would choose.
        example_input: A batch as the model takes it: a tensor, a tuple of arguments, or a mapping of keyword
            arguments. The first dimension of the first tensor is the number of examples; where the first argument is
            a list of tensors, as detection models take it, their number is.

    Returns:
        One entry a product, in the order of the model's modules; a layer of several products, such as attention, has
        several. A layer that runs several times counts each time, one
        that does not run is left out.

    Raises:
        ValueError: The example holds no tensor, or no example.

    Examples:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * 64, 10))
        >>> [(layer.name, layer.macs, layer.quantised) for layer in layer_macs(model, torch.zeros(1, 1, 8, 8))]
        [('0', 2304, True), ('2', 2560, False)]
    """
    args, kwargs = _arguments(example_input)
    examples = next((n for n in map(_examples, [*args, *kwargs.values()]) if n), 0)
    if not examples:
        raise ValueError("`example_input` must hold a tensor whose first dimension counts the examples, at least one")
    own = {name for name, cover in covers(model).items() if is_chosen(cover)}
    chosen = own or chosen_layers(model)
    try:
        memo: dict[int, torch.Tensor] = {}
        found = _run(_without_storage(model), _moved(args, memo), _moved(kwargs, memo))
    except Exception as error:
        _log.info("counting on a real copy of the model, as it cannot run without storage: %s", error)
        found = _run(copy.deepcopy(model), args, kwargs)
    return [
        LayerCost(name=site.name, kind=site.kind, macs=site.macs.value // examples, quantised=name in chosen)
        for site, name in found
        if site.macs.value
    ]


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[Site, str]]:
    """Sites and their layers after one counted forward pass of a model that may be spoiled."""
    if covers(model):
        dequantize_(model)
    state = cover_(model, set(), AffineQuantizer())
    state.counting = True
    for module in model.modules():
        # One value per channel is enough here, where nothing is normalized; batch statistics would refuse it.
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    devices = sorted({tensor.device.index for tensor in model.parameters() if tensor.device.type == "cuda"})
    with torch.no_grad(), torch.random.fork_rng(devices):
        model(*args, **kwargs)
    return [(site, name) for name, cover in covers(model).items() for site in cover.sites.values()]


def _without_storage(model: nn.Module) -> nn.Module:
    """A copy of the model on the meta device, made without copying any weights."""
    memo: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        empty = torch.empty_like(tensor, device="meta")
        memo[id(tensor)] = (
            nn.Parameter(empty, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
        )
    return copy.deepcopy(model, memo)


def _examples(value: Any) -> int:
    """How many examples an argument holds: rows of a tensor, tensors of a list."""
    if isinstance(value, torch.Tensor):
        return value.shape[0] if value.dim() else 0
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
        return len(value)
    return 0


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), {str(key): value for key, value in example.items()}
    return (tuple(example), {}) if isinstance(example, (tuple, list)) else ((example,), {})


def _moved(value: Any, memo: dict[int, torch.Tensor]) -> Any:
    """Tensors inside arguments, as meta tensors; the same one where it is given twice, as in self-attention."""
    if isinstance(value, torch.Tensor):
        return memo.setdefault(id(value), value.to("meta"))
    if isinstance(value, dict):
        return {key: _moved(item, memo) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_moved(item, memo) for item in value)
    return value
