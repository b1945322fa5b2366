"""Rules for what brings branches together, and for the gates and normalizations that are written out with it."""

from __future__ import annotations

from typing import Any

import torch

from trivet.graph.rules import Call, named, tensors_in
from trivet.graph.values import CONSTANT, Value


def _two(call: Call) -> tuple[Any, Any, Value, Value]:
    first, second = call.argument(0, "input"), call.argument(1, "other")
    return first, second, call.value(first), call.value(second)


def _spread(tensor: torch.Tensor) -> int:
    """Along how many dimensions a tensor varies."""
    return sum(side > 1 for side in tensor.shape)


@named("add", "sub", "rsub", "subtract")
def add(call: Call) -> Value:
    """`sum` of branches; a parameter is a `bias`, or `pos_enc` if it varies along positions."""
    first, second, a, b = _two(call)
    if a.parameters:
        first, second, a, b = second, first, b, a
    if not b.parameters:
        return _sum(call, a, b)
    if "normed" in a.marks and isinstance(a.marks["normed"], int):
        call.extend(a.marks["normed"], b)
        return a.marked(normed=None)
    if _spread(second) <= 1:
        return call.weight("bias" if second.numel() > 1 else "raw", b, a)
    if "scores" in a.marks:
        return call.join("sum", a, call.weight("pos_bias", b, shape=tuple(second.shape)))
    return call.join("sum", a, call.weight("pos_enc", b, shape=tuple(second.shape)))


def _sum(call: Call, a: Value, b: Value) -> Value:
    for one, other in ((a, b), (b, a)):
        if other.marks.get("statistic") == one.sources and one.sources:
            return one.marked(centred=True)
    return call.join("sum", a, b)


@named("mul", "multiply", "div", "divide", "true_divide", "truediv", "rtruediv", "rdiv")
def multiply(call: Call) -> Value:
    """`mul` of branches, `cse` where one is a gate that saw the other's global mean; a parameter is a `scale`."""
    _, _, a, b = _two(call)
    if a.parameters:
        a, b = b, a
    if b.parameters:
        if a.marks.get("normed") is True:
            result = call.weight("ln" if a.marks.get("centred") else "rms_norm", b, a)
            return result.marked(normed=next(iter(result.sources)))
        return call.weight("scale", b, a)
    for one, gate in ((a, b), (b, a)):
        pooled = gate.marks.get("pooled")
        if pooled and gate.marks.get("gate") and pooled[0] == one.sources:
            result = call.node("cse", one, gate)
            if pooled[1] >= 0:
                call.absorb(pooled[1], into=result)
            return result
        if gate.marks.get("statistic") == one.sources and one.sources:
            return one.marked(normed=True)
    return call.join("mul", a, b)


@named("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack")
def concatenate(call: Call) -> Value:
    """`concat` of branches."""
    return call.join("concat", *(call.value(tensor) for tensor in tensors_in(call.argument(0, "tensors"))))


@named("addcmul", "addcdiv")
def add_product(call: Call) -> Value:
    """`sum` with a product."""
    first, second, third = (
        call.value(call.argument(i, name)) for i, name in enumerate(("input", "tensor1", "tensor2"))
    )
    if not first.parameters and (second.parameters or third.parameters):
        product = call.weight("scale", second, third) if second.parameters else call.weight("scale", third, second)
    else:
        product = call.join("mul", second, third)
    return call.join("sum", first, product)


@named("sigmoid", "hardsigmoid", "hardswish", "tanh", "hardtanh", "relu6", "clamp")
def squash(call: Call) -> Value | None:
    """No node, but perhaps the end of a gate."""
    value = call.value(call.argument(0, "input"))
    return value.marked(gate=True) if "pooled" in value.marks else None


@named("softmax", "softmax_")
def softmax(call: Call) -> Value | None:
    """No node; of scores it makes attention."""
    value = call.value(call.argument(0, "input"))
    return value.marked(attention=(value.marks["scores"][0], 0), scores=None) if "scores" in value.marks else None


@named("expand_as", "view_as", "reshape_as", "type_as", "to", always=True)
def first_alone(call: Call) -> Value:
    """What the first argument comes from; the second only lends shape or type."""
    return call.value(call.args[0])


def nothing(call: Call) -> Value:
    """A new tensor that has only its shape or its type from what was given."""
    del call
    return CONSTANT


for _name in ("zeros", "ones", "empty", "full", "rand", "randn", "randint"):
    named(f"{_name}_like", f"new_{_name}", always=True)(nothing)
named("new_tensor", "zero", "fill", "normal", "uniform", "bernoulli", "isnan", "isinf", always=True)(nothing)
