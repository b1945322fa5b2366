"""What the rows of a picture say: short names of operations, their shapes, numbers, and colors by kind of operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trivet.graph.graph import Node

NAMES = {
    "max_pool": "max pool",
    "avg_pool": "mean pool",
    "glob_avg": "global mean",
    "dil_conv": "dilated conv",
    "conv_transpose": "transposed conv",
    "matmul_weight": "linear",
    "msa": "attention",
    "cse": "squeeze-excite",
    "bn": "batch norm",
    "ln": "layer norm",
    "rms_norm": "RMS norm",
    "pos_enc": "positions",
    "pos_bias": "position bias",
}
"""Names that are not just the word without its underscore."""

KINDS = (
    ("input", "#5f6b7a", ("input",)),
    ("convolution", "#2b7fc4", ("conv", "conv_transpose")),
    ("grouped convolution", "#0c9a76", ("sep_conv", "dil_conv")),
    ("linear", "#7468e6", ("linear", "matmul_weight")),
    ("attention", "#d4610c", ("msa", "matmul")),
    ("recurrent", "#d4610c", ("recurrent",)),
    ("normalization", "#8a919c", ("bn", "ln", "group_norm", "instance_norm", "rms_norm")),
    ("pooling", "#a8861a", ("max_pool", "avg_pool", "glob_avg")),
    ("gate, product", "#c4475a", ("cse", "mul")),
    ("sum, concat", "#4a5361", ("sum", "concat")),
    ("other parameters", "#b3559b", ("embedding", "scale", "pos_enc", "pos_bias", "raw", "bias")),
)
"""Kind, color and words; what stands in none is of the last kind."""


@dataclass(frozen=True, slots=True)
class Words:
    """What one row says."""

    name: str
    detail: str
    parameters: str
    output: str


def kind_of(node: Node) -> int:
    """Position in `KINDS`."""
    op = "linear" if node.op == "conv" and len(node.shape) == 2 else node.op
    return next((index for index, (_, _, ops) in enumerate(KINDS) if op in ops), len(KINDS) - 1)


def words_of(copies: Sequence[Sequence[Node]], batch: int = 1) -> Words:
    """The texts for a cell.

    Args:
        copies: Nodes of each copy: a weight and perhaps its bias; all copies have the same operations.
        batch: Leading dimension of outputs that is left out.

    Examples:
        >>> words_of([[Node(name="w", op="conv", shape=(64, 3, 7, 7), size=9408, output=(1, 64, 112, 112))]])
        Words(name='conv', detail='7×7 3→64', parameters='9.41 k', output='64×112×112')
    """
    first = copies[0][0]
    name = NAMES.get(first.op, first.op.replace("_", " "))
    if first.op == "conv" and len(first.shape) == 2:
        name = "linear"
    if first.op == "sep_conv":
        name = "depthwise conv" if all(nodes[0].shape[1:2] == (1,) for nodes in copies) else "grouped conv"
    if first.op == "raw" and first.parameters:
        name = first.parameters[0].rpartition(".")[2]
    detail = _detail([nodes[0] for nodes in copies])
    if len(copies[0]) > 1:
        detail += " + bias"
    if first.calls > 1:
        detail += f", {first.calls} calls"
    counts = [sum(node.size for node in nodes) for nodes in copies]
    low, high = min(counts), max(counts)
    count = short(high) if low == high else f"{short(low)} – {short(high)}"
    outputs = [_without_batch(nodes[-1].output, batch) for nodes in copies]
    return Words(name, detail.strip(), count if high else "", _spread(outputs, "×"))


def _detail(nodes: Sequence[Node]) -> str:
    first = nodes[0]
    shapes = [node.shape for node in nodes]
    if first.op in ("max_pool", "avg_pool"):
        return "×".join(map(str, first.kernel))
    if first.op in ("conv_transpose", "matmul_weight"):
        shapes = [(shape[1], shape[0], *shape[2:]) if len(shape) > 1 else shape for shape in shapes]
    if first.op in ("sep_conv", "dil_conv") and all(shape[1:2] == (1,) for shape in shapes):
        return f"{'×'.join(map(str, first.shape[2:]))} {_spread([shape[:1] for shape in shapes], '')}"
    if first.op in ("conv", "conv_transpose", "matmul_weight", "sep_conv", "dil_conv") and len(first.shape) >= 2:
        kernel = "×".join(map(str, shapes[0][2:]))
        return f"{kernel} {_spread([(shape[1], shape[0]) for shape in shapes], '→')}".strip()
    return _spread(shapes, "×")


def _spread(shapes: Sequence[tuple[int, ...]], sign: str) -> str:
    """Shapes as one text; where they differ, from the least to the greatest.

    Examples:
        >>> _spread([(64, 32), (128, 32)], "→")
        '64…128→32'
    """
    if len({len(shape) for shape in shapes}) > 1:
        return "various"
    columns = [(min(column), max(column)) for column in zip(*shapes, strict=True)]
    return sign.join(str(low) if low == high else f"{low}…{high}" for low, high in columns)


def _without_batch(shape: tuple[int, ...], batch: int) -> tuple[int, ...]:
    return shape[1:] if len(shape) > 1 and shape[0] == batch else shape


def short(number: float) -> str:
    """A number with three digits and a unit prefix.

    Examples:
        >>> short(64), short(36_864), short(11_689_512), short(4_089_184_256)
        ('64', '36.9 k', '11.7 M', '4.09 G')
    """
    for unit in ("", " k", " M", " G", " T"):
        if number < 999.5 or unit == " T":
            break
        number /= 1000
    return f"{number:.3g}{unit}"


def text_width(text: str, size: float) -> float:
    """Pixels a text takes at most in the usual sans-serif fonts; DejaVu Sans is the widest of them.

    Examples:
        >>> text_width("conv 3×3", 10) < text_width("conv 3×3", 11) < 60
        True
    """
    return size * sum(_advance(sign) for sign in text)


def _advance(sign: str) -> float:
    if sign in _ADVANCE:
        return _ADVANCE[sign]
    return 0.68 if sign.isupper() else 0.62


_ADVANCE: dict[str, float] = {
    **dict.fromkeys("iljI.,:;|'! ", 0.32),
    **dict.fromkeys("ftr()[]-/", 0.4),
    **dict.fromkeys("mwMWG…", 0.92),
    **dict.fromkeys("→×+–", 0.84),
    **dict.fromkeys("0123456789", 0.637),
}
