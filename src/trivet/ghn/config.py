"""What a graph hypernetwork is made of: encoder, decoder and sizes, for GHN-1, GHN-2, GHN-3 and variants beside them.

Zhang, Ren, Urtasun, "Graph HyperNetworks for Neural Architecture Search" (GHN-1, 2019); Knyazev et al., "Parameter
Prediction for Unseen Deep Architectures" (GHN-2, 2021); Knyazev et al., "Can We Scale Transformers to Predict
Parameters of Diverse ImageNet Models?" (GHN-3, 2023); Zhou et al., LoGAH (low-rank decoder, 2024).

Not covered: how a hypernetwork is trained. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from trivet.core.errors import unknown_name

Encoder = Literal["gated", "graphormer", "mlp"]
Decoder = Literal["conv", "linear", "mlp", "low_rank"]
Head = Literal["predict", "keep", "resize"]
AnchorName = Literal["none", "identity"]
TaskName = Literal["none", "set"]

PRIMITIVE_COUNT = 15
"""Node types of DeepNets-1M: the words that published hypernetworks know."""

MAX_REACH = 254
"""Longest distance that a graphormer's table of distances holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GHNConfig:
    """Structure of a graph hypernetwork; everything but its weights.

    Examples:
        >>> GHNConfig.named("ghn3-s", num_classes=100).layers
        5
        >>> GHNConfig(encoder="graphormer", heads=7)
        Traceback (most recent call last):
        ...
        ValueError: `hid=32` must be a multiple of `heads=7`; change one of them
    """

    encoder: Encoder = "gated"
    """How nodes learn of their graph: "gated" (GHN-1, GHN-2), "graphormer" (GHN-3) or "mlp" (not at all)."""
    decoder: Decoder = "conv"
    """How a node's state becomes a weight: "conv" (GHN-2), "linear" (GHN-3), "mlp", or "low_rank" (as in LoGAH)."""
    hid: int = 32
    """Numbers in a node's state; a multiple of 4, as four sizes share it."""
    layers: int = 1
    """Layers of the graphormer; elsewhere 1."""
    heads: int = 8
    """Attention heads of the graphormer."""
    virtual_edges: int = 50
    """Longest distance over which nodes exchange messages, up to 254; 0 or 1: only along edges."""
    weight_norm: bool = True
    """Scale what is decoded by its fan-in, and squash scales and biases."""
    layer_norm: bool = True
    """Normalize node states before they are decoded."""
    max_shape: tuple[int, int, int, int] = (64, 64, 11, 11)
    """Largest weight that is decoded (out, in, height, width); larger ones repeat it."""
    num_classes: int = 10
    """Classes of the data it was trained on: rows of the classifier that it predicts."""
    rank: int = 0
    """Rank of what the low-rank decoder makes; 0 with every other decoder."""
    anchor: AnchorName = "none"
    """What decoded weights are added to: "identity" is a fixed weight that passes inputs on, with which networks of any
    structure agree on what a channel means; "none" is as published."""
    task: TaskName = "none"
    """What is known of the task beside the graph: "set" are a few labelled images of any number of classes, given with
    each prediction; "none" is as published: one task, of `num_classes` classes."""
    words: int = PRIMITIVE_COUNT
    """Node types with an embedding of their own; further words are read as a similar one of the published 15."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_shape", tuple(self.max_shape))
        names = (("encoder", Encoder), ("decoder", Decoder), ("anchor", AnchorName), ("task", TaskName))
        for name, allowed in ((name, get_args(kind)) for name, kind in names):
            if getattr(self, name) not in allowed:
                raise ValueError(unknown_name(name, str(getattr(self, name)), allowed))
        for name in ("hid", "layers", "heads", "num_classes"):
            _at_least(name, getattr(self, name), 1)
        for name in ("virtual_edges", "rank"):
            _at_least(name, getattr(self, name), 0)
        _at_least("words", self.words, PRIMITIVE_COUNT)
        if self.virtual_edges > MAX_REACH:
            raise ValueError(f"`virtual_edges={self.virtual_edges}` must be at most {MAX_REACH}")
        if self.hid % 4:
            raise ValueError(f"`hid={self.hid}` must be a multiple of 4; four sizes of a weight share it")
        if self.encoder == "graphormer" and self.hid % self.heads:
            raise ValueError(f"`hid={self.hid}` must be a multiple of `heads={self.heads}`; change one of them")
        if len(self.max_shape) != 4 or any(not isinstance(n, int) or n < 1 for n in self.max_shape):
            raise ValueError(f"`max_shape={self.max_shape}` must be four whole numbers ≥ 1: out, in, height, width")
        if self.max_shape[2] != self.max_shape[3]:
            raise ValueError(f"`max_shape={self.max_shape}` must end in two equal numbers; make the kernel square")
        if (self.decoder == "low_rank") != (self.rank > 0):
            raise ValueError(f"`rank={self.rank}` must be ≥ 1 with `decoder='low_rank'` and 0 without")

    @classmethod
    def named(
        cls, name: str, *, num_classes: int = 10, max_shape: tuple[int, int, int, int] | None = None
    ) -> GHNConfig:
        """A published configuration.

        Args:
            name: "ghn1", "mlp", "ghn2", "ghn3-t", "ghn3-s", "ghn3-l" or "ghn3-xl"; see `names()`.
            num_classes: Classes of its data, 10 for CIFAR-10, 1000 for ImageNet.
            max_shape: Largest weight that is decoded. By default twice `hid` (GHN-3: `hid`, at least 64) channels, and
                kernels up to 11 × 11, or 16 × 16 for GHN-3 and from 1000 classes on.

        Raises:
            ValueError: There is no such name.

        Examples:
            >>> GHNConfig.named("ghn2", num_classes=1000).max_shape
            (64, 64, 16, 16)
        """
        if name not in _NAMED:
            raise ValueError(unknown_name("hypernetwork", name, _NAMED))
        given = _NAMED[name]
        if max_shape is None:
            channels = max(64, int(given.get("hid", 32)))
            kernel = 16 if num_classes >= 1000 or name.startswith("ghn3") else 11
            max_shape = (channels, channels, kernel, kernel)
        return cls(**given, num_classes=num_classes, max_shape=max_shape)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names that `named` knows.

        Examples:
            >>> GHNConfig.names()[:3]
            ('ghn1', 'mlp', 'ghn2')
        """
        return tuple(_NAMED)

    @property
    def virtual(self) -> bool:
        """Whether nodes exchange messages over more than one edge."""
        return self.virtual_edges > 1

    @property
    def reach(self) -> int:
        """Longest distance that an encoder sees, at least 1."""
        return max(1, self.virtual_edges)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        content = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {**content, "max_shape": list(self.max_shape)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> GHNConfig:
        """The configuration that `to_dict` wrote.

        Raises:
            ValueError: A key is unknown, or a value is not allowed.

        Examples:
            >>> GHNConfig.from_dict({"hidden": 32})
            Traceback (most recent call last):
            ...
            ValueError: unknown key 'hidden'; allowed: encoder, decoder, hid, ...
        """
        allowed = [entry.name for entry in fields(cls)]
        for key in content:
            if key not in allowed:
                raise ValueError(unknown_name("key", key, allowed))
        return cls(**content)


def _at_least(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"`{name}={value!r}` must be a whole number ≥ {low}")


def _graphormer(hid: int, layers: int, heads: int) -> dict[str, Any]:
    return {"encoder": "graphormer", "decoder": "linear", "hid": hid, "layers": layers, "heads": heads}


_NAMED: dict[str, dict[str, Any]] = {
    "ghn1": {"virtual_edges": 0, "weight_norm": False, "layer_norm": False},
    "mlp": {"encoder": "mlp"},
    "ghn2": {},
    "ghn3-t": _graphormer(64, 3, 8),
    "ghn3-s": _graphormer(128, 5, 16),
    "ghn3-l": _graphormer(256, 12, 16),
    "ghn3-xl": _graphormer(384, 24, 16),
}
