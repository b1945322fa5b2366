"""Which parameters of a graph a hypernetwork predicts, what each is decoded as, and why it leaves the others alone.

A weight is decoded as a kernel of (out, in, height, width). Linear layers have a 1 × 1 kernel, one-dimensional
convolutions one of height 1; kernels of three dimensions repeat a two-dimensional one over their depth; transposed
convolutions, and weights that inputs are multiplied with from the left, swap out and in. Learned positions are a
square grid of one output channel, with up to two rows in front, such as a class token's, that are zero.

With anchors (`anchor.py`), a linear layer that reads a flattened image is decoded for its channels, like one behind a
global average, and every pixel of a channel gets the same weight.

The classifier is the last weight with a bias after which no further parameter follows. Its rows are decoded one a
class, so a hypernetwork can predict it only for as many classes as it was trained on, unless it is told the task
(`task_encoder.py`), which any number of classes can have.

Not covered: parameters whose node is of none of the 15 published types, nor like one; they keep their values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from trivet.core.errors import unknown_name
from trivet.ghn.anchor import Anchor, anchor_of
from trivet.ghn.config import GHNConfig, Head
from trivet.ghn.normalize import weight_scale
from trivet.graph.graph import Graph, Node
from trivet.graph.vocabulary import PRIMITIVES, word

Kind = Literal["weight", "class_weight", "class_bias", "factor", "offset"]
Form = Literal["vector", "matrix", "flat", "line", "kernel", "volume", "positions", "map"]
View = tuple[int, int, int, int]

_WEIGHTS = ("conv", "sep_conv", "dil_conv")
_NORMS = ("bn", "ln")
_SWAPPED = ("conv_transpose", "matmul_weight")


@dataclass(frozen=True, slots=True)
class Target:
    """One parameter that is predicted."""

    name: str
    """As in `named_parameters()`."""
    node: int
    """Index of its node."""
    kind: Kind
    """Which head decodes it."""
    shape: tuple[int, ...]
    """Its own shape."""
    form: Form
    """How its shape is read as a view."""
    view: View
    """Sizes (out, in, height, width) that it is decoded as; those of a vector are (size, 1, 1, 1)."""
    swapped: bool = False
    """Whether its first size is the number of inputs."""
    scale: float = 1.0
    """Factor of the normalization; 1 for vectors, which are squashed instead."""
    anchor: Anchor | None = None
    """What is added to what is decoded."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Parameters that a hypernetwork predicts, and those that it does not.

    Examples:
        >>> print(Coverage(predicted=("fc.weight",), kept={"token": "no published node type is like `raw`"}))
        1 of 2 parameter tensors predicted; kept: token (no published node type is like `raw`)
    """

    predicted: tuple[str, ...]
    """Names, in the order of the graph."""
    kept: Mapping[str, str]
    """Name → why it keeps its own values."""

    def __str__(self) -> str:
        """Count both, and give each reason."""
        total = len(self.predicted) + len(self.kept)
        text = f"{len(self.predicted)} of {total} parameter tensors predicted"
        reasons = ", ".join(f"{name} ({reason})" for name, reason in self.kept.items())
        return f"{text}; kept: {reasons}" if reasons else text


def reading(node: Node, words: int = len(PRIMITIVES)) -> int:
    """Index of the word that a hypernetwork of `words` node types reads a node as; `words` itself if there is none.

    Examples:
        >>> reading(Node(name="a", op="group_norm")), reading(Node(name="b", op="embedding"))
        (11, 15)
    """
    entry = word(node.op)
    if entry.index < words:
        return entry.index
    return PRIMITIVES.index(entry.like) if entry.like else words


def view_of(node: Node) -> tuple[Form, View] | str:
    """How a node's first parameter is decoded, or the reason why it is not.

    Examples:
        >>> view_of(Node(name="fc", op="conv", parameters=("fc.weight",), shape=(10, 64)))
        ('matrix', (10, 64, 1, 1))
    """
    like = word(node.op).like
    shape = node.shape
    if not like:
        return f"no published node type is like `{node.op}` ({word(node.op).what})"
    if math.prod(shape) == 0:
        return "it is empty"
    if like in _NORMS or like == "bias":
        if not shape:
            return "it is a single number"
        return "vector", (next((n for n in shape if n > 1), 1), 1, 1, 1)
    if like in _WEIGHTS:
        if not 2 <= len(shape) <= 5:
            return f"a weight of {len(shape)} dimensions is none of 2 to 5"
        out, inputs = (shape[1], shape[0]) if node.op in _SWAPPED else shape[:2]
        form: Form = ("matrix", "line", "kernel", "volume")[len(shape) - 2]
        height, width = (1, 1, *shape[2:])[-2:]
        return form, (out, inputs, height, width)
    if like == "pos_enc":
        return _positions(shape)
    return f"a node of type `{node.op}` has no weights in published networks"


def _positions(shape: tuple[int, ...]) -> tuple[Form, View] | str:
    if len(shape) == 4 and shape[0] == 1:
        last = shape[1] == shape[2] != shape[3]
        return ("map", (1, shape[3], shape[1], shape[2])) if last else ("kernel", shape)
    rows, channels = shape[-2:] if len(shape) >= 2 else (0, 0)
    side = math.isqrt(rows)
    if math.prod(shape[:-2]) == 1 and side > 1 and channels > 1 and rows - side * side <= 2:
        return "positions", (1, channels, side, side)
    return f"positions of shape {list(shape)} are no square grid with at most two rows in front"


def head_of(graph: Graph) -> tuple[int, int] | None:
    """Nodes of the classifier's weight and bias; None if the last parameters are no such pair.

    Published code takes the last two nodes; here parameter-free ones may follow.
    """
    last = max((i for i, node in enumerate(graph.nodes) if node.parameters), default=0)
    if last == 0 or word(graph.nodes[last].op).like != "bias":
        return None
    before = max((source for source, target in graph.edges if target == last), default=-1)
    weight = graph.nodes[before]
    dense = len(weight.shape) >= 2 and math.prod(weight.shape[2:]) == 1 and weight.op not in _SWAPPED
    if before < 0 or word(weight.op).like != "conv" or not dense or weight.shape[:1] != graph.nodes[last].shape:
        return None
    return before, last


def targets_of(graph: Graph, config: GHNConfig, head: Head) -> tuple[list[Target], dict[str, str]]:
    """Parameters that are predicted, and name → reason of those that are not.

    Args:
        graph: Of the network whose parameters are wanted.
        config: Of the hypernetwork.
        head: What happens to the classifier: "predict" decodes one row a class, "resize" decodes it like any other
            linear layer of that size, "keep" leaves it as it is.

    Raises:
        ValueError: The classifier is to be predicted and has another number of classes, or `head` is none of the three.
    """
    if head not in get_args(Head):
        raise ValueError(unknown_name("head", str(head), get_args(Head)))
    pair = head_of(graph) or ()
    if pair and head == "predict" and config.task == "none":
        classes, name = graph.nodes[pair[0]].shape[0], graph.nodes[pair[0]].parameters[0]
        if classes != config.num_classes:
            raise ValueError(
                f"the classifier `{name}` has {classes} classes and this hypernetwork predicts {config.num_classes}; "
                "choose `head='keep'` to leave the classifier as it is, or `head='resize'` to decode it like any other "
                "linear layer"
            )
    targets: list[Target] = []
    kept: dict[str, str] = {}
    for index, node in enumerate(graph.nodes):
        if index in pair and head == "keep":
            kept.update(dict.fromkeys(node.parameters, "the classifier is kept, as asked"))
        else:
            pixels = _pixels(graph, index) if config.anchor == "identity" else 1
            found, left = _targets(index, node, config, index in pair and head == "predict", pixels)
            targets += found
            kept.update(left)
    return targets, {**kept, **graph.unplaced}


def _pixels(graph: Graph, index: int) -> int:
    """Pixels of the flattened image that a linear layer reads; 1 if it reads something else."""
    node = graph.nodes[index]
    if len(node.shape) != 2 or word(node.op).like != "conv" or node.op in _SWAPPED:
        return 1
    read = {graph.nodes[source].output for source, target in graph.edges if target == index}
    found = {math.prod(shape[2:]) for shape in read if len(shape) > 2 and math.prod(shape[1:]) == node.shape[1]}
    return found.pop() if len(found) == len(read) == 1 else 1


def _targets(
    index: int, node: Node, config: GHNConfig, is_head: bool, pixels: int = 1
) -> tuple[list[Target], dict[str, str]]:
    """Targets of one node, and its parameters that are none."""
    if not node.parameters:
        return [], {}
    seen = view_of(node)
    if isinstance(seen, str):
        return [], dict.fromkeys(node.parameters, seen)
    form, view = seen
    like = word(node.op).like
    if form == "vector":
        kinds: tuple[Kind, ...] = ("class_bias" if is_head else "offset",)
        if like in _NORMS:
            only = node.parameters[0].rsplit(".", 1)[-1]
            shift = len(node.parameters) == 1 and ("bias" in only or "beta" in only)
            of_norm: tuple[Kind, ...] = ("factor", "offset")
            kinds = of_norm[1:] if shift else of_norm
        found = [
            Target(name, index, each, node.shape, form, view)
            for name, each in zip(node.parameters, kinds, strict=False)
        ]
    else:
        scale = 1.0
        if config.weight_norm and like != "pos_enc":
            depth = node.shape[2] if form == "volume" else 1
            seen_by_one = (view[0], view[1] // _groups(node), *view[2:])
            scale = weight_scale(seen_by_one, depth=depth, kernel=form == "kernel")
        kind: Kind = "class_weight" if is_head else "weight"
        swapped = node.op in _SWAPPED
        if pixels > 1:
            form, view = "flat", (view[0], view[1] // pixels, 1, 1)
            scale /= math.sqrt(pixels)  # that of a layer that reads the mean of the pixels
        anchor = _anchor(node, view, pixels) if config.anchor == "identity" and kind == "weight" else None
        found = [Target(node.parameters[0], index, kind, node.shape, form, view, swapped, scale, anchor)]
    rest = node.parameters[len(found) :]
    return found, dict.fromkeys(rest, f"a node of type `{node.op}` has only {len(found)} in published networks")


def _anchor(node: Node, view: View, pixels: int) -> Anchor | None:
    """The anchor of a weight; positions have none."""
    if word(node.op).like not in _WEIGHTS:
        return None
    grouped = word(node.op).like != "conv" or _groups(node) > 1
    depth = node.shape[2] if len(node.shape) == 5 else 1
    seen_by_one = (view[0], view[1] // _groups(node), *view[2:])
    return anchor_of(seen_by_one, grouped=grouped, parts=depth * pixels)


def _groups(node: Node) -> int:
    """Groups of a transposed convolution, which its weight does not show: all outputs over those of one group."""
    if node.op != "conv_transpose" or len(node.output) < 2 or node.output[1] % node.shape[1]:
        return 1
    groups = node.output[1] // node.shape[1]
    return groups if groups and node.shape[0] % groups == 0 else 1
