"""Pictures that a run leaves in its folder for the report, as PNG written without any package.

Not covered: reading PNG, palettes, transparency.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from trivet.core.io import write_bytes

GAP = 2
"""White pixels between two pictures of a strip."""


def write_strip(path: Path, pictures: np.ndarray) -> None:
    """Write pictures of one size side by side, with a small gap, as one PNG file.

    Args:
        path: The file; its folder is made.
        pictures: uint8 [N, C, H, W], C = 1 or 3.

    Raises:
        OSError: It cannot be written.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.png"
        >>> write_strip(file, np.zeros((2, 3, 4, 5), np.uint8)); file.read_bytes()[1:4]
        b'PNG'
    """
    count, _, height, width = pictures.shape
    strip = np.full((height, count * (width + GAP) - GAP, 3), 255, np.uint8)
    for index, picture in enumerate(pictures):
        left = index * (width + GAP)
        strip[:, left : left + width] = np.broadcast_to(picture.transpose(1, 2, 0), (height, width, 3))
    path.parent.mkdir(exist_ok=True)
    write_bytes(path, png(strip))


def png(picture: np.ndarray) -> bytes:
    """A picture, uint8 [H, W, 3], as the bytes of a PNG file (8 bits a channel, RGB, no filter)."""
    height, width, _ = picture.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, width * 3)], 1)
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
