"""Rules for layers: convolutions, linear maps, normalizations, pooling, tables, recurrent networks.

Multiply-accumulates: a convolution makes out · (in / groups) · window, a transposed one in · (out / groups) · window, a
linear map rows · in · out, a recurrent layer as many for each of its matrices and time steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from trivet.graph.rules import Call, named, register_rule
from trivet.graph.values import Value, merge


def with_bias(call: Call, result: Value, bias: Any) -> Value:
    """The bias, if there is one, after its weight."""
    value = call.value(bias)
    if value.parameters:
        return call.weight("bias", value, result)
    return call.join("sum", result, value) if value.sources else result


@named("conv1d", "conv2d", "conv3d", always=True)
def convolution(call: Call) -> Value:
    """`conv`; with groups `sep_conv`, and `dil_conv` if it is dilated too."""
    source, weight, bias = call.argument(0, "input"), call.argument(1, "weight"), call.argument(2, "bias")
    groups, dilation = call.argument(6, "groups", 1), call.argument(5, "dilation", 1)
    spread = min(dilation) if isinstance(dilation, (tuple, list)) else dilation
    op = "conv" if groups == 1 else "dil_conv" if spread > 1 else "sep_conv"
    shape = call.shape
    macs = math.prod(shape) * math.prod(weight.shape[1:])
    return with_bias(call, call.weight(op, call.value(weight), call.value(source), macs=macs, shape=shape), bias)


@named("aten::convolution", always=True)
def any_convolution(call: Call) -> Value:
    """The operator below all of them."""
    source, weight, bias = call.args[:3]
    if call.args[6]:
        macs = source.numel() * math.prod(weight.shape[1:])
        return with_bias(call, call.weight("conv_transpose", call.value(weight), call.value(source), macs=macs), bias)
    groups = call.args[8]
    op = "conv" if groups == 1 else "dil_conv" if min(call.args[5]) > 1 else "sep_conv"
    macs = math.prod(call.shape) * math.prod(weight.shape[1:])
    return with_bias(call, call.weight(op, call.value(weight), call.value(source), macs=macs), bias)


@named("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", always=True)
def transposed_convolution(call: Call) -> Value:
    """`conv_transpose`."""
    source, weight, bias = call.argument(0, "input"), call.argument(1, "weight"), call.argument(2, "bias")
    macs = source.numel() * math.prod(weight.shape[1:])
    return with_bias(call, call.weight("conv_transpose", call.value(weight), call.value(source), macs=macs), bias)


@named("torchvision::deform_conv2d", always=True)
def deformable_convolution(call: Call) -> Value:
    """A convolution whose offsets and mask come from branches of their own."""
    source, weight, offset, mask, bias = call.args[:5]
    macs = math.prod(call.shape) * math.prod(weight.shape[1:])
    before = [call.value(tensor) for tensor in (source, offset, mask)]
    return with_bias(call, call.weight("conv", call.value(weight), *before, macs=macs), bias)


@named("linear", always=True)
def linear(call: Call) -> Value:
    """`conv`, as in DeepNets-1M."""
    source, weight, bias = call.argument(0, "input"), call.argument(1, "weight"), call.argument(2, "bias")
    shape = call.shape
    macs = math.prod(shape) * weight.shape[-1]
    return with_bias(call, call.weight("conv", call.value(weight), call.value(source), macs=macs, shape=shape), bias)


@named("bilinear", always=True)
def bilinear(call: Call) -> Value:
    """A weight with two inputs; counted as the product with the first, then with the second."""
    first, second, weight = call.argument(0, "input1"), call.argument(1, "input2"), call.argument(2, "weight")
    macs = math.prod(call.shape) * weight.shape[2] * (weight.shape[1] + 1)
    result = call.weight("raw", call.value(weight), call.value(first), call.value(second), macs=macs)
    return with_bias(call, result, call.argument(3, "bias"))


def _norm(call: Call, op: str, weight: Any, bias: Any) -> Value:
    source, own = call.value(call.argument(0, "input")), merge([call.value(weight), call.value(bias)])
    if own.sources:  # scale and shift that are computed, as in adaptive normalization
        return call.join("mul", source, own)
    return call.weight(op, own, source) if own.parameters else call.activation(source)


@named("batch_norm")
def batch_norm(call: Call) -> Value:
    """`bn`."""
    return _norm(call, "bn", call.argument(3, "weight"), call.argument(4, "bias"))


@named("aten::batch_norm", "native_batch_norm", "cudnn_batch_norm")
@register_rule(torch.batch_norm)
def native_batch_norm(call: Call) -> Value:
    """`bn`; below `torch.nn.functional`, the weight comes before the statistics."""
    return _norm(call, "bn", call.argument(1, "weight"), call.argument(2, "bias"))


@named("layer_norm", "native_layer_norm", always=True)
def layer_norm(call: Call) -> Value:
    """`ln`."""
    return _norm(call, "ln", call.argument(2, "weight"), call.argument(3, "bias"))


@named("rms_norm", always=True)
def rms_norm(call: Call) -> Value:
    """`rms_norm`."""
    return _norm(call, "rms_norm", call.argument(2, "weight"), None)


@named("group_norm")
def group_norm(call: Call) -> Value:
    """`group_norm`."""
    return _norm(call, "group_norm", call.argument(2, "weight"), call.argument(3, "bias"))


@named("instance_norm")
def instance_norm(call: Call) -> Value:
    """`instance_norm`."""
    return _norm(call, "instance_norm", call.argument(3, "weight"), call.argument(4, "bias"))


@named("aten::instance_norm")
@register_rule(torch.instance_norm)
def native_instance_norm(call: Call) -> Value:
    """`instance_norm`; below `torch.nn.functional`, the weight comes before the statistics."""
    return _norm(call, "instance_norm", call.argument(1, "weight"), call.argument(2, "bias"))


@named("prelu")
def prelu(call: Call) -> Value:
    """Learned slopes: `scale`."""
    return call.weight("scale", call.value(call.argument(1, "weight")), call.value(call.argument(0, "input")))


def _window(kernel: Any, dims: int) -> tuple[int, int]:
    sides = tuple(kernel) if isinstance(kernel, (tuple, list)) else (kernel,) * dims
    sides = sides * dims if len(sides) == 1 else sides
    last = tuple(int(side) for side in sides[-2:])
    return (1, last[0]) if len(last) == 1 else (last[0], last[1])


def global_mean(call: Call, source: Value) -> Value:
    """`glob_avg`, and the mark that a gate for what was averaged may follow."""
    source = call.activation(source)
    node = call.node("glob_avg", source)
    return node.marked(pooled=(source.sources, next(iter(node.sources))))


def _pool(op: str, dims: int) -> Any:
    def rule(call: Call) -> Value:
        source, kernel = call.argument(0, "input"), call.argument(1, "kernel_size")
        if op == "avg_pool":
            sides = tuple(kernel) if isinstance(kernel, (tuple, list)) else (kernel,)
            whole = tuple(source.shape[-dims:])
            if (sides * dims if len(sides) == 1 else sides) == whole and set(call.shape[-dims:]) == {1}:
                return global_mean(call, call.value(source))
        return call.node(op, call.value(source), kernel=_window(kernel, dims))

    return rule


def _lp_pool(call: Call) -> Value:
    source, kernel = call.argument(0, "input"), call.argument(2, "kernel_size")
    return call.node("avg_pool", call.value(source), kernel=_window(kernel, source.dim() - 2))


def _adaptive(op: str, dims: int) -> Any:
    def rule(call: Call) -> Value:
        source = call.argument(0, "input")
        value, before, after = call.value(source), source.shape[-dims:], call.shape[-dims:]
        if math.prod(after) == 1:
            if op == "avg_pool":
                return global_mean(call, value)
        elif tuple(before) == tuple(after):
            return call.activation(value)
        sides = tuple(-(-old // new) for old, new in zip(before, after, strict=True))
        result = call.node(op, value, kernel=_window(sides, dims))
        return result.marked(pooled=(value.sources, -1)) if math.prod(after) == 1 else result

    return rule


for _dims in (1, 2, 3):
    named(f"max_pool{_dims}d", f"max_pool{_dims}d_with_indices", f"fractional_max_pool{_dims}d")(
        _pool("max_pool", _dims)
    )
    named(f"avg_pool{_dims}d")(_pool("avg_pool", _dims))
    named(f"lp_pool{_dims}d")(_lp_pool)
    named(f"adaptive_avg_pool{_dims}d")(_adaptive("avg_pool", _dims))
    named(f"adaptive_max_pool{_dims}d", f"adaptive_max_pool{_dims}d_with_indices")(_adaptive("max_pool", _dims))


def _reduced(call: Call, dim: Any, dims: int) -> set[int]:
    if dim is None or dim == () or isinstance(dim, torch.dtype):
        return set(range(dims))
    return {int(entry) % dims for entry in (dim if isinstance(dim, (tuple, list)) else (dim,))}


@named("mean")
def mean(call: Call) -> Value:
    """`glob_avg` over all positions of a map or a sequence; over channels it may be part of a normalization."""
    source = call.argument(0, "input")
    value, shape = call.value(source), tuple(source.shape)
    over = _reduced(call, call.argument(1, "dim"), len(shape))
    kept = bool(call.argument(2, "keepdim", False))
    single = {index for index, side in enumerate(shape) if side == 1}
    middle, last = set(range(1, len(shape) - 1)), set(range(2, len(shape)))
    if len(shape) >= 4 and 0 not in over:
        first = last <= over | single and over & last and 1 not in over
        if first or (middle <= over and len(shape) - 1 not in over):
            return global_mean(call, value)
    if len(shape) == 3 and not kept and over in ({1}, {2}):
        return global_mean(call, value)
    return value.marked(statistic=value.sources)


@named("var", "std", "var_mean", "std_mean")
def statistic(call: Call) -> Value:
    """No node, but perhaps part of a normalization that is written out."""
    value = call.value(call.argument(0, "input"))
    return value.marked(statistic=value.sources)


@named("amax")
def maximum(call: Call) -> Value | None:
    """`max_pool` over the whole map."""
    source = call.argument(0, "input")
    over = _reduced(call, call.argument(1, "dim"), source.dim())
    if source.dim() < 4 or over != set(range(2, source.dim())):
        return None
    value = call.value(source)
    return call.node("max_pool", value, kernel=_window(tuple(source.shape[2:]), 2)).marked(pooled=(value.sources, -1))


def _rows(call: Call, always: bool) -> Value | None:
    values = [call.value(argument) for argument in (*call.args, *call.kwargs.values())]
    own = [value for value in values if value.parameters]
    active = [value for value in values if value.sources]
    return call.weight("embedding", own[0], *active) if own and (active or always) else None


@named("embedding", "embedding_bag", always=True)
def embedding(call: Call) -> Value | None:
    """`embedding`; without anything before it where fixed rows are looked up, such as positions."""
    return _rows(call, True)


@named("getitem", "index_select")
def rows(call: Call) -> Value | None:
    """`embedding` where rows of a parameter are chosen by what comes from the input."""
    return _rows(call, False)


def _recurrent(
    call: Call, inputs: Sequence[Value], groups: Sequence[Sequence[torch.Tensor]], rows: int, ways: int
) -> Value:
    result = merge(inputs[:1])
    for first in range(0, len(groups), ways):
        made = []
        for tensors in groups[first : first + ways]:
            macs = rows * sum(tensor.numel() for tensor in tensors if tensor.dim() > 1)
            own = merge(call.value(tensor) for tensor in tensors)
            made.append(call.weight("recurrent", own, result, *inputs[1:], macs=macs))
        result = merge(made)
    return result


@named("lstm", "gru", "rnn_tanh", "rnn_relu", always=True)
def recurrent(call: Call) -> Value:
    """One node `recurrent` for each layer and direction."""
    if isinstance(call.args[3], (list, tuple)):  # packed sequences: data, batch sizes, states, weights, …
        source, state, weights, rest = call.args[0], call.args[2], call.args[3], call.args[4:]
        rows = source.shape[0]
    else:
        source, state, weights, rest = call.args[0], call.args[1], call.args[2], call.args[3:]
        rows = source.shape[:-1].numel()
    layers, both = rest[1], rest[4]
    ways = 2 if both else 1
    size = len(weights) // (layers * ways)
    groups = [weights[start : start + size] for start in range(0, len(weights), size)]
    return _recurrent(call, [call.value(source), call.value(state)], groups, rows, ways)


@named("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", always=True)
def recurrent_cell(call: Call) -> Value:
    """One node `recurrent`."""
    source = call.args[0]
    rows = source.shape[:-1].numel()
    return _recurrent(call, [call.value(source), call.value(call.args[1])], [call.args[2:]], rows, 1)
