"""IDX files, the format of MNIST and of the sets made to replace it, plain or gzip-compressed.

Layout, as published with MNIST: two zero bytes, one byte for the element type (8 = unsigned byte), one byte
for the number of dimensions, each dimension as a big-endian 32-bit integer, then the elements, last dimension fastest.

Not covered: element types other than unsigned byte, which no image set uses.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from trivet.tasks.data.errors import UnusableDataError

MAX_BYTES = 2**30
"""Largest array that is read, so that a damaged or hostile header cannot exhaust memory."""


def read_idx(path: Path, *, num_dims: int) -> np.ndarray:
    """Read one IDX file of unsigned bytes.

    Args:
        path: The file; a name that ends in `.gz` is decompressed.
        num_dims: Dimensions that the array must have: 3 for images, 1 for labels.

    Returns:
        A uint8 array with the shape the header states.

    Raises:
        UnusableDataError: The file is damaged, cut short, or holds something else.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels-idx1-ubyte"
        >>> _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
        >>> read_idx(file, num_dims=1)
        array([7, 8, 9], dtype=uint8)
    """
    content = _content(path)
    start = 4 + 4 * num_dims
    if len(content) < start or content[:3] != b"\x00\x00\x08" or content[3] != num_dims:
        raise UnusableDataError(
            f"{path}: found a header that starts {content[:4].hex(' ') or '(empty)'}; allowed: 00 00 08 "
            f"{num_dims:02x}, an IDX file of unsigned bytes with {num_dims} dimension(s); get the file again"
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=num_dims, offset=4))
    expected = int(np.prod(shape, dtype=object))
    if len(content) - start != expected:
        raise UnusableDataError(
            f"{path}: found {len(content) - start} bytes of data; allowed: {expected}, as its header says "
            f"({' × '.join(map(str, shape))}); the file is cut short or damaged, get it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _content(path: Path) -> bytes:
    """Bytes of a file, decompressed where its name says so, up to `MAX_BYTES`."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnusableDataError(f"{path}: not a readable gzip file ({error}); it is damaged, get it again") from error
    except OSError as error:
        raise UnusableDataError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) > MAX_BYTES:
        raise UnusableDataError(f"{path}: holds more than {MAX_BYTES} bytes; that is no image set of this kind")
    return content
