"""What the rows of a picture say."""

from __future__ import annotations

import pytest

from trivet.graph.graph import Node
from trivet.graph.wording import short, words_of


@pytest.mark.parametrize(
    ("node", "name", "detail"),
    [
        (Node(name="w", op="conv", shape=(64, 3, 7, 7), parameters=("w",)), "conv", "7×7 3→64"),
        (Node(name="w", op="conv", shape=(10, 64), parameters=("w",)), "linear", "64→10"),
        (Node(name="w", op="conv", shape=(8, 4, 3), parameters=("w",)), "conv", "3 4→8"),
        (Node(name="w", op="sep_conv", shape=(32, 1, 3, 3), parameters=("w",)), "depthwise conv", "3×3 32"),
        (Node(name="w", op="sep_conv", shape=(32, 8, 3, 3), parameters=("w",)), "grouped conv", "3×3 8→32"),
        (Node(name="w", op="conv_transpose", shape=(16, 8, 2, 2), parameters=("w",)), "transposed conv", "2×2 16→8"),
        (Node(name="p", op="max_pool", kernel=(3, 3)), "max pool", "3×3"),
        (Node(name="n", op="bn", shape=(64,), parameters=("n",)), "batch norm", "64"),
        (Node(name="t", op="raw", shape=(1, 1, 8), parameters=("vit.class_token",)), "class_token", "1×1×8"),
        (Node(name="s", op="raw", parameters=("scale",)), "scale", ""),
        (Node(name="u", op="my_word"), "my word", ""),
        (Node(name="w", op="conv", shape=(10, 64), parameters=("w",), calls=3), "linear", "64→10, 3 calls"),
    ],
)
def test_what_a_row_says(node: Node, name: str, detail: str) -> None:
    words = words_of([[node]])
    assert (words.name, words.detail) == (name, detail)


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (999, "999"), (999.6, "1 k"), (1e6, "1 M"), (999_999, "1 M")])
def test_short_numbers(number: float, text: str) -> None:
    assert short(number) == text
