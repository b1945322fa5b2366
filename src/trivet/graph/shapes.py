"""Results of frequent functions for tensors without storage, by their shape alone.

torch can work them out itself, but takes five to fifty times as long. A function here gets the arguments of the call
and returns an empty tensor of the right shape and type, or None where torch should decide, which then also raises what
is wrong with the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Shape = Callable[..., Any]
SHAPES: dict[str, Shape] = {}
_empty = torch.empty


def _shape(*names: str) -> Callable[[Shape], Shape]:
    def decorate(function: Shape) -> Shape:
        SHAPES.update(dict.fromkeys(names, function))
        return function

    return decorate


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """As `torch.empty_like`, which goes a long way round for tensors without storage."""
    if tensor.is_contiguous():
        return _empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return torch.empty_like(tensor)


def _new(shape: Any, like: torch.Tensor) -> torch.Tensor:
    return _empty(shape, dtype=like.dtype, device="meta")


@_shape(
    "relu", "relu6", "gelu", "silu", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu", "mish",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
)  # fmt: skip
def _same(input: torch.Tensor, *args: Any, inplace: bool = False, **kwargs: Any) -> torch.Tensor | None:
    """As the input; the input itself where it would be overwritten."""
    if not input.is_floating_point():
        return None
    if inplace or (args and args[-1] is True):  # `inplace` comes last by position; an alias does no harm elsewhere
        return input
    return _like(input)


@_shape("softmax", "log_softmax")
def _softmax(input: torch.Tensor, dim: Any = None, *args: Any, dtype: Any = None, **kwargs: Any) -> torch.Tensor | None:
    if dtype is None and not args and input.is_floating_point():
        return _like(input)
    return None


@_shape("batch_norm")
def _batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor | None:
    known = running_mean if running_mean is not None else weight
    if not isinstance(known, torch.Tensor) or input.dim() < 2 or known.shape[0] != input.shape[1]:
        return None
    return _like(input)


@_shape("layer_norm")
def _layer_norm(input: torch.Tensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> torch.Tensor | None:
    shape = input.shape
    if not normalized_shape or tuple(shape[-len(normalized_shape) :]) != tuple(normalized_shape):
        return None
    return _new(shape, input)


@_shape("linear")
def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor | None:
    shape, sides = input.shape, weight.shape
    if len(sides) != 2 or not shape or shape[-1] != sides[1] or input.dtype is not weight.dtype:
        return None
    return _new((*shape[:-1], sides[0]), input)


def _sides(value: Any, dims: int) -> tuple[int, ...] | None:
    if isinstance(value, int):
        return (value,) * dims
    if isinstance(value, (tuple, list)) and all(isinstance(side, int) for side in value):
        return tuple(value) * dims if len(value) == 1 else tuple(value) if len(value) == dims else None
    return None


@_shape("conv1d", "conv2d", "conv3d")
def _conv(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor | None:
    shape, sides = input.shape, weight.shape
    dims = len(sides) - 2
    steps, pads, spreads = _sides(stride, dims), _sides(padding, dims), _sides(dilation, dims)
    if len(shape) != dims + 2 or steps is None or pads is None or spreads is None:
        return None
    if shape[1] != sides[1] * groups or input.dtype is not weight.dtype:
        return None
    out = [
        (side + 2 * pad - spread * (window - 1) - 1) // step + 1
        for side, pad, spread, window, step in zip(shape[2:], pads, spreads, sides[2:], steps, strict=True)
    ]
    return None if min(out) < 1 else _new((shape[0], sides[0], *out), input)


def _adaptive(dims: int) -> Shape:
    def shape(input: torch.Tensor, output_size: Any) -> torch.Tensor | None:
        sides = (output_size,) * dims if isinstance(output_size, int) else tuple(output_size)
        old = input.shape
        if len(sides) != dims or len(old) != dims + 2:
            return None
        kept = [side if new is None else new for side, new in zip(old[2:], sides, strict=True)]
        return _new((*old[:2], *kept), input)

    return shape


for _dims in (1, 2, 3):
    _shape(f"adaptive_avg_pool{_dims}d")(_adaptive(_dims))


@_shape("add", "mul", "sub", "div")
def _pointwise(first: Any, second: Any = None, **kwargs: Any) -> torch.Tensor | None:
    if kwargs or not isinstance(first, torch.Tensor) or not first.is_floating_point():
        return None
    # Results of the same shape alone; torch decides about all others.
    if isinstance(second, (int, float)):
        return _like(first)
    if isinstance(second, torch.Tensor) and second.shape == first.shape and second.dtype is first.dtype:
        return _like(first)
    return None


@_shape("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(data: torch.Tensor, *args: Any) -> Any:
    """Results and last states; torch itself would go through all time steps."""
    packed = isinstance(args[2], (list, tuple))  # batch sizes come before states and weights
    if len(args) < (8 if packed else 7):
        return None
    states, both = args[1 if packed else 0], args[7 if packed else 6]
    first = states[0] if isinstance(states, (list, tuple)) else states
    result = _new((*data.shape[:-1], first.shape[-1] * (2 if both else 1)), data)
    last = [_like(state) for state in (states if isinstance(states, (list, tuple)) else [states])]
    return (result, *last)


def overwritten(first: Any, second: Any = None, **kwargs: Any) -> torch.Tensor | None:
    """The first argument itself, for arithmetic in place."""
    return first if _pointwise(first, second, **kwargs) is not None else None


IN_PLACE = frozenset({"add", "mul", "sub", "div"})
"""Names of the functions whose in-place forms `overwritten` is for."""
