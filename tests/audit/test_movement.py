"""Distances of two trainings against closed forms, and what the table of settings promises."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.audit.movement import Trace, movement
from trivet.audit.settings import BASELINE, REPEAT, Setting, lacking, settings


def trace(*weights: list[float], losses: tuple[str, ...] = (), predictions: list[int] | None = None) -> Trace:
    vectors = {step: np.array(values, dtype=np.float64) for step, values in enumerate(weights)}
    sums = [repr(values) for values in weights]
    labels = None if predictions is None else np.array(predictions)
    return Trace(checksums=sums, losses=losses or sums[1:], weights=vectors, predictions=labels)


@given(scale=st.floats(1e-6, 1e6), turn=st.floats(0.0, 1.0))
def test_distances_do_not_depend_on_the_unit(scale: float, turn: float) -> None:
    one = trace([0.0, 0.0], [3.0 * scale, 4.0 * scale])
    other = trace([0.0, 0.0], [3.0 * scale, (4.0 + turn) * scale])
    found = movement(one, other)
    assert found.end == pytest.approx(turn / 5, rel=1e-6, abs=1e-9)
    assert found.path_share == pytest.approx(turn / 5, rel=1e-6, abs=1e-9)


def test_a_training_equals_itself() -> None:
    one = trace([1.0], [2.0], [3.0], predictions=[0, 1])
    found = movement(one, trace([1.0], [2.0], [3.0], predictions=[0, 1]))
    assert found.is_zero
    assert (found.step, found.loss_step, found.end, found.path_share, found.churn) == (None, None, 0.0, 0.0, 0.0)


def test_the_path_counts_from_the_start() -> None:
    found = movement(trace([10.0], [11.0], [12.0]), trace([10.0], [11.0], [12.5]))
    assert found.step == 2
    assert found.distances == {1: 0.0, 2: 0.5 / 12}
    assert found.path_share == 0.25


def test_weights_can_differ_while_losses_do_not_and_the_other_way() -> None:
    hidden = movement(trace([0.0], [1.0], losses=("a",)), trace([0.0], [1.5], losses=("a",)))
    assert (hidden.step, hidden.loss_step, hidden.is_zero) == (1, None, False)
    shown = movement(trace([0.0], [1.0], losses=("a",)), trace([0.0], [1.0], losses=("b",)))
    assert (shown.step, shown.loss_step, shown.is_zero) == (None, 1, False)


def test_other_lengths_shapes_and_numbers_that_are_none() -> None:
    assert not movement(trace([0.0], [1.0]), trace([0.0])).is_zero
    other_shape = movement(trace([0.0], [1.0]), trace([0.0, 0.0], [1.0, 1.0]))
    assert math.isnan(other_shape.end)
    assert other_shape.step == 0
    broken = movement(trace([0.0], [1.0]), trace([0.0], [math.nan]))
    assert math.isnan(broken.end)
    assert not broken.is_zero
    assert movement(trace([1.0], predictions=[0, 1, 2, 2]), trace([1.0], predictions=[0, 1, 1, 2])).churn == 0.25


def test_the_table_of_settings_is_sound() -> None:
    everything = settings("all", cores=8)
    names = [one.name for one in everything]
    assert names[:2] == [BASELINE, REPEAT]
    assert len(set(names)) == len(names)
    assert "threads 8" in names
    assert "threads 2" not in [one.name for one in settings("all", cores=2)][:8]
    assert all(one.against in names for one in everything)
    assert all(one.advice for one in everything[1:])
    sizes = [len(settings(group, cores=2)) for group in ("quick", "usual", "all")]
    assert sizes == sorted(set(sizes))
    for group in ("quick", "usual"):
        chosen = [one.name for one in settings(group, cores=2)]
        assert all(one.against in chosen for one in settings(group, cores=2))
    assert next(one.name for one in everything if one.zero) == REPEAT


def test_what_is_not_here_is_said() -> None:
    here = {"flags": ["avx2"], "model": "AMD EPYC", "architecture": "x86_64", "compiler": False, "cuda": False}
    reasons = {need: lacking(need, **here) for need in ("", "x86", "avx512", "amd", "compiler", "cuda")}
    assert [need for need, reason in reasons.items() if not reason] == ["", "x86", "amd"]
    assert "AVX-512" in reasons["avx512"]
    assert lacking("x86", **{**here, "architecture": "arm64"}) == "an arm64 processor"
    assert Setting(name="x").group == "usual"


def test_the_page_shows_zero_where_it_must(repo: Path) -> None:
    text = (repo / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    control = {row[0].strip("*"): row for row in rows if row[0].startswith("*")}
    assert set(control) == {one.name for one in settings("all", cores=2) if one.zero}
    for row in control.values():
        assert row[2:4] == ["never", "never"]
        assert set(row[4:]) == {"0"}
    shown = {re.sub(r" \(against.*", "", row[0].strip("*")) for row in rows}
    assert all(one.name in shown or one.name in text for one in settings("all", cores=2))
