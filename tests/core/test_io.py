"""Atomic writes, JSON lines, locks: with real processes and a really limited disk."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.core import io
from trivet.core.errors import RunFolderError


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], stdout=subprocess.PIPE, text=True
    )


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    io.write_text(target, "old")
    code = """
        import resource, signal, sys
        from pathlib import Path
        from trivet.core import io
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            io.write_text(Path(sys.argv[1]), "x" * 100_000)
        except OSError as error:
            print(error.errno)
    """
    with start(code, str(target)) as process:
        out, _ = process.communicate()
    assert int(out) > 0
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    target = tmp_path / "value.json"
    code = """
        import sys
        from pathlib import Path
        from trivet.core import io
        for i in range(10_000):
            io.write_json(Path(sys.argv[1]), {"i": i, "fill": "x" * 50_000})
            if i == 3:
                print("go", flush=True)
    """
    with start(code, str(target)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(200):
            assert len(json.loads(target.read_text())["fill"]) == 50_000
        process.send_signal(signal.SIGKILL)
    assert len(json.loads(target.read_text())["fill"]) == 50_000


def test_written_files_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        io.write_text(tmp_path / "a", "x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_json_refuses_what_json_has_no_word_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        io.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3), max_size=5))
def test_jsonl_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "m.jsonl"
    io.append_jsonl(path, rows[:2])
    io.append_jsonl(path, rows[2:])
    assert io.read_jsonl(path) == rows


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "lo')
    io.append_jsonl(path, [{"step": 3, "loss": float("inf")}])
    assert io.read_jsonl(path) == [{"step": 1}, {"step": 3, "loss": None}]


def test_lock_is_exclusive_and_dies_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    code = """
        import sys, time
        from pathlib import Path
        from trivet.core.io import FileLock
        lock = FileLock(Path(sys.argv[1])); lock.acquire()
        print("held", flush=True)
        time.sleep(600)
    """
    with start(code, str(path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert io.FileLock.is_held(path)
        assert io.FileLock.holder(path) == process.pid
        with pytest.raises(RunFolderError, match=f"busy here.*process {process.pid}"):
            io.FileLock(path, busy="busy here").acquire()
        process.send_signal(signal.SIGKILL)
    assert not io.FileLock.is_held(path)
    with io.FileLock(path):
        assert io.FileLock.holder(path) == os.getpid()
    assert not io.FileLock.is_held(path)
    assert not io.FileLock.is_held(tmp_path / "never-made")


def test_what_fails_half_way_leaves_the_old_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "a.svg"
    with io.replacing(target) as beside:
        assert (beside.parent, beside.suffix) == (target.parent, ".svg")
        beside.write_text("whole")

    def half() -> None:
        with io.replacing(target) as beside:
            beside.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*a\.svg'"):
        half()
    assert [(path.name, path.read_text()) for path in target.parent.iterdir()] == [("a.svg", "whole")]
