"""Words for the nodes of a computational graph: the 15 node types of DeepNets-1M, and those it has no word for.

The first 15 keep the order in which published graph hypernetworks number them (Knyazev et al., "Parameter Prediction
for Unseen Deep Architectures", 2021), because a checkpoint's embedding table is indexed by it. Every further word says
by `like` which of the 15 a network that knows no others should read instead.

Not covered: activations, dropout and reshapes. They are no nodes; edges pass through them.
"""

from __future__ import annotations

from dataclasses import dataclass

from trivet.core.errors import unknown_name

PRIMITIVES: tuple[str, ...] = (
    "max_pool",
    "avg_pool",
    "sep_conv",
    "dil_conv",
    "conv",
    "msa",
    "cse",
    "sum",
    "concat",
    "input",
    "bias",
    "bn",
    "ln",
    "pos_enc",
    "glob_avg",
)
"""Node types of DeepNets-1M; the position is the index that checkpoints use."""


@dataclass(frozen=True, slots=True)
class Word:
    """One node type.

    Examples:
        >>> word("group_norm").like, word("conv").index
        ('bn', 4)
    """

    name: str
    """What `Node.op` says."""
    index: int
    """Position in the vocabulary; below 15 exactly for the types of DeepNets-1M."""
    like: str = ""
    """Which of the 15 to read it as when only those are known; empty: none, and its parameters keep their values."""
    what: str = ""
    """What such a node is, in words."""


_MEANINGS: dict[str, str] = {
    "max_pool": "maximum over a window",
    "avg_pool": "mean over a window",
    "sep_conv": "weight of a grouped convolution",
    "dil_conv": "weight of a grouped and dilated convolution",
    "conv": "weight of a convolution or a linear layer",
    "msa": "softmax attention: weighted mean of values",
    "cse": "channels rescaled by a gate that looks at their global means (squeeze and excitation)",
    "sum": "sum of branches, such as a residual connection",
    "concat": "branches beside each other",
    "input": "what the network is given",
    "bias": "bias of the weight before it",
    "bn": "batch normalization with its scale and shift",
    "ln": "layer normalization with its scale and shift",
    "pos_enc": "learned positions that are added to a map or a sequence",
    "glob_avg": "mean over all positions",
}

_EXTENSIONS: tuple[tuple[str, str, str], ...] = (
    ("group_norm", "bn", "group normalization with its scale and shift"),
    ("instance_norm", "bn", "instance normalization with its scale and shift"),
    ("rms_norm", "ln", "normalization by the root mean square, with its scale"),
    ("conv_transpose", "conv", "weight of a transposed convolution, shape (in, out/groups, …)"),
    ("matmul_weight", "conv", "weight that activations are multiplied with from the left, shape (in, out)"),
    ("mul", "cse", "product of branches, element by element"),
    ("matmul", "msa", "matrix product of branches that is no softmax attention"),
    ("embedding", "", "table of which rows are looked up"),
    ("recurrent", "", "weights and biases of one layer and direction of an LSTM, a GRU or a plain recurrent network"),
    ("scale", "", "learned factors, such as a layer scale or the slope of a PReLU"),
    ("pos_bias", "", "learned relative positions that are added to attention scores"),
    ("raw", "", "any other bare parameter, such as a class token"),
)

_WORDS: dict[str, Word] = {
    name: Word(name, index, like=name, what=_MEANINGS[name]) for index, name in enumerate(PRIMITIVES)
}


def register_word(name: str, *, like: str = "", what: str = "") -> Word:
    """Add a node type after the existing ones.

    Args:
        name: The new word.
        like: Which of the 15 primitives to read it as; empty for none.
        what: What such a node is, in words.

    Returns:
        The word, with its index.

    Raises:
        ValueError: The name is taken or empty, or `like` is not one of the 15.
    """
    if not name or name in _WORDS:
        raise ValueError(f"word {name!r} is {'registered already' if name else 'empty'}; choose another name")
    if like and like not in PRIMITIVES:
        raise ValueError(unknown_name("primitive", like, PRIMITIVES))
    _WORDS[name] = Word(name, len(_WORDS), like=like, what=what)
    return _WORDS[name]


def word(name: str) -> Word:
    """The word called `name`; an unknown one raises `ValueError` with the nearest name."""
    if name not in _WORDS:
        raise ValueError(unknown_name("word", name, _WORDS))
    return _WORDS[name]


def words() -> tuple[Word, ...]:
    """Every word, by index.

    Examples:
        >>> [entry.name for entry in words()[:3]]
        ['max_pool', 'avg_pool', 'sep_conv']
    """
    return tuple(_WORDS.values())


for _name, _like, _what in _EXTENSIONS:
    register_word(_name, like=_like, what=_what)
