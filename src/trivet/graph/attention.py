"""Rules for matrix products and for attention, fused, written out or by `multi_head_attention_forward`.

Attention is one node `msa`, wherever softmax of a product of activations is multiplied with a third. Its
multiply-accumulates are those of both products.
"""

from __future__ import annotations

import math
from typing import Any

from trivet.graph.layers import with_bias
from trivet.graph.rules import Call, named
from trivet.graph.values import Value, merge


def product(call: Call, first: Any, second: Any, macs: int) -> Value:
    """A product of two tensors: attention, a weight, or a node `matmul` from which attention may come."""
    a, b = call.value(first), call.value(second)
    if not a.sources and not b.sources:
        return merge([a, b])
    if b.parameters or a.parameters:
        weight, value, tensor = (b, a, second) if b.parameters else (a, b, first)
        whole = len(weight.parameters) == 1 and tuple(tensor.shape) == call.parameter_shape(weight.parameters[0])
        return call.weight("matmul_weight" if whole and weight is b else "conv", weight, value, macs=macs)
    scores = a.marks.get("attention") or b.marks.get("attention")
    if scores:
        result = call.node("msa", a, b, macs=macs)
        call.absorb(*scores[0], into=result)
        return result
    if not a.sources or not b.sources:
        return merge([a, b])
    result = call.node("matmul", a, b, macs=macs)
    return result.marked(scores=(result.sources, 0))


@named("matmul", "bmm", "mm", "mv", "rmatmul", "dot", "inner")
def matrix_product(call: Call) -> Value:
    """A product of two matrices or stacks of them."""
    first, second = call.argument(0, "input"), call.argument(1, "other", call.kwargs.get("mat2"))
    return product(call, first, second, math.prod(call.shape) * first.shape[-1])


@named("addmm", "baddbmm", "addmv", "addbmm")
def added_product(call: Call) -> Value:
    """A product and what is added to it: a bias, a mask or a branch."""
    added, first, second = call.args[:3]
    result = product(call, first, second, math.prod(call.shape) * first.shape[-1])
    return with_bias(call, result, added)


@named("einsum")
def einsum(call: Call) -> Value | None:
    """A product of two; its multiply-accumulates are all combinations of its indices."""
    operands = call.args[1] if len(call.args) == 2 and isinstance(call.args[1], (list, tuple)) else call.args[1:]
    if not isinstance(call.args[0], str) or len(operands) != 2:
        return None
    terms = call.args[0].replace(" ", "").split("->")[0].split(",")
    sides: dict[str, int] = {}
    rest = 1
    for term, operand in zip(terms, operands, strict=True):
        shape = list(operand.shape)
        front, dots, back = term.partition("...")
        sides.update(zip(front, shape, strict=False))
        if back:
            sides.update(zip(back, shape[-len(back) :], strict=False))
        if dots:
            rest = max(rest, math.prod(shape[len(front) : len(shape) - len(back)]))
    return product(call, operands[0], operands[1], math.prod(sides.values()) * rest)


@named("tensordot")
def tensordot(call: Call) -> Value:
    """A product of two tensors along given dimensions."""
    first, second, dims = call.argument(0, "a"), call.argument(1, "b"), call.argument(2, "dims", 2)
    inner = first.shape[-dims:] if isinstance(dims, int) else [first.shape[index] for index in dims[0]]
    return product(call, first, second, math.prod(call.shape) * math.prod(inner))


@named("scaled_dot_product_attention", always=True)
def fused_attention(call: Call) -> Value:
    """`msa`; a learned mask, such as relative positions, is a node `pos_bias` before it."""
    query, key, value = (call.argument(i, name) for i, name in enumerate(("query", "key", "value")))
    mask = call.value(call.argument(3, "attn_mask"))
    if mask.parameters:
        mask = call.weight("pos_bias", mask, shape=tuple(call.argument(3, "attn_mask").shape))
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    macs = pairs * (query.shape[-1] + value.shape[-1])
    return call.node("msa", call.value(query), call.value(key), call.value(value), mask, macs=macs)


@named("multi_head_attention_forward", always=True)
def multi_head_attention(call: Call) -> Value:
    """Projections, `msa` and the projection of its result."""
    get = call.argument
    query, key, value = get(0, "query"), get(1, "key"), get(2, "value")
    bias, width = get(6, "in_proj_bias"), query.shape[-1]
    parts = []
    if get(17, "use_separate_proj_weight", False):
        tensors = (query, key, value)
        weights = [get(18, "q_proj_weight"), get(19, "k_proj_weight"), get(20, "v_proj_weight")]
        for tensor, weight in zip(tensors, weights, strict=True):
            macs = math.prod(tensor.shape[:-1]) * weight.numel()
            shape = (*tensor.shape[:-1], width)
            part = call.weight("conv", call.value(weight), call.value(tensor), macs=macs, shape=shape)
            parts.append(with_bias(call, part, bias))
    else:
        weight = get(5, "in_proj_weight")
        macs = sum(math.prod(tensor.shape[:-1]) for tensor in (query, key, value)) * weight.numel() // 3
        before = [call.value(tensor) for tensor in (query, key, value)]
        part = call.weight("conv", call.value(weight), *before, macs=macs, shape=(*query.shape[:-1], 3 * width))
        parts.append(with_bias(call, part, bias))
    for position, name in ((7, "bias_k"), (8, "bias_v")):
        extra = call.value(get(position, name))
        if extra.parameters:
            parts.append(call.activation(extra))
    masks = [call.value(get(position, name)) for position, name in ((14, "key_padding_mask"), (16, "attn_mask"))]
    rows = query.shape[:-1].numel()
    result = call.node("msa", *parts, *masks, macs=rows * key.shape[0] * 2 * width)
    out = get(11, "out_proj_weight")
    result = call.weight("conv", call.value(out), result, macs=rows * out.numel())
    return with_bias(call, result, get(12, "out_proj_bias"))
