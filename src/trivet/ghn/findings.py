"""What `diagnose` found: numbers of each layer, which layers break the prediction, and both as text.

Nothing here imports torch, and nothing here is measured; see `diagnosis` for what the numbers mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

SHOWN = 12
"""Layers of a printed diagnosis; `table` gives all."""
REPLACEMENTS = {"random": "a random draw", "zeros": "zeros", "twin": "its trained twin"}
"""What a layer is replaced by, as sentences say it."""
_MISSING = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and standard deviation of the numbers of a vector."""

    mean: float
    """Mean."""
    deviation: float
    """Standard deviation, with n in the denominator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What replacing one layer does to the network; differences from the network as predicted."""

    loss: float
    """Of the mean cross-entropy, in nats."""
    accuracy: float
    """Of the share of images classified right."""
    low: float
    """Lower end of the interval of `accuracy`; see `diagnosis`."""
    high: float
    """Its upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFinding:
    """One layer: a module that holds parameters of its own, at least one of which was predicted."""

    name: str
    """As in `named_modules()`; for parameters of the whole module, the parameter's own name."""
    ops: tuple[str, ...]
    """Words of its nodes in the graph."""
    shape: tuple[int, ...]
    """Shape of its largest predicted tensor."""
    parameters: int
    """Numbers predicted for it."""
    norm: float | None = None
    """Standard deviation of its weight over √(2 / fan-in); 1 is a Kaiming draw's. None without a weight, as below."""
    effective_rank: float | None = None
    """Of its weight as a matrix of outputs × inputs."""
    random_rank: float | None = None
    """The same of a Kaiming draw of this shape."""
    max_rank: int | None = None
    """The smaller side of that matrix."""
    distinct_rows: int | None = None
    """Rows of that matrix that differ from each other."""
    rows: int | None = None
    """Its rows."""
    scale: Spread | None = None
    """Of a normalization's scale."""
    bias: Spread | None = None
    """Of a bias, or of a normalization's shift."""
    output_std: float | None = None
    """Standard deviation of what the layer puts out, over images, channels and places; None if it was not seen."""
    dead_inputs: float | None = None
    """Share of the channels reaching it that are zero for every image; None if they were not seen."""
    random: Change | None = None
    """Replaced by a Kaiming draw, mean over draws."""
    zeros: Change | None = None
    """Replaced by zeros."""
    twin: Change | None = None
    """Replaced by the trained twin's layer; None without a twin."""

    def changes(self) -> dict[str, Change]:
        """The replacements that were tried: "random", "zeros", "twin"."""
        found = {name: getattr(self, name) for name in REPLACEMENTS}
        return {name: change for name, change in found.items() if change is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A layer that the network is better without."""

    layer: str
    """Its name."""
    replacement: str
    """The best replacement: "random" or "zeros"."""
    accuracy: float
    """Accuracy with it."""
    change: Change
    """Against the prediction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbor:
    """A training architecture near the diagnosed one."""

    name: str
    """Its name, as given."""
    similarity: float
    """Cosine between the mean node states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What `diagnose` found; prints as verdict and a short table.

    Examples:
        >>> gain = Change(loss=-0.9, accuracy=0.17, low=0.1, high=0.24)
        >>> layer = LayerFinding(name="stem", ops=("conv",), shape=(8, 3, 3, 3), parameters=216, random=gain)
        >>> found = Diagnosis(layers=(layer,), accuracy=0.31, loss=2.1, random_accuracy=0.12, random_loss=2.4,
        ...                   images=512, batch_size=64, draws=3, classes=10)
        >>> print(found.verdict)
        One layer breaks this prediction: replacing stem by a random draw raises accuracy from 0.310 to 0.480 (+0.170,
        simultaneous 95 % interval +0.100 to +0.240; n = 512 images, 3 draws).
    """

    layers: tuple[LayerFinding, ...]
    """In the order of the module."""
    accuracy: float
    """Of the network as predicted."""
    loss: float
    """Of the network as predicted: mean cross-entropy in nats."""
    random_accuracy: float
    """With Kaiming draws in all of these layers at once, mean over draws."""
    random_loss: float
    """The same for the loss."""
    images: int
    """Labelled images behind every accuracy."""
    batch_size: int
    """Images a batch, whose statistics batch normalization takes."""
    draws: int
    """Kaiming draws behind every mean over draws."""
    classes: int
    """Outputs of the network."""
    answered: int = 0
    """How many of them are its answer for some image; 0 if not counted."""
    twin_accuracy: float | None = None
    """Of the trained twin as a whole."""
    together: float | None = None
    """Accuracy with all culprits replaced at once; None for fewer than two."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Parameters that were not predicted → why."""
    neighbors: tuple[Neighbor, ...] = ()
    """Nearest training architectures, the nearest first."""
    pool_similarity: tuple[float, ...] = ()
    """Of each training architecture that was looked at: cosine with the nearest of the others."""

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """Layers that break the prediction, the worst first; see `find_culprits`."""
        return find_culprits(self.layers, self.accuracy)

    @property
    def verdict(self) -> str:
        """Which layers break the prediction, in plain sentences."""
        return " ".join(_sentences(self))

    def table(self) -> str:
        """Every layer on a line."""
        return "\n".join(text_table(HEADERS, [layer_cells(layer) for layer in self.layers]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        said = {"verdict": self.verdict, "familiarity": familiarity(self)}
        return {**said, "culprits": [asdict(one) for one in self.culprits], **asdict(self), "kept": dict(self.kept)}

    def __str__(self) -> str:
        """Accuracies, verdict, the layers that matter most, neighbors."""
        lines = [_accuracies(self), *_sentences(self), ""]
        ranked = sorted(self.layers, key=_size, reverse=True)[:SHOWN]
        lines += text_table(HEADERS, [layer_cells(layer) for layer in self.layers if layer in ranked])
        if len(self.layers) > len(ranked):
            lines.append(f"… of {len(self.layers)} layers, those whose replacement changes most; `table()` gives all")
        if self.neighbors:
            lines += ["", "Nearest training architectures (cosine of mean node states):"]
            lines += [f"  {one.similarity:.4f}  {one.name}" for one in self.neighbors]
            lines.append(f"  {familiarity(self)}")
        if self.kept:
            reasons = Counter(self.kept.values()).most_common()
            lines += ["", "Not predicted, with the module's own values:"]
            lines += [f"  {count} tensor{'s' * (count > 1)}: {reason}" for reason, count in reasons]
        return "\n".join(lines)


def find_culprits(layers: Iterable[LayerFinding], accuracy: float) -> tuple[Culprit, ...]:
    """Layers whose replacement by a random draw or by zeros raises accuracy beyond chance, the worst first.

    Beyond chance: the lower end of the change's interval is above 0.

    Args:
        layers: With their changes.
        accuracy: Of the network as predicted.
    """
    found = []
    for layer in layers:
        better = [(name, change) for name, change in layer.changes().items() if name != "twin" and change.low > 0]
        if better:
            name, change = max(better, key=lambda pair: pair[1].accuracy)
            found.append(
                Culprit(layer=layer.name, replacement=name, accuracy=accuracy + change.accuracy, change=change)
            )
    return tuple(sorted(found, key=lambda one: -one.change.accuracy))


def _accuracies(found: Diagnosis) -> str:
    error = math.sqrt(found.accuracy * (1 - found.accuracy) / found.images)
    text = (
        f"accuracy {found.accuracy:.3f} ± {error:.3f} (s.e., n = {found.images} images) and loss {found.loss:.3f} as "
        f"predicted; with all {len(found.layers)} layers drawn at random {found.random_accuracy:.3f} and "
        f"{found.random_loss:.3f}"
    )
    return text if found.twin_accuracy is None else f"{text}; trained twin {found.twin_accuracy:.3f}"


def _sentences(found: Diagnosis) -> list[str]:
    culprits = found.culprits
    if not culprits:
        return _nobody(found)
    count = "One layer breaks" if len(culprits) == 1 else f"{len(culprits)} layers break"
    whole = f"simultaneous 95 % interval {{}}; n = {found.images} images, {found.draws} draws"
    parts = []
    for number, one in enumerate(culprits[:SHOWN]):
        interval = f"{one.change.low:+.3f} to {one.change.high:+.3f}"
        about = whole.format(interval) if not number else interval
        parts.append(
            f"replacing {one.layer} by {REPLACEMENTS[one.replacement]} raises accuracy from {found.accuracy:.3f} to "
            f"{one.accuracy:.3f} ({one.change.accuracy:+.3f}, {about})"
        )
    sentences = [f"{count} this prediction: {'; '.join(parts)}."]
    if len(culprits) > SHOWN:
        sentences.append(f"{len(culprits) - SHOWN} more follow in the table.")
    if found.together is not None:
        sentences.append(f"Replacing all {len(culprits)} at once gives {found.together:.3f}.")
    return sentences


def _nobody(found: Diagnosis) -> list[str]:
    """What to say when no single layer is to blame."""
    tried = [(layer, name, layer.changes()[name]) for layer in found.layers for name in ("random", "zeros")
             if name in layer.changes()]  # fmt: skip
    sentences = ["No single layer breaks this prediction."]
    if tried:
        layer, name, change = max(tried, key=lambda row: row[2].accuracy)
        sentences = [
            f"No single layer breaks this prediction: the best replacement, {layer.name} by {REPLACEMENTS[name]}, "
            f"changes accuracy by {change.accuracy:+.3f} (simultaneous 95 % interval {change.low:+.3f} to "
            f"{change.high:+.3f}; n = {found.images} images, {found.draws} draws)."
        ]
    guess = 1 / found.classes
    same = " and it answers the same class for every image" if found.answered == 1 else ""
    if found.accuracy <= guess + 2 * math.sqrt(guess * (1 - guess) / found.images):
        sentences.append(
            f"Its accuracy of {found.accuracy:.3f} is no better than guessing ({guess:.3f}){same}, so the fault lies "
            "in several layers at once, or in how they fit together."
        )
    return sentences


def familiarity(found: Diagnosis) -> str:
    """How the similarity to the nearest training architecture compares with theirs to each other."""
    if not found.neighbors or len(found.pool_similarity) < 2:
        return ""
    nearest = found.neighbors[0].similarity
    farther = sum(value < nearest for value in found.pool_similarity)
    count = len(found.pool_similarity)
    return (
        f"among themselves the {count} training architectures looked at have {median(found.pool_similarity):.4f} to "
        f"their nearest (median); {farther} of {count} lie farther from the others than this one from them"
    )


HEADERS = (
    "layer", "ops", "shape", "norm", "rank", "random", "max", "rows", "scale", "bias", "out std", "dead in",
    "Δ random", "Δ zeros", "Δ twin",
)  # fmt: skip
"""Columns of `table`: Δ is the change of accuracy when the layer is replaced."""


def layer_cells(layer: LayerFinding) -> tuple[str, ...]:
    """One layer as text, in the order of `HEADERS`."""
    rows = _MISSING if layer.rows is None else f"{layer.distinct_rows}/{layer.rows}"
    dead = _MISSING if layer.dead_inputs is None else f"{100 * layer.dead_inputs:.0f} %"
    changes = [
        _number(None if each is None else each.accuracy, "+.3f") for each in (layer.random, layer.zeros, layer.twin)
    ]
    return (
        layer.name, "+".join(layer.ops), "×".join(map(str, layer.shape)) or "1", _number(layer.norm, ".2f"),
        _number(layer.effective_rank, ".1f"), _number(layer.random_rank, ".1f"),
        _MISSING if layer.max_rank is None else str(layer.max_rank), rows, _spread(layer.scale), _spread(layer.bias),
        _number(layer.output_std, ".3g"), dead, *changes,
    )  # fmt: skip


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines; the first three columns are set flush left, and columns without a number are left out.

    Examples:
        >>> text_table(("layer", "ops", "shape", "n", "m"), [("a", "conv", "2×2", "–", "5")])
        ['layer  ops   shape  m', 'a      conv  2×2    5']
    """
    chosen = [i for i in range(len(headers)) if i < 3 or any(row[i] != _MISSING for row in rows)]
    widths = {i: max(len(row[i]) for row in (headers, *rows)) for i in chosen}
    return [
        "  ".join(row[i].ljust(widths[i]) if i < 3 else row[i].rjust(widths[i]) for i in chosen).rstrip()
        for row in (headers, *rows)
    ]


def _size(layer: LayerFinding) -> float:
    """How much replacing a layer changes, at most."""
    return max((abs(change.accuracy) for change in layer.changes().values()), default=0.0)


def _number(value: float | None, form: str) -> str:
    return _MISSING if value is None or not math.isfinite(value) else format(value, form)


def _spread(value: Spread | None) -> str:
    return _MISSING if value is None else f"{value.mean:.2f}±{value.deviation:.2f}"
