from __future__ import annotations

import math

import pytest

from trivet.ghn.config import GHNConfig
from trivet.ghn.targets import Coverage, Target, head_of, reading, targets_of, view_of
from trivet.graph.graph import Graph, Node

CONFIG = GHNConfig()


def node(op: str, shape: tuple[int, ...], *names: str, output: tuple[int, ...] = ()) -> Node:
    return Node(name=names[0] if names else op, op=op, parameters=names or ("p",), shape=shape, output=output)


def only(op: str, shape: tuple[int, ...], *names: str, output: tuple[int, ...] = ()) -> Target | str:
    """The single target of a graph of one weight, or the reason why there is none."""
    graph = Graph(nodes=(Node(name="in", op="input"), node(op, shape, *names, output=output)), edges=((0, 1),))
    targets, kept = targets_of(graph, CONFIG, "predict")
    assert len(targets) + len(kept) == 1
    return targets[0] if targets else next(iter(kept.values()))


@pytest.mark.parametrize(
    ("op", "shape", "form", "view", "scale"),
    [
        ("conv", (10, 64), "matrix", (10, 64, 1, 1), 2 / 64),
        ("conv", (8, 4, 5), "line", (8, 4, 1, 5), 2 / 20),
        ("conv", (8, 1, 5), "line", (8, 1, 1, 5), 2 / 5),
        ("conv", (8, 4, 3, 3), "kernel", (8, 4, 3, 3), 2 / 36),
        ("conv", (8, 4, 1, 7), "kernel", (8, 4, 1, 7), 1 / 28),
        ("conv", (8, 4, 7, 1), "kernel", (8, 4, 7, 1), 2 / 28),
        ("sep_conv", (8, 1, 3, 3), "kernel", (8, 1, 3, 3), 1 / 9),
        ("conv", (8, 4, 2, 3, 3), "volume", (8, 4, 3, 3), 2 / 72),
        ("conv_transpose", (8, 4, 2, 2), "kernel", (4, 8, 2, 2), 2 / 32),
        ("matmul_weight", (8, 4), "matrix", (4, 8, 1, 1), 2 / 8),
        ("pos_enc", (1, 16, 11, 11), "kernel", (1, 16, 11, 11), 1),
        ("pos_enc", (1, 14, 15, 16), "kernel", (1, 14, 15, 16), 1),
        ("pos_enc", (1, 7, 7, 96), "map", (1, 96, 7, 7), 1),
        ("pos_enc", (1, 197, 768), "positions", (1, 768, 14, 14), 1),
        ("pos_enc", (198, 768), "positions", (1, 768, 14, 14), 1),
    ],
)
def test_weights_are_decoded_as_kernels(
    op: str, shape: tuple[int, ...], form: str, view: tuple[int, ...], scale: float
) -> None:
    target = only(op, shape)
    assert isinstance(target, Target)
    assert (target.form, target.view, target.shape) == (form, view, shape)
    assert target.scale == math.sqrt(scale)


def test_groups_of_a_transposed_convolution_lower_its_fan_in() -> None:
    target = only("conv_transpose", (8, 1, 2, 2), output=(1, 8, 4, 4))
    assert isinstance(target, Target)
    assert target.scale == math.sqrt(1 / 4)
    assert target.view == (1, 8, 2, 2)


@pytest.mark.parametrize(
    ("op", "shape", "reason"),
    [
        ("embedding", (100, 8), "no published node type is like `embedding`"),
        ("raw", (1, 1, 8), "no published node type is like `raw`"),
        ("conv", (8,), "a weight of 1 dimensions is none of 2 to 5"),
        ("conv", (0, 8), "it is empty"),
        ("bias", (), "it is a single number"),
        ("pos_enc", (1, 150, 768), "no square grid with at most two rows in front"),
        ("pos_enc", (768,), "no square grid"),
        ("sum", (8, 8), "a node of type `sum` has no weights"),
    ],
)
def test_others_keep_their_values_with_a_reason(op: str, shape: tuple[int, ...], reason: str) -> None:
    assert reason in str(only(op, shape))


def test_norms_have_a_factor_and_an_offset() -> None:
    graph = Graph(nodes=(node("group_norm", (8,), "gn.weight", "gn.bias"), node("ln", (4, 5), "ln.bias")), edges=())
    targets, kept = targets_of(graph, CONFIG, "predict")
    assert [(target.name, target.kind) for target in targets] == [
        ("gn.weight", "factor"),
        ("gn.bias", "offset"),
        ("ln.bias", "offset"),
    ]
    assert not kept


def test_more_parameters_than_a_node_type_has_are_kept() -> None:
    graph = Graph(nodes=(node("conv", (8, 4), "a.weight", "a.extra"),), edges=())
    targets, kept = targets_of(graph, CONFIG, "predict")
    assert [target.name for target in targets] == ["a.weight"]
    assert "only 1" in kept["a.extra"]


def classifier(*after: Node, shape: tuple[int, ...] = (10, 8), bias: bool = True) -> Graph:
    nodes = [Node(name="in", op="input"), node("conv", (8, 4), "a.weight"), node("conv", shape, "fc.weight")]
    nodes += [node("bias", shape[:1], "fc.bias")] if bias else []
    nodes += after
    return Graph(nodes=tuple(nodes), edges=tuple((i, i + 1) for i in range(len(nodes) - 1)))


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        (classifier(), (2, 3)),
        (classifier(shape=(10, 8, 1, 1)), (2, 3)),
        (classifier(Node(name="pool", op="glob_avg")), (2, 3)),
        (classifier(bias=False), None),
        (classifier(shape=(10, 8, 3, 3)), None),
        (classifier(node("bn", (10,), "bn.weight")), None),
        (Graph(nodes=(Node(name="in", op="input"),), edges=()), None),
    ],
)
def test_the_classifier_is_the_last_weight_with_a_bias(graph: Graph, found: tuple[int, int] | None) -> None:
    assert head_of(graph) == found


def test_another_number_of_classes_is_refused_and_names_both() -> None:
    graph = classifier(shape=(100, 8))
    with pytest.raises(ValueError, match=r"`fc.weight` has 100 classes .* predicts 10; choose `head='keep'`"):
        targets_of(graph, CONFIG, "predict")
    with pytest.raises(ValueError, match=r"unknown head 'resise'; .* did you mean 'resize'"):
        targets_of(graph, CONFIG, "resise")  # pyrefly: ignore
    resized, kept = targets_of(graph, CONFIG, "resize")
    assert [(target.name, target.kind) for target in resized[1:]] == [("fc.weight", "weight"), ("fc.bias", "offset")]
    assert not kept
    left, kept = targets_of(graph, CONFIG, "keep")
    assert [target.name for target in left] == ["a.weight"]
    assert list(kept) == ["fc.weight", "fc.bias"]


def test_parameters_without_a_node_stay_with_their_reason() -> None:
    graph = Graph(nodes=(node("conv", (8, 4), "a.weight"),), edges=(), unplaced={"b": "never used"})
    assert targets_of(graph, CONFIG, "predict")[1] == {"b": "never used"}
    coverage = Coverage(("a.weight",), {"b": "never used"})
    assert str(coverage) == "1 of 2 parameter tensors predicted; kept: b (never used)"


def test_words_beyond_the_published_ones() -> None:
    assert reading(Node(name="a", op="group_norm")) == 11
    assert reading(Node(name="a", op="group_norm"), words=100) > 14
    assert reading(Node(name="a", op="raw")) == 15
    assert view_of(node("bn", (1, 6, 1))) == ("vector", (6, 1, 1, 1))
