"""Multiply-accumulates of a model's layers, found without touching the model.

A copy of the model without storage ("meta" tensors) runs one forward pass: no arithmetic happens, and weights, running
statistics, training flags and random generators of the model itself are never reached. A model that needs real
numbers to run (it branches on values) is copied and run for real instead.

The cost in BitOPs follows in closed form (`bitops.py`). Not covered: layers other than linear and convolutional ones;
products that are not layers, such as attention scores.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trivet.precision.bitops import LayerCost
from trivet.precision.inject import chosen_layers, countable_layers, dequantize_, quantized_sites, sites
from trivet.precision.layers import count_macs

_log = logging.getLogger(__name__)


def layer_macs(model: nn.Module, example_input: Any) -> list[LayerCost]:
    """Multiply-accumulates per example of every linear and convolutional layer that runs.

    Args:
        model: Any module. When it is quantized, its quantized layers are marked; otherwise those that `quantize_`
            would choose.
        example_input: A batch as the model takes it: a tensor, a tuple of arguments, or a mapping of keyword
            arguments. The first dimension of the first tensor is the number of examples.

    Returns:
        One entry a layer, in the order of the model's modules. A layer that runs several times counts each time, one
        that does not run is left out.

    Raises:
        ValueError: The example holds no tensor, or no example.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * 64, 10))
        >>> [(layer.name, layer.macs, layer.quantised) for layer in layer_macs(model, torch.zeros(1, 1, 8, 8))]
        [('0', 2304, True), ('2', 2560, False)]
    """
    args, kwargs = _arguments(example_input)
    first = next((x for x in [*args, *kwargs.values()] if isinstance(x, torch.Tensor)), None)
    if first is None or first.dim() == 0 or first.shape[0] == 0:
        raise ValueError("`example_input` must hold a tensor whose first dimension counts the examples, at least one")
    own = {site.name for site in quantized_sites(model)}
    chosen = own or chosen_layers(model)
    try:
        macs = _run(_without_storage(model), _moved(args), _moved(kwargs))
    except Exception as error:
        _log.info("counting on a real copy of the model, as it cannot run without storage: %s", error)
        macs = _run(copy.deepcopy(model), args, kwargs)
    kinds = {name: type(module).__name__ for name, module in countable_layers(model).items()}
    return [
        LayerCost(name=name, kind=kinds[name], macs=macs[name] // first.shape[0], quantised=name in chosen)
        for name in kinds
        if macs.get(name)
    ]


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """Multiply-accumulates by layer of one forward pass of a model that may be spoiled."""
    if next(sites(model), None) is not None:
        dequantize_(model)
    macs: dict[str, int] = {}

    def hook(name: str) -> Any:
        def count(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: torch.Tensor) -> None:
            x = inputs[0] if inputs else next(iter(named.values()))
            macs[name] = macs.get(name, 0) + count_macs(module, x, output)

        return count

    for name, module in countable_layers(model).items():
        module.register_forward_hook(hook(name), with_kwargs=True)
    for module in model.modules():
        # One value per channel is enough here, where nothing is normalized; batch statistics would refuse it.
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    devices = sorted({tensor.device.index for tensor in model.parameters() if tensor.device.type == "cuda"})
    with torch.no_grad(), torch.random.fork_rng(devices):
        model(*args, **kwargs)
    return macs


def _without_storage(model: nn.Module) -> nn.Module:
    """A copy of the model on the meta device, made without copying any weights."""
    memo: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        empty = torch.empty_like(tensor, device="meta")
        memo[id(tensor)] = (
            nn.Parameter(empty, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
        )
    return copy.deepcopy(model, memo)


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), {str(key): value for key, value in example.items()}
    return (tuple(example), {}) if isinstance(example, (tuple, list)) else ((example,), {})


def _moved(value: Any) -> Any:
    """Tensors inside arguments, as meta tensors."""
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, dict):
        return {key: _moved(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_moved(item) for item in value)
    return value
