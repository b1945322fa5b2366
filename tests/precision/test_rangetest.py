"""The precision range test: its formula, its cost, its repeatability, and what it says when nothing can be said."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trivet.precision import RangeTestConfig, range_test
from trivet.precision.rangeresult import LevelCurve, RangeTestResult


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))


def batches(count: int = 16, seed: int = 0) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        x = torch.randn(64, 8, generator=generator)
        made.append((x, (x[:, 0] + x[:, 1] > 0).long()))
    return made


def curve(bits: int, windows: tuple[float, ...]) -> LevelCurve:
    return LevelCurve(bits=bits, losses=windows, windows=windows)


def test_progress_follows_the_formula() -> None:
    reference = curve(8, (2.0, 1.5, 1.0))
    assert curve(3, (2.2, 1.75, 1.2)).against(reference).progress == pytest.approx((0.0, 0.5, 0.8))
    assert reference.against(reference).progress == (0.0, 1.0, 1.0)
    assert curve(2, (2.0, math.nan, math.nan)).against(reference).progress == (0.0, 0.0, 0.0)


def test_finds_a_level_cheaply_and_repeats_exactly() -> None:
    result = range_test(make_model, batches())
    assert result.q_min in (2, 3, 4)
    assert result.steps <= 0.05 * 2000
    assert result.steps == 16 * (len(result.levels) + 1)
    assert result == range_test(make_model, batches())
    assert result.levels[-1].bits == result.q_min
    last = result.levels[-1]
    assert min(last.progress[-3:]) >= result.threshold
    windows = [sum(last.losses[i : i + 2]) / 2 for i in range(0, 16, 2)]
    assert last.windows == pytest.approx(windows)
    for level in result.levels[:-1]:
        assert min(level.progress[-3:]) < result.threshold


def test_all_levels_start_from_the_same_parameters_and_leave_the_generator_seeded() -> None:
    seen: list[torch.Tensor] = []

    def make() -> nn.Module:
        model = make_model()
        seen.append(next(model.parameters()).detach().clone())
        return model

    range_test(make, batches(), config=RangeTestConfig(threshold=1.0, levels=(2, 3)))
    assert len(seen) >= 2
    assert all(torch.equal(seen[0], other) for other in seen)


def test_a_model_that_does_not_learn_gives_no_level() -> None:
    def still(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1e-9)

    result = range_test(make_model, batches(), optimizer=still)
    assert result.q_min is None
    assert not result.reference_learns
    assert result.steps == 16
    assert "Nothing can be said" in result.sentence


def test_no_level_keeps_up() -> None:
    result = range_test(make_model, batches(), config=RangeTestConfig(levels=(1,), threshold=1.0))
    assert result.q_min is None
    assert "No level of 1 bits keeps up" in result.sentence


def test_a_loss_that_is_not_finite_is_no_progress() -> None:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        value = nn.functional.cross_entropy(model(batch[0]), batch[1])
        return value * float("nan") if bits_of(model) < 4 else value

    def bits_of(model: nn.Module) -> int:
        from trivet.precision.inject import quantized_sites

        return next(iter(quantized_sites(model))).bits[0]

    result = range_test(make_model, batches(), loss=loss)
    assert [level.bits for level in result.levels] == [2, 3, result.q_min]
    assert result.levels[0].progress == (0.0,) * 8
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["levels"][0]["losses"][0] is None


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_pictures(tmp_path: Path, suffix: str) -> None:
    result = RangeTestResult(
        q_min=3, reference_learns=True, reference=curve(8, (2.0, 1.0)).against(curve(8, (2.0, 1.0))), threshold=0.5,
        levels=(curve(3, (2.0, 1.1)).against(curve(8, (2.0, 1.0))),), patience=1, window=1, steps=4, seed=0,
    )  # fmt: skip
    target = tmp_path / "deep" / f"picture{suffix}"
    result.plot(target)
    assert "3 bits" in target.read_text()
    assert "from 3 bits on: at least 90%" in result.sentence
    with pytest.raises(ValueError, match="must end in"):
        result.plot(tmp_path / "picture.pdf")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": (3, 2)}, "rising"),
        ({"levels": ()}, "rising"),
        ({"levels": (3, 8)}, "`levels=8`"),
        ({"reference": 40}, "`reference=40`"),
        ({"patience": 8}, "`patience=8`"),
        ({"window": 0}, "`window=0`"),
        ({"threshold": 0.0}, "`threshold=0.0`"),
    ],
)
def test_refused_constants(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RangeTestConfig(**options)


def test_too_few_batches_and_nothing_to_quantize() -> None:
    with pytest.raises(ValueError, match="`batches` holds 3; the test takes 16"):
        range_test(make_model, batches(3))
    with pytest.raises(ValueError, match="to quantize"):
        range_test(lambda: nn.ReLU(), batches())
