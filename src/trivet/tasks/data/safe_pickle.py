"""Reading the CIFAR files, which are pickles, without running anything that a file asks for.

A pickle is a program; the danger is in the functions it may name. This reader lets a file name four things only,
numpy's array constructor, its array class, its type class and the text encoder that Python 3 uses for bytes, and
answers each with a stand-in from this module that can hold bytes of a plain type and nothing else. Numbers, text,
bytes, lists, tuples and dictionaries need no names. Any other name ends the reading with an error before anything is
called. The program is read through once before it is run, because one that remembers a value under number 2³² would
make Python allocate gigabytes.

Not covered: arrays of objects, of records or in Fortran order, and every other pickle.
"""

from __future__ import annotations

import codecs
import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trivet.tasks.data.errors import UnusableDataError

MAX_BYTES = 2**29
"""Largest file that is read (CIFAR-100's train file has 155 MB)."""
MAX_MEMO = 1_000_000
"""Largest number under which a file may remember a value (CIFAR-100's train file needs some 50,000)."""
PLAIN_TYPES = ("u1", "i1", "i4", "i8", "f4", "f8")


class _PlainType:
    """Stand-in for `numpy.dtype`: the code of a plain type."""

    def __init__(self, code: object, *_: object) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if text not in PLAIN_TYPES:
            raise pickle.UnpicklingError(f"an array of type {text!r}; allowed: {', '.join(PLAIN_TYPES)}")
        self.dtype = np.dtype(str(text))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in (">", b">"):
            self.dtype = self.dtype.newbyteorder(">")


class _PlainArray:
    """Stand-in for `numpy.ndarray`: shape, type and bytes, as its pickled state gives them."""

    def __init__(self, *_: object) -> None:
        self.array = np.zeros(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, plain, fortran, content = state
        if isinstance(content, str):
            content = content.encode("latin1")
        if not isinstance(plain, _PlainType) or fortran or not isinstance(content, bytes):
            raise pickle.UnpicklingError("an array that is not plain bytes in C order")
        self.array = np.frombuffer(content, plain.dtype).reshape(shape)


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """Stand-in for `_codecs.encode`, by which Python 3 writes bytes into old pickle versions."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("a text encoding other than latin1")
    return codecs.encode(text, "latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy.core.multiarray", "_reconstruct"): _PlainArray,
    ("numpy._core.multiarray", "_reconstruct"): _PlainArray,
    ("numpy", "ndarray"): _PlainArray,
    ("numpy", "dtype"): _PlainType,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    """An unpickler that knows the stand-ins and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name, or an error."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no image file needs")
        return _ALLOWED[module, name]


def read_plain_pickle(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary of arrays, numbers, text and lists.

    Args:
        path: The file.

    Returns:
        The dictionary with its keys as text; arrays as numpy arrays (read-only).

    Raises:
        UnusableDataError: The file is damaged, too large, no dictionary, or asks for anything but plain data.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "batch"
        >>> _ = path.write_bytes(pickle.dumps({b"labels": [1, 2], b"data": np.arange(3)}, protocol=2))
        >>> read_plain_pickle(path)
        {'labels': [1, 2], 'data': array([0, 1, 2])}
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise pickle.UnpicklingError(f"larger than {MAX_BYTES} bytes")
        program = path.read_bytes()
        _check_memo(program)
        content = _Reader(io.BytesIO(program), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"a {type(content).__name__} instead of a dictionary")
        return {_text(key): _plain(value) for key, value in content.items()}
    except Exception as error:
        raise UnusableDataError(
            f"{path}: not a file of plain arrays and lists ({error or type(error).__name__}); "
            f"it is damaged or not what it should be, get it again"
        ) from error


def _check_memo(program: bytes) -> None:
    """Refuse numbers of remembered values that no small file needs."""
    for opcode, argument, _ in pickletools.genops(program):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(str(argument)) > MAX_MEMO:
            raise pickle.UnpicklingError(f"it remembers a value under number {argument}")


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _plain(value: object) -> object:
    if isinstance(value, _PlainArray):
        return value.array
    if isinstance(value, list):
        return [_text(item) if isinstance(item, bytes) else item for item in value]
    return value
