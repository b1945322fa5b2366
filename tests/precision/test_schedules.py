"""The ten schedules against measured reference data, and the properties every schedule has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.precision import PrecisionSchedule, snap
from trivet.precision.profiles import PROFILES, REX_CODE, REX_PUBLISHED

FIXTURE = json.loads((Path(__file__).parent / "fixtures" / "schedules_n8_T64000_q3_8.json").read_text())
STEPS = 64_000
SAVINGS = {
    # q_min, q_max, gradient bits: saving in % against static q_max, of CR LR ER RR CT LT ETV ETH RTV RTH
    (3, 8, 8): (36.66, 37.24, 17.76, 60.10, 36.66, 37.24, 36.52, 17.75, 36.27, 60.10),
    (3, 6, 6): (30.03, 30.41, 13.71, 50.29, 30.03, 30.40, 29.91, 13.71, 29.75, 50.29),
    (4, 8, 8): (30.10, 30.47, 14.19, 49.89, 30.09, 30.47, 29.99, 14.19, 29.83, 49.88),
    (4, 6, 6): (20.68, 20.84, 8.78, 35.57, 20.68, 20.83, 20.63, 8.78, 20.55, 35.57),
    (5, 8, 8): (23.14, 23.35, 10.49, 38.94, 23.14, 23.35, 23.08, 10.49, 22.98, 38.94),
    (5, 6, 6): (10.65, 10.65, 3.69, 19.36, 10.65, 10.65, 10.65, 3.69, 10.65, 19.36),
}


def named(name: str, steps: int = STEPS, cycles: int = 8, **changes: Any) -> PrecisionSchedule:
    return PrecisionSchedule.named(
        name, **{"q_min": 3, "q_max": 8, "num_cycles": cycles, "total_steps": steps, **changes}
    )


def expand(stretches: list[list[int]]) -> np.ndarray:
    starts = [start for start, _ in stretches]
    return np.repeat([bits for _, bits in stretches], np.diff([*starts, STEPS]))


@pytest.mark.parametrize("period", ["exact", "train_py"])
@pytest.mark.parametrize("name", PrecisionSchedule.names())
def test_equal_to_reference_at_every_step(name: str, period: str) -> None:
    reference = FIXTURE["schedules"][period][name]
    schedule = named(name, period=period)
    expected = expand(reference["rle"])
    np.testing.assert_array_equal(schedule.bits_array(), expected)
    assert [schedule.bits(step) for step in range(STEPS)] == expected.tolist()
    assert schedule.mean_bits == pytest.approx(reference["mean_bits"], abs=5.1e-5)
    assert schedule.relative_cost() == pytest.approx(reference["cost_vs_fp32"], abs=5.1e-7)
    assert schedule.relative_cost(reference=8) == pytest.approx(reference["cost_vs_static"], abs=5.1e-6)
    assert len(schedule.runs()) == reference["n_switches"] + 1
    assert schedule.name == name


@pytest.mark.parametrize("setting", SAVINGS, ids=str)
def test_savings_table(setting: tuple[int, int, int]) -> None:
    q_min, q_max, grad_bits = setting
    for name, saving in zip(PrecisionSchedule.names(), SAVINGS[setting], strict=True):
        cost = named(name, q_min=q_min, q_max=q_max).relative_cost(grad_bits, reference=q_max)
        assert 100 * (1 - cost) == pytest.approx(saving, abs=0.01), name


def test_other_savings_of_the_fixture() -> None:
    for title, row in FIXTURE["other_settings_saving_percent_exact"].items():
        levels, cycles = title.split(" n")
        q_min, q_max = (int(q) for q in levels.split("/")[0][1:].split("-"))
        grad_bits = int(levels.split("/g")[1])
        for name, saving in row.items():
            schedule = named(name, cycles=int(cycles), q_min=q_min, q_max=q_max)
            cost = schedule.relative_cost(grad_bits, reference=q_max, reference_grad_bits=grad_bits)
            assert 100 * (1 - cost) == pytest.approx(saving, abs=0.01), (title, name)


def test_rex_constants_differ_as_documented() -> None:
    code, published = named("RR", rex_constant=REX_CODE), named("RR", rex_constant=REX_PUBLISHED)
    assert 1 - code.relative_cost(reference=8) == pytest.approx(0.601, abs=5e-4)
    assert 1 - published.relative_cost(reference=8) == pytest.approx(0.453, abs=5e-4)
    assert code != published


def test_groups_are_by_compute_used() -> None:
    groups = {name: named(name).group for name in PrecisionSchedule.names()}
    assert {name for name, group in groups.items() if group == "small"} == {"RR", "RTH"}
    assert {name for name, group in groups.items() if group == "large"} == {"ER", "ETH"}
    assert PrecisionSchedule.static(8, total_steps=5).group == "large"


def levels() -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(1, 32), st.integers(1, 32)).map(lambda pair: (min(pair), max(pair)))


@st.composite
def schedules(draw: st.DrawFn) -> PrecisionSchedule:
    q_min, q_max = draw(levels())
    steps = draw(st.integers(1, 400))
    shape = draw(st.sampled_from(["repeated", "triangular"]))
    return PrecisionSchedule(
        profile=draw(st.sampled_from(PROFILES)),
        shape=shape,
        reflection="none" if shape == "repeated" else draw(st.sampled_from(["vertical", "horizontal"])),
        q_min=q_min,
        q_max=q_max,
        num_cycles=draw(st.integers(1, steps)),
        total_steps=steps,
        period=draw(st.sampled_from(["exact", "train_py"])),
        odd_cycles="allow",
    )


@given(schedules())
@settings(deadline=None, max_examples=60)
def test_properties(schedule: PrecisionSchedule) -> None:
    bits = schedule.bits_array()
    assert bits.shape == (schedule.total_steps,)
    assert bits.tolist() == [schedule.bits(step) for step in range(schedule.total_steps)]
    assert schedule.q_min <= bits.min()
    assert bits.max() <= schedule.q_max
    assert schedule.mean_bits == pytest.approx(bits.mean())
    cost = np.mean(bits.astype(float) ** 2 + 16 * bits) / (3 * 32**2)
    assert schedule.relative_cost(8) == pytest.approx(cost)
    again = PrecisionSchedule.from_dict(json.loads(json.dumps(schedule.to_dict())))
    assert again == schedule
    assert hash(again) == hash(schedule)


@given(schedules(), st.data())
@settings(deadline=None, max_examples=60)
def test_deficit_changes_exactly_its_steps(schedule: PrecisionSchedule, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, schedule.total_steps - 1))
    length = data.draw(st.integers(1, schedule.total_steps - start))
    changed = schedule.with_deficit(start=start, length=length, bits=2)
    expected = schedule.bits_array().copy()
    expected[start : start + length] = 2
    np.testing.assert_array_equal(changed.bits_array(), expected)
    assert PrecisionSchedule.from_dict(changed.to_dict()) == changed


def test_exact_period_starts_no_stray_cycle() -> None:
    bits = named("LR", steps=1003).bits_array()
    assert (np.diff(bits) < 0).sum() == 7
    assert bits[-1] == 8


def test_triangular_starts_high_and_ends_high() -> None:
    for name in ("CT", "LT", "ETV", "ETH", "RTV", "RTH"):
        bits = named(name).bits_array()
        assert bits[0] == bits[-1] == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q_min": 9}, "`q_min=9` must lie in \\[1, q_max=8\\]"),
        ({"q_min": 0}, "`q_min=0` must lie in \\[1, 32\\]"),
        ({"q_max": 40}, "`q_max=40` must lie in \\[1, 32\\]"),
        ({"num_cycles": 0}, "`num_cycles=0` must lie in"),
        ({"num_cycles": 7}, "would end training at q_min=3"),
        ({"total_steps": 0}, "`total_steps=0` must be ≥ 1"),
        ({"exponent": float("nan")}, "`exponent=nan`"),
        ({"rex_constant": 1.0}, "`rex_constant=1.0`"),
        ({"period": "exakt"}, "did you mean 'exact'"),
    ],
)
def test_bad_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        named("CT", **changes)


def test_more_refusals() -> None:
    with pytest.raises(ValueError, match="unknown schedule 'RX'"):
        named("RX")
    with pytest.raises(TypeError, match="whole number"):
        named("CR", q_min=3.5)
    with pytest.raises(TypeError, match="whole number"):
        named("CR", q_min=True)
    with pytest.raises(ValueError, match="no effect"):
        PrecisionSchedule(profile="rex", reflection="vertical", q_min=3, q_max=8, num_cycles=2, total_steps=9)
    with pytest.raises(ValueError, match="needs `reflection`"):
        PrecisionSchedule(profile="rex", shape="triangular", q_min=3, q_max=8, num_cycles=2, total_steps=9)
    with pytest.raises(ValueError, match="after `total_steps=10`"):
        PrecisionSchedule.static(8, total_steps=10).with_deficit(start=5, length=6, bits=3)
    assert named("CT", num_cycles=7, odd_cycles="allow").bits(STEPS - 1) == 3


@pytest.mark.parametrize("step", [-1, STEPS, 10**12])
def test_steps_outside_the_training_are_refused(step: int) -> None:
    with pytest.raises(ValueError, match="must lie in \\[0, 63999\\]"):
        named("CR").bits(step)
    with pytest.raises(TypeError):
        named("CR").bits(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "`format=2` must be 1"),
        ({"kind": "x"}, "`kind='x'`"),
        ({"profil": "rex"}, "did you mean 'profile'"),
    ],
)
def test_foreign_dictionaries_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrecisionSchedule.from_dict({**named("CR").to_dict(), **change})
    plain = named("CR").to_dict()
    del plain["q_max"]
    with pytest.raises(ValueError, match="missing: q_max"):
        PrecisionSchedule.from_dict(plain)


def test_no_torch_is_loaded() -> None:
    code = (
        "import sys, trivet.precision as p; p.PrecisionSchedule, p.PrecisionConfig, p.training_bitops, p.Deficit; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_whole_numbers_of_numpy_and_torch_become_plain_ints() -> None:
    schedule = PrecisionSchedule.named(
        "CR", q_min=np.int64(3), q_max=torch.tensor(8), num_cycles=np.int8(2), total_steps=np.uint16(40)
    )  # fmt: skip
    plain = PrecisionSchedule.named("CR", q_min=3, q_max=8, num_cycles=2, total_steps=40)
    assert schedule == plain
    changed = schedule.with_deficit(start=np.int64(1), length=np.int64(5), bits=np.int64(4))
    assert json.loads(json.dumps(changed.to_dict())) == plain.with_deficit(start=1, length=5, bits=4).to_dict()
    assert json.dumps(snap(schedule, tuple(np.array([4, 8]))).to_dict()) == json.dumps(snap(plain, (4, 8)).to_dict())
    assert type(PrecisionSchedule.static(np.int64(8), total_steps=3).bits(np.int64(1))) is int
    assert schedule.relative_cost(grad_bits=np.int64(8)) == plain.relative_cost(grad_bits=8)
    for bad in (np.float64(3.0), torch.tensor([3, 4]), np.array([3, 4]), True, "3", None):
        with pytest.raises(TypeError, match=r"q_min=.* must be a whole number \(int\), not "):
            PrecisionSchedule.named("CR", q_min=bad, q_max=8, num_cycles=2, total_steps=40)
