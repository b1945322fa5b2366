"""The reader of CIFAR's pickles: plain data come out, nothing is run."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.tasks.data import UnusableDataError
from trivet.tasks.data.safe_pickle import read_plain_pickle


def read(folder: Path, content: bytes) -> dict[str, Any]:
    path = folder / "batch"
    path.write_bytes(content)
    return read_plain_pickle(path)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", ">i4"])
def test_arrays_and_lists(tmp_path: Path, protocol: int, dtype: str) -> None:
    array = np.arange(12).astype(dtype).reshape(3, 4)
    content = {"data": array, b"labels": [1, 2], "names": [b"a", "b"], "n": 3}
    result = read(tmp_path, pickle.dumps(content, protocol=protocol))
    np.testing.assert_array_equal(result["data"], array)
    assert result["data"].dtype == array.dtype
    assert result["labels"] == [1, 2]
    assert result["names"] == ["a", "b"]
    assert result["n"] == 3


def python2_pickle(array: np.ndarray, labels: list[int]) -> bytes:
    """What Python 2 with its numpy wrote: text and bytes are one type, the array's bytes are a string."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    shape = b"".join(b"M" + struct.pack("<H", size) for size in array.shape)
    dtype = (
        b"cnumpy\ndtype\n("
        + text(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    raw = array.tobytes()
    state = b"(K\x01" + b"(" + shape + b"t" + dtype + b"\x89" + b"T" + struct.pack("<I", len(raw)) + raw + b"tb"
    built = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR" + state
    numbers = b"(" + b"".join(b"K" + bytes([label]) for label in labels)
    return b"\x80\x02}(" + text(b"data") + built + text(b"labels") + b"](" + numbers[1:] + b"e" + b"u."


def test_files_of_python_2(tmp_path: Path) -> None:
    array = np.arange(600, dtype=np.uint8).reshape(2, 300)
    content = python2_pickle(array, [7, 9])
    result = read(tmp_path, content)
    np.testing.assert_array_equal(result["data"], array)
    assert result["labels"] == [7, 9]


class Touch:
    """Pickles as a call of `os.system`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hostile = pickle.dumps({"data": Touch(mark)})
    with pytest.raises(UnusableDataError, match=r"asks for posix\.system"):
        read(tmp_path, hostile)
    assert not mark.exists()
    pickle.loads(hostile)  # the trap does spring for a reader that is not careful
    assert mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "EOFError|Ran out"),
        (b"<html>", "not a file of plain arrays"),
        (pickle.dumps([1]), "list instead of a dictionary"),
        (pickle.dumps({"a": np.array([{}], dtype=object)}, protocol=2), "type 'O8'"),
        (pickle.dumps({"a": np.zeros(2, "c16")}, protocol=2), "allowed: u1"),
        (pickle.dumps({"a": np.zeros(2, [("x", "u1")])}, protocol=2), "type 'V1'"),
        (pickle.dumps({"a": np.asfortranarray(np.ones((2, 3)))}, protocol=2), "C order"),
        (pickle.dumps({"a": print}), "asks for builtins.print"),
        (pickle.dumps({"a": np.float64(1)}), "asks for numpy"),
        (pickle.dumps({"a": np.ones(100)}, protocol=2)[:-60], "not a file"),
        (b"\x80\x02cnumpy\nndarray\n.", "instead of a dictionary"),
        (b"\x80\x02}(U\x01acnumpy\nndarray\n)\x81u.", "not a file"),
        (b"\x80\x02}r\xff\xff\xff\xff.", "remembers a value under number 4294967295"),
        (b"}p99999999\n.", "under number 99999999"),
        (b"\x80\x02Pxx\n.", "not a file"),
    ],
)
def test_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UnusableDataError, match=message):
        read(tmp_path, content)


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.tasks.data.safe_pickle.MAX_BYTES", 10)
    with pytest.raises(UnusableDataError, match="larger than 10 bytes"):
        read(tmp_path, pickle.dumps({"a": list(range(100))}))


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 10**6), replace=st.binary(min_size=1, max_size=4))
def test_random_damage_never_runs_or_escapes(
    tmp_path_factory: pytest.TempPathFactory, cut: int, replace: bytes
) -> None:
    whole = pickle.dumps({"data": np.arange(20, dtype=np.uint8), "labels": [1, 2, 3]}, protocol=2)
    at = cut % len(whole)
    damaged = whole[:at] + replace + whole[at + len(replace) :]
    try:
        result = read(tmp_path_factory.getbasetemp(), damaged)
    except UnusableDataError:
        return
    assert isinstance(result, dict)
