"""IDX files: a round trip, and files that are none."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.tasks.data import UnusableDataError
from trivet.tasks.data.idx import read_idx


@settings(max_examples=30, deadline=None)
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=3), packed=st.booleans(), seed=st.integers(0, 99))
def test_reads_what_was_written(
    encode_idx: Callable[[np.ndarray], bytes], shape: list[int], packed: bool, seed: int
) -> None:
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("a.gz" if packed else "a")
        path.write_bytes(gzip.compress(encode_idx(array), mtime=0) if packed else encode_idx(array))
        read = read_idx(path, num_dims=len(shape))
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.uint8
    assert read.flags.writeable


GOOD = bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 6])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (GOOD[:6], "starts 00 00 08 01"),
        (b"<html>not found</html>", "allowed: 00 00 08 01"),
        (bytes([0, 0, 8, 3]) + GOOD[4:] + bytes(20), "1 dimension"),
        (bytes([0, 0, 13]) + GOOD[3:], "unsigned bytes"),
        (GOOD[:-1], r"found 1 bytes of data; allowed: 2.*cut short"),
        (GOOD + b"x", "found 3 bytes"),
        (bytes([0, 0, 8, 1, 255, 255, 255, 255, 1]), "allowed: 4294967295"),
    ],
)
def test_damaged_files_say_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "labels"
    path.write_bytes(content)
    with pytest.raises(UnusableDataError, match=message) as caught:
        read_idx(path, num_dims=1)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(GOOD * 50, mtime=0)[:-12], b""])
def test_damaged_gzip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(content)
    with pytest.raises(UnusableDataError, match=r"damaged|empty"):
        read_idx(path, num_dims=1)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.tasks.data.idx.MAX_BYTES", 1000)
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(bytes(5000), mtime=0))
    with pytest.raises(UnusableDataError, match="more than 1000 bytes"):
        read_idx(path, num_dims=1)


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UnusableDataError, match="cannot be read"):
        read_idx(tmp_path, num_dims=1)
