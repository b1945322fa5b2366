"""Rules for single products: matrix multiplication in all its names, convolution, einsum, bilinear, embedding.

An operand is a weight when it is a parameter, a view of one, or stands where `linear` and the convolutions take their
weight; it is rounded with one range per output channel. The other operands are activations, rounded with one range
each. Products of whole numbers are left alone.

Multiply-accumulates: elements of the output × length of the sum; a transposed convolution multiplies every input
element with one slice of the weight; bilinear counts x₁ᵀA and the sum over x₂.

Not covered: `einsum` of more or fewer than two operands or with repeated labels (full precision, not counted); sparse
tensors (likewise).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from trivet.precision.native import native_product
from trivet.precision.sites import Pass, Site

if TYPE_CHECKING:
    from trivet.precision.scope import ScopedForward

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


class Product(NamedTuple):
    """How a function takes its two operands."""

    label: str
    """What the product is called."""
    left: tuple[int, str]
    """Place and name of the first operand."""
    right: tuple[int, str]
    """Place and name of the second."""
    layer: bool = False
    """Whether the second operand is a layer's weight, [outputs, inputs, …], and a bias follows."""
    transposed: bool = False
    """Whether the layer is a transposed convolution, with weight [inputs, outputs, …]."""
    along: int = -2
    """Dimension of the second operand that is summed over; of the first it is the last."""
    by_position: bool = True
    """Whether published ranges of its gradients are per position."""
    summed_batch: bool = False
    """Whether the output is summed over the batch."""


_MATMUL = Product("matmul", (0, "input"), (1, "other"))

PRODUCTS: dict[str, Product] = {
    "linear": Product("linear", (0, "input"), (1, "weight"), layer=True),
    **{f"conv{n}d": Product(f"conv{n}d", (0, "input"), (1, "weight"), True, by_position=False) for n in (1, 2, 3)},
    **{
        f"conv_transpose{n}d": Product(
            f"conv_transpose{n}d", (0, "input"), (1, "weight"), True, True, by_position=False
        )
        for n in (1, 2, 3)
    },
    "matmul": _MATMUL,
    "__matmul__": _MATMUL,
    "__rmatmul__": Product("matmul", (1, "other"), (0, "input")),
    "inner": Product("inner", (0, "input"), (1, "other"), along=-1),
    "mm": Product("mm", (0, "input"), (1, "mat2")),
    "bmm": Product("bmm", (0, "input"), (1, "mat2")),
    "mv": Product("mv", (0, "input"), (1, "vec"), along=-1),
    "addmm": Product("addmm", (1, "mat1"), (2, "mat2")),
    "addmv": Product("addmv", (1, "mat"), (2, "vec"), along=-1),
    "baddbmm": Product("baddbmm", (1, "batch1"), (2, "batch2")),
    "addbmm": Product("addbmm", (1, "batch1"), (2, "batch2"), summed_batch=True),
}
"""Functions that `multiply` computes."""


