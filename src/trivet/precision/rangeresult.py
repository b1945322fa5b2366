"""The result of a precision range test: the level found, the curves, a sentence, a picture. Loads no torch.

Not covered: the test itself, which is `rangetest.py`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.core.io import replacing

if TYPE_CHECKING:
    import altair as alt

SUFFIXES = (".svg", ".png", ".html", ".json")
COLORS = ("#7468e6", "#2b7fc4", "#0c9a76", "#9a7d12", "#d4610c", "#c4475a", "#b3559b")


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelCurve:
    """How the loss fell at one level.

    Examples:
        >>> reference = LevelCurve(bits=8, losses=(2.0, 1.0), windows=(2.0, 1.0))
        >>> LevelCurve(bits=3, losses=(2.0, 1.2), windows=(2.0, 1.2)).against(reference).progress
        (0.0, 0.8)
    """

    bits: int
    """Bits of the forward pass."""
    losses: tuple[float, ...]
    """Loss of every step; NaN from the first one on that was not finite."""
    windows: tuple[float, ...]
    """Mean loss of every window."""
    progress: tuple[float, ...] = ()
    """Progress of every window relative to the reference; 0 where the reference has made none."""

    def against(self, reference: LevelCurve) -> LevelCurve:
        """The same curve with its progress relative to a reference's."""
        start = reference.windows[0]
        pairs = zip(self.windows, reference.windows, strict=True)
        return replace(self, progress=tuple(_relative(start - own, start - theirs) for own, theirs in pairs))


def _relative(own: float, reference: float) -> float:
    return own / reference if math.isfinite(own) and reference > 0 else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeTestResult:
    """What a precision range test found."""

    q_min: int | None
    """Fewest bits at which the model learns; None when no level tried does, or the reference does not."""
    reference_learns: bool
    """Whether the model learns at all in so few steps at the reference's bits."""
    reference: LevelCurve
    """The curve that the others are measured against."""
    levels: tuple[LevelCurve, ...]
    """Curves of the levels that were tried, rising."""
    threshold: float
    """Least relative progress."""
    patience: int
    """Windows at the end that had to keep up."""
    window: int
    """Steps per window."""
    steps: int
    """Training steps that the whole test took."""
    seed: int
    """Seed."""

    @property
    def sentence(self) -> str:
        """The result in plain English."""
        reference = self.reference.bits
        per_level = len(self.reference.losses)
        cost = f"{self.steps} training steps in all"
        if not self.reference_learns:
            return (
                f"Nothing can be said: at {reference} bits the loss did not fall by 5 % within {per_level} steps "
                f"({self.reference.windows[0]:.3g} to {self.reference.windows[-1]:.3g}); raise the learning rate "
                f"or the number of windows ({cost})."
            )
        last = f"each of the last {self.patience} windows of {self.window} steps"
        if self.q_min is None:
            tried = ", ".join(str(level.bits) for level in self.levels)
            return (
                f"No level of {tried} bits keeps up: none reaches {self.threshold:.0%} of the loss reduction of "
                f"{reference} bits in {last} ({cost})."
            )
        least = min(self.levels[-1].progress[-self.patience :])
        below = self.levels[-2] if len(self.levels) > 1 else None
        word = f"; at {below.bits} bits {min(below.progress[-self.patience :]):.0%}" if below else ""
        return (
            f"Learning happens from {self.q_min} bits on: at least {least:.0%} of the loss reduction of {reference} "
            f"bits in {last}, asked for are {self.threshold:.0%}{word} ({cost})."
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields and the sentence as plain values; None where a number is not finite."""
        return _plain({**asdict(self), "sentence": self.sentence})

    def plot(self, path: Path | str) -> None:
        """Draw the loss curves; the format follows the suffix (.svg, .png, .html or .json).

        Raises:
            ValueError: Another suffix.
        """
        target = Path(path)
        if target.suffix not in SUFFIXES:
            raise ValueError(f"`path={str(path)!r}` must end in {', '.join(SUFFIXES)}; such as range-test.svg")
        more: dict[str, Any] = {"inline": True} if target.suffix == ".html" else {"scale_factor": 2}
        with replacing(target) as beside:
            self._chart().save(str(beside), **more)

    def _chart(self) -> alt.TopLevelMixin:
        import altair as alt

        curves = [*self.levels, self.reference]
        names = [f"{curve.bits} bits" for curve in curves]
        names[-1] += " (reference)"
        colors = [*COLORS[: len(self.levels)], "#7b828c"]
        rows = [
            {"step": self.window * (index + 0.5), "loss": value, "level": name}
            for name, curve in zip(names, curves, strict=True)
            for index, value in enumerate(curve.windows)
            if math.isfinite(value)
        ]
        color = alt.Color("level:N", scale=alt.Scale(domain=names, range=colors), legend=alt.Legend(title=None))
        lines = alt.Chart(alt.Data(values=rows)).encode(
            x=alt.X("step:Q", title="training step"),
            y=alt.Y("loss:Q", title=f"loss, mean of {self.window} steps", scale=alt.Scale(zero=False)),
            color=color,
        )
        found = "no level" if self.q_min is None else f"from {self.q_min} bits on"
        title = alt.TitleParams(f"Precision range test: learning happens {found}", anchor="start", fontSize=16)
        chart = alt.layer(lines.mark_line(strokeWidth=2), lines.mark_point(filled=True, size=40, opacity=1))
        return chart.properties(width=560, height=320, title=title, background="white", padding=16)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
