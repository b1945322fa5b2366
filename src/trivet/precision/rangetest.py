"""Precision range test: the fewest bits at which a model still learns, from a few steps at each level.

The published test (arXiv 2101.09868) raises the precision step by step and takes the first one whose training accuracy
rises by more than a preset threshold; the threshold was never published. Ours is relative to the same model at
`reference` bits, and defined completely:

    every level starts from the same parameters and sees the same batches, for S = windows · window steps
    L_k(b)   mean loss over window k at b bits, k = 1 … windows
    L_0      L_1(reference)
    p_k(b) = (L_0 − L_k(b)) / (L_0 − L_k(reference))        progress relative to the reference, 1 for the same

A level learns when p_k(b) ≥ threshold in each of the last `patience` windows. q_min is the first level, from below,
that learns; a loss that is not finite is no progress. Nothing can be said when the reference itself has not lowered its
loss by at least 5 % in each of those windows: then `q_min` is None and the sentence says so.

Cost: (levels tried + 1) · S training steps; with the defaults at most 96, less than 5 % of a 2,000-step run, and it
stops at the first level that learns. Batches are taken in order and not drawn, gradients are rounded at the reference's
bits with a seeded generator: the same call gives the same result on the same machine.

Not covered: whether the final quality suffers (that takes a study); the upper bound of the range; bits per layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn

from trivet.core.seeding import derive, seed_everything
from trivet.precision.checks import check_bits, plain_ints
from trivet.precision.controller import PrecisionController
from trivet.precision.inject import Filter, quantize_
from trivet.precision.rangeresult import LevelCurve, RangeTestResult
from trivet.precision.schedules import PrecisionSchedule

LEVELS = (2, 3, 4, 5, 6)
"""Levels tried, unless others are given."""

LEAST_PROGRESS = 0.05
"""Share of its first loss that the reference has to lose, or the test says nothing."""

Loss = Callable[[nn.Module, Any], torch.Tensor]
Optimize = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeTestConfig:
    """The constants of the test; see the module for the formula.

    Raises:
        ValueError: A constant out of range.

    Examples:
        >>> RangeTestConfig().steps
        16
    """

    levels: tuple[int, ...] = LEVELS
    """Levels tried, rising."""
    reference: int = 8
    """Bits that the levels are measured against; 32 for full precision."""
    window: int = 2
    """Steps whose losses are averaged."""
    windows: int = 8
    """Windows per level."""
    patience: int = 3
    """Windows at the end in each of which a level has to keep up."""
    threshold: float = 0.5
    """Least progress relative to the reference, in (0, 1]."""
    seed: int = 0
    """Seed of the initial parameters and of the rounding of gradients."""

    def __post_init__(self) -> None:
        plain_ints(self, "reference", "window", "windows", "patience", "seed")
        check_bits("reference", self.reference)
        highest = max(self.reference - 1, 1)
        levels = tuple(check_bits("levels", level, high=highest) for level in self.levels)
        object.__setattr__(self, "levels", levels)
        if not self.levels or list(self.levels) != sorted(set(self.levels)):
            raise ValueError(f"`levels={list(self.levels)}` must be rising numbers of bits; such as [2, 3, 4, 5, 6]")
        if self.window < 1 or self.windows < 2 or not 1 <= self.patience < self.windows or self.seed < 0:
            raise ValueError(
                f"`window={self.window}` must be ≥ 1, `windows={self.windows}` ≥ 2, `patience={self.patience}` in "
                f"[1, windows − 1] and `seed={self.seed}` ≥ 0"
            )
        if not 0 < self.threshold <= 1:
            raise ValueError(f"`threshold={self.threshold}` must lie in (0, 1]; 0.5 asks for half of the progress")

    @property
    def steps(self) -> int:
        """Training steps per level."""
        return self.window * self.windows


def range_test(
    make_model: Callable[[], nn.Module],
    batches: Iterable[Any],
    *,
    loss: Loss | None = None,
    optimizer: Optimize | None = None,
    filter_fn: Filter | None = None,
    config: RangeTestConfig | None = None,
) -> RangeTestResult:
    """Find the fewest bits at which a model learns.

    Args:
        make_model: Makes the model; called once a level, with torch's generator seeded alike.
        batches: Batches in order, at least `config.steps` of them; the first ones are kept in memory.
        loss: `loss(model, batch)` → scalar; left out: cross-entropy of `model(batch[0])` against `batch[1]`.
        optimizer: Makes the optimizer of a model; left out: Adam with a rate of 0.01.
        filter_fn: Which layers are quantized, as in `quantize_`.
        config: Constants of the test.

    Raises:
        ValueError: Too few batches, or a model without layers to quantize.

    Examples:
        >>> x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> make = lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> result = range_test(make, [(x, (x[:, 0] > 0).long())] * 16)
        >>> result.q_min in (2, 3, 4), result.steps <= 96
        (True, True)
    """
    config = config or RangeTestConfig()
    held = list(islice(batches, config.steps))
    if len(held) < config.steps:
        raise ValueError(f"`batches` holds {len(held)}; the test takes {config.steps} (windows · window), give more")
    ask = loss or _cross_entropy
    make_optimizer = optimizer or _adam

    def curve(bits: int) -> LevelCurve:
        losses = _train(make_model, held, bits, ask, make_optimizer, filter_fn, config)
        means = [_mean(losses[at : at + config.window]) for at in range(0, config.steps, config.window)]
        return LevelCurve(bits=bits, losses=tuple(losses), windows=tuple(means))

    reference = curve(config.reference)
    start = reference.windows[0]
    able = all(start - value >= LEAST_PROGRESS * abs(start) for value in reference.windows[-config.patience :])
    found: list[LevelCurve] = []
    q_min: int | None = None
    for bits in config.levels if able else ():
        level = curve(bits).against(reference)
        found.append(level)
        if all(value >= config.threshold for value in level.progress[-config.patience :]):
            q_min = bits
            break
    return RangeTestResult(
        q_min=q_min,
        reference_learns=able,
        reference=reference.against(reference),
        levels=tuple(found),
        threshold=config.threshold,
        patience=config.patience,
        window=config.window,
        steps=config.steps * (len(found) + 1),
        seed=config.seed,
    )


def _train(
    make_model: Callable[[], nn.Module],
    batches: Sequence[Any],
    bits: int,
    loss: Loss,
    make_optimizer: Optimize,
    filter_fn: Filter | None,
    config: RangeTestConfig,
) -> list[float]:
    """Loss of every step at constant bits; not a number from the first step on whose loss is not finite."""
    seed_everything(derive(config.seed, "range-test"))
    model = quantize_(make_model(), filter_fn)
    model.train()
    schedule = PrecisionSchedule.static(bits, total_steps=len(batches))
    controller = PrecisionController(model, schedule, grad_bits=config.reference, seed=config.seed, rank=0)
    optimizer = make_optimizer(model)
    losses: list[float] = []
    for batch in batches:
        optimizer.zero_grad()
        value = loss(model, batch)
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]):
            break
        value.backward()
        optimizer.step()
        controller.step()
    return losses + [math.nan] * (len(batches) - len(losses))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _cross_entropy(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)
