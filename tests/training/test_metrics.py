from __future__ import annotations

import logging
from pathlib import Path

import pytest

from trivet.core.io import read_jsonl
from trivet.training.metrics import MetricsLog


def test_cut_drops_later_rows_and_a_torn_line(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in (10, 20, 30):
        log.write(step, {"train_loss": 1 / step})
    with log.path.open("a") as file:
        file.write('{"step": 4')
    log.cut(20)
    assert [row["step"] for row in read_jsonl(log.path)] == [10, 20]
    before = log.path.read_bytes()
    log.write(30, {"train_loss": 0.5})
    assert log.path.read_bytes().startswith(before)
    log.cut(0)
    assert log.path.read_bytes() == b""


def test_cut_without_a_file(tmp_path: Path) -> None:
    MetricsLog(tmp_path / "metrics.jsonl").cut(5)
    assert not list(tmp_path.iterdir())


def test_numbers_survive_exactly(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write(1, {"a": 0.1 + 0.2})
    log.cut(1)
    assert read_jsonl(log.path) == [{"step": 1, "a": 0.1 + 0.2}]


def test_what_is_not_finite_is_left_out_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with caplog.at_level(logging.WARNING, "trivet"):
        log.write(3, {"train_loss": 1.0, "test_loss": float("nan")})
    assert read_jsonl(log.path) == [{"step": 3, "train_loss": 1.0}]
    assert "test_loss is nan" in caplog.text
