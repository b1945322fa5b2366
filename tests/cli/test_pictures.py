"""`trivet schedule`: figures, pictures in the terminal and on disk; the drawing functions by themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.cli.plot import side_by_side, sparkline, step_plot, stretches
from trivet.precision.schedules import PrecisionSchedule


@given(st.lists(st.integers(1, 32), min_size=1, max_size=300), st.integers(1, 120))
def test_stretches_lose_no_value(values: list[int], width: int) -> None:
    parts = stretches(values, width)
    assert len(parts) == width
    assert all(parts)
    assert {value for part in parts for value in part} == set(values) or width < 1


@given(st.lists(st.integers(3, 8), min_size=1, max_size=200), st.integers(1, 80))
def test_a_plot_shows_every_value_and_keeps_its_size(values: list[int], width: int) -> None:
    lines = step_plot(values, width, 3, 8)
    assert len(lines) == 7
    assert max(len(line) for line in lines) == width + 3
    drawn = {int(line[0]) for line in lines[:-1] if line[3:].strip()}
    assert set(values) <= drawn


def test_a_wide_range_fits() -> None:
    assert len(step_plot(list(range(1, 33)), 40, 1, 32)) <= 13


def test_a_sparkline_of_a_constant() -> None:
    assert sparkline([8, 8], 4, 8, 8) == "████"


def test_blocks_beside_each_other() -> None:
    assert side_by_side(["a"], ["x", "y"], 4) == ["a   x", "    y"]


def test_the_table_agrees_with_the_schedules(trivet: Any) -> None:
    content = json.loads(trivet("schedule", "--json").out)
    assert len(content["schedules"]) == 10
    for row in content["schedules"]:
        made = PrecisionSchedule.named(row["name"], q_min=3, q_max=8, num_cycles=8, total_steps=64_000)
        assert row["mean_bits"] == pytest.approx(made.mean_bits)
        assert row["cost"] == pytest.approx(made.relative_cost())
        assert row["cost_of_static"] == pytest.approx(made.relative_cost(reference=8))
        assert [step for step, _ in row["changes"]] == [start for start, _, _ in made.runs()]
        assert [bits for _, bits in row["changes"]] == [bits for _, _, bits in made.runs()]


def test_the_table_and_its_notes_go_to_different_streams(trivet: Any) -> None:
    ended = trivet("schedule")
    assert ended.code == 0
    assert len(re.findall(r"^(?:RR|RTH|[CL][RT]|ETV|RTV|ER|ETH) ", ended.out, re.MULTILINE)) == 10
    assert "BitOPs are not seconds" in ended.err


def test_a_bare_plot_draws_all_ten_in_the_terminal(trivet: Any) -> None:
    ended = trivet("schedule", "--plot")
    assert ended.code == 0
    assert ended.out.count("└") == 10


def test_one_schedule_is_drawn_with_other_bits(trivet: Any) -> None:
    ended = trivet("schedule", "RR", "--plot", "--q-min", "2", "--q-max", "4", "--num-cycles", "2", "--steps", "100")
    assert ended.code == 0
    assert re.search(r"^4 ┤", ended.out, re.MULTILINE)
    assert re.search(r"^2 ┤", ended.out, re.MULTILINE)


@pytest.mark.parametrize("suffix", [".svg", ".png", ".html"])
def test_the_picture_in_each_format(suffix: str, trivet: Any, tmp_path: Path) -> None:
    target = tmp_path / f"ten{suffix}"
    ended = trivet("schedule", "--plot", target)
    assert ended.code == 0, ended.err
    content = target.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG")
        return
    text = content.decode()
    assert all(name in text for name in PrecisionSchedule.names())
    if suffix == ".html":
        assert not re.search(r"""(?:src|href)=["']https?://""", text), "needs the network"
    else:
        assert text.startswith("<svg")


def test_a_format_that_cannot_be_drawn(trivet: Any) -> None:
    ended = trivet("schedule", "--plot", "ten.jpg")
    assert ended.code == 2
    assert ".svg, .png, .html" in ended.err


def test_an_unknown_schedule_names_the_nearest(trivet: Any) -> None:
    ended = trivet("schedule", "RX")
    assert ended.code == 2
    assert "did you mean 'RR'" in ended.err
