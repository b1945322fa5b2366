"""The format of a run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.core.errors import RunFolderError
from trivet.core.runfolder import OUTCOMES, RunFolder, RunResult

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.sampled_from(OUTCOMES),
    st.dictionaries(st.text(max_size=9), numbers, max_size=4),
    st.integers(0, 10**9),
    numbers,
)
def test_results_survive_the_disk_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, outcome: str, metrics: dict[str, float], steps: int, seconds: float
) -> None:
    result = RunResult(outcome=outcome, metrics=metrics, steps=steps, seconds=seconds, bitops=1e15)
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.write_result(result)
    assert folder.read_result() == result
    assert folder.read_result().comparable == (outcome, metrics, steps)


def test_a_run_without_a_result_is_not_done(tmp_path: Path) -> None:
    assert not RunFolder(tmp_path).is_done
    assert not RunFolder(tmp_path / "never-made").is_done
    with pytest.raises(RunFolderError, match="not done"):
        RunFolder(tmp_path).read_result()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"outcome": "finished"}',
        '{"outcome": "exploded", "metrics": {}}',
        '{"outcome": "finished", "metrics": {"a": "x"}}',
        '{"outcome": "finished", "metrics": 3}',
        '{"outcome": "finished", "metrics": {"a": NaN}}',
        '{"outcome": "finished", "metrics": {}, "format": 99}',
    ],
)
def test_what_is_no_result_is_reported_never_taken_for_undone(tmp_path: Path, content: str) -> None:
    folder = RunFolder(tmp_path)
    folder.result_path.write_text(content)
    with pytest.raises(RunFolderError, match=r"result\.json"):
        _ = folder.is_done
    assert folder.result_path.read_text() == content


def test_odd_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="a file lies where"):
        RunFolder(tmp_path / "file").read_result()
    (tmp_path / "result.json").mkdir()
    with pytest.raises(RunFolderError, match="cannot be read"):
        RunFolder(tmp_path).read_result()
    assert RunFolder(tmp_path).read_error() is None
    assert RunFolder(tmp_path).read_environment() == {}


def test_results_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="finished, diverged"):
        RunResult(outcome="lost", metrics={})
    with pytest.raises(ValueError, match="not a finite number"):
        RunResult(outcome="finished", metrics={"loss": float("nan")})


def test_the_file_keeps_what_is_comparable_apart_from_clocks(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_result(RunResult(outcome="diverged", metrics={"a": 1}, steps=3, seconds=2.0, train_seconds=1.0))
    content = json.loads(folder.result_path.read_text())
    assert list(content) == ["format", "outcome", "metrics", "steps", "bitops", "seconds", "train_seconds"]
