"""Whether a safetensors file is whole, by its header and its size: no tensor is read, and no library loaded.

    8 bytes                  length N of the header, little-endian
    N bytes                  JSON: name → dtype, shape, data_offsets [start, end); `__metadata__` may stand beside
    the rest                 the tensors' bytes, without a gap

Source: the format's description by its authors, https://github.com/huggingface/safetensors.

Not covered: whether the numbers make sense.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

MAX_HEADER = 100_000_000
"""Longest header that the format allows, in bytes."""


def check_tensor_file(path: Path) -> dict[str, tuple[int, ...]]:
    """Refuse a file that is cut short, damaged in its header, or of another kind.

    Returns:
        Tensor → shape.

    Raises:
        ValueError: What is wrong; names the file.

    Examples:
        >>> import tempfile
        >>> header = b'{"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
        >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> _ = path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        >>> check_tensor_file(path)
        {'w': (2,)}
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            header = file.read(length) if 2 <= length <= min(MAX_HEADER, size - 8) else b""
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    if not header:
        said = f"a header of {length:,} bytes, of a file of {size:,}" if len(start) == 8 else f"{size} bytes in all"
        raise ValueError(f"{path}: found {said}; allowed: a safetensors file; it is cut short or of another kind")
    try:
        content = json.loads(header)
        tensors = {str(name): row for name, row in content.items() if name != "__metadata__"}
        ends = [_end(row) for row in tensors.values()]
        shapes = {name: tuple(map(int, row["shape"])) for name, row in tensors.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: not a safetensors file: its header cannot be read ({error})") from error
    found, expected = size - 8 - length, max(ends, default=0)
    if found != expected:
        kind = "is cut short" if found < expected else "has something behind its end"
        raise ValueError(
            f"{path}: found {found:,} bytes of tensors; allowed: {expected:,}, as its header says; the file {kind}, "
            "get it again"
        )
    return shapes


def _end(row: dict[str, Any]) -> int:
    start, end = map(int, row["data_offsets"])
    if not 0 <= start <= end:
        raise ValueError(f"data_offsets {start} to {end}")
    return end