def multiply(scope: ScopedForward, name: str, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """A product of two operands that `func` finds at the places of its name."""
    product = PRODUCTS[name]
    arguments, named = list(args), dict(kwargs)
    x = _argument(arguments, named, *product.left, None)
    w = _argument(arguments, named, *product.right, None)
    if not (_is_real(x) and _is_real(w)):
        return func(*args, **kwargs)
    left_weight = not product.layer and _is_weight(x)
    right_weight = product.layer or (_is_weight(w) and not left_weight)
    site = scope.site_of_weight(w) if right_weight else None
    if site is None:
        site = scope.site(scope.label_of(product, w), weighted=left_weight or right_weight)
    kind = scope.current_pass()
    if name == "linear" and site.state.execution != "simulated" and not torch.compiler.is_compiling():
        y = native_product(None, site, x, w, _argument(arguments, named, 2, "bias", None), kind)
        if y is not None:
            return y
    if product.layer:
        groups = _argument(arguments, named, 6, "groups", 1)
        rounded_w = _layer_weight(site, w, kind, groups if product.transposed else 0)
        bias = site.round_bias(_argument(arguments, named, 2, "bias", None), kind)
        _put(arguments, named, (2, "bias"), bias)
        rounded_x = site.round_input(x, kind)
    else:
        rounded_x = _operand(site, x, kind, 0, weight=left_weight, along=-1)
        along = -1 if w.dim() == 1 else product.along
        rounded_w = _operand(site, w, kind, 0 if left_weight else 1, weight=right_weight, along=along)
    _put(arguments, named, product.left, rounded_x)
    _put(arguments, named, product.right, rounded_w)
    y = func(*arguments, **named)
    return site.finish(y, _macs(product, x, w, y), kind, by_position=product.by_position and y.dim() > 2)


def _macs(product: Product, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> int:
    """Multiply-accumulates of a product of x and w that gave y."""
    if product.layer:
        return math.prod((x if product.transposed else y).shape) * math.prod(w.shape[1:])
    if product.summed_batch:
        return math.prod(x.shape) * w.shape[-1]
    return math.prod(y.shape) * x.shape[-1]


def einsum(scope: ScopedForward, name: str, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """`torch.einsum` of two operands."""
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    labels = _einsum_labels(equation, operands) if isinstance(equation, str) else None
    if labels is None or not all(_is_real(x) for x in operands):
        return func(*args, **kwargs)
    sizes = {c: n for label, x in zip(labels, operands, strict=True) for c, n in zip(label, x.shape, strict=True)}
    output = equation.replace(" ", "").partition("->")[2]
    weights = [_is_weight(x) for x in operands]
    site = scope.site("einsum", weighted=any(weights))
    kind = scope.current_pass()
    rounded = []
    operand = 0
    for label, x, weight in zip(labels, operands, weights, strict=True):
        summed = tuple(i for i, c in enumerate(label) if c not in output)
        if weight and summed and sum(weights) == 1:
            rounded.append(site.round_weight(x, summed, kind))
        else:
            rounded.append(site.round_input(x, kind, operand))
            operand += 1
    return site.finish(func(equation, *rounded), math.prod(list(sizes.values())), kind)


def bilinear(scope: ScopedForward, name: str, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """`functional.bilinear(input1, input2, weight, bias)`."""
    names = ("input1", "input2", "weight", "bias")
    x1, x2, weight, bias = (_argument(args, kwargs, i, key, None) for i, key in enumerate(names))
    site = scope.site("")
    kind = scope.current_pass()
    y = func(
        site.round_input(x1, kind),
        site.round_input(x2, kind, 1),
        site.round_weight(weight, (1, 2), kind),
        site.round_bias(bias, kind),
    )
    return site.finish(y, math.prod(y.shape) * weight.shape[2] * (weight.shape[1] + 1), kind)


def embedding(scope: ScopedForward, name: str, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """`functional.embedding`: the rows that were looked up are rounded, one range each; gradients are not."""
    site = scope.site("")
    kind = scope.current_pass()
    y = func(*args, **kwargs)
    if kind.recorded:
        site.count(0, y.device)
    return site.round_weight(y, (-1,), kind) if _is_real(y) else y


def embedding_bag(scope: ScopedForward, name: str, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """`functional.embedding_bag`: the table is rounded, one range a row; gradients are not."""
    site = scope.site("")
    kind = scope.current_pass()
    weight = args[1] if len(args) > 1 else kwargs["weight"]
    arguments, named = list(args), dict(kwargs)
    _put(arguments, named, (1, "weight"), site.round_weight(weight, (1,), kind))
    y = func(*arguments, **named)
    if kind.recorded:
        site.count(0, y.device)
    return y


def _layer_weight(site: Site, weight: torch.Tensor, kind: Pass, groups: int) -> torch.Tensor:
    """A layer's weight rounded per output channel: dimension 0, or dimension 1 of each of the groups, if given."""
    if not groups:
        return site.round_weight(weight, tuple(range(1, weight.dim())), kind)
    split = weight.unflatten(0, (groups, -1))
    return site.round_weight(split, (1, *range(3, split.dim())), kind).flatten(0, 1)


def _operand(site: Site, x: torch.Tensor, kind: Pass, operand: int, *, weight: bool, along: int) -> torch.Tensor:
    """An operand of a matrix product, whose dimension `along` is summed over."""
    if weight and x.dim() > 1:
        return site.round_weight(x, (along,), kind)
    if weight:
        return site.round_weight(x, (0,), kind)
    if site.published and not site.weighted:
        # The reference code rounds each row as it lies in memory, before it is transposed.
        turned = x.dim() > 1 and x.stride(-2) == 1 and x.stride(-1) != 1
        return site.round_input(x, kind, operand, dims=(x.dim() - 2 if turned else x.dim() - 1,))
    return site.round_input(x, kind, operand)


def _einsum_labels(equation: str, operands: list[Any]) -> list[str] | None:
    """The labels of two operands, or None for an equation that is not a plain product of two."""
    inputs, arrow, _ = equation.replace(" ", "").partition("->")
    labels = inputs.split(",")
    plain = arrow and len(labels) == len(operands) == 2 and "." not in equation
    return labels if plain and all(len(set(label)) == len(label) for label in labels) else None


def _is_real(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point() and x.layout == torch.strided and x.dim() > 0


def _is_weight(x: torch.Tensor) -> bool:
    return isinstance(x, nn.Parameter) or isinstance(x._base, nn.Parameter)


def _argument(args: Any, kwargs: Kwargs, place: int, name: str, default: Any) -> Any:
    return args[place] if place < len(args) else kwargs.get(name, default)


def _put(arguments: list[Any], named: dict[str, Any], at: tuple[int, str], value: Any) -> None:
    place, key = at
    if place < len(arguments):
        arguments[place] = value
    elif key in named:
        named[key] = value
