"""What the tester broke: values the cache cannot hold, busy and impossible folders, reasons cut short."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trivet.core.errors import ConfigError, RunFolderError
from trivet.study import Record
from trivet.study.index import Index
from trivet.study.record import error_text
from trivet.study.store import Store


def record(folder: Path, **changes: int) -> Record:
    for name in ("config.yaml", "result.json"):
        (folder / name).write_text("x")
    return Record(run_id="ab", arm="a", levels={}, **{"seed": 0, **changes}, state="finished", folder=folder)


@pytest.mark.parametrize("changes", [{"steps": 10**400}, {"steps": 2**63}, {"seed": 2**70}])
def test_what_the_index_cannot_hold_is_left_out(changes: dict[str, int], tmp_path: Path) -> None:
    index = Index(tmp_path / "index.sqlite")
    index.save([record(tmp_path, **changes)])
    assert index.load() == {}
    index.save([record(tmp_path)])
    assert list(index.load()) == ["ab"]


def test_a_busy_study_says_that_nothing_was_started(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    said = r"being run by another process.*nothing was started"
    with store.lock(), pytest.raises(RunFolderError, match=said) as busy, Store(tmp_path / "s").lock():
        pass
    assert busy.value.exit_code == 2
    with store.lock():
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, said in ((tmp_path / "file/a/b", "is a file"), (tmp_path / ("x" * 300), "File name too long")):
        with pytest.raises(ConfigError, match=said) as refused:
            Store(folder).check_usable()
        assert "--out" in str(refused.value)
        with pytest.raises(ConfigError, match="choose another one with --out"), Store(folder).lock():
            pass
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir(0o500)
        with pytest.raises(ConfigError, match="cannot be written"):
            Store(closed / "s").check_usable()


def test_the_reason_shows_the_last_line_of_the_output() -> None:
    ended = "the command ended with exit code 1: python a.py\nits last lines:\nTraceback\n  x\nValueError: no luck\n\n"
    assert error_text({"type": "CommandFailed", "message": ended}) == (
        "CommandFailed: the command ended with exit code 1: python a.py; its last line: ValueError: no luck"
    )
    missed = "metric 'loss': the pattern 'x' matches nothing; mend it; the last lines are:\na\nb"
    assert error_text({"type": "", "message": missed}).endswith("matches nothing; mend it; its last line: b")
    assert error_text({"type": "", "message": "gone\nits last lines:\n"}) == "gone; it printed nothing"
    assert error_text({"type": "E", "message": "one\ntwo"}) == "E: one"
