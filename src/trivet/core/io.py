"""Disk access that loses nothing: atomic writes, append-only JSON lines, locks that die with their process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from trivet.core.errors import RunFolderError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old content or the new one, never a part.

    Written to a temporary file beside the target, flushed to the disk, then renamed over it.

    Raises:
        OSError: The disk is full or the folder cannot be written; the old file is untouched.

    Examples:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.bin"
        >>> write_bytes(target, b"x"); target.read_bytes()
        b'x'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            error.filename = str(path)  # not the temporary one, or none
        raise


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A file beside `path`, of the same suffix, for what writes files by itself; in the end it replaces `path`.

    Raises:
        OSError: The disk is full or the folder cannot be written; the old file is untouched.

    Examples:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.svg"
        >>> with replacing(target) as beside:
        ...     _ = beside.write_text("<svg/>")
        >>> [path.name for path in target.parent.iterdir()]
        ['a.svg']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, content: str) -> None:
    """Write UTF-8 text atomically; see `write_bytes`."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, two spaces of indent; NaN and infinity are refused with `ValueError`."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def append_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a JSON-lines file in one write; NaN and infinity become null.

    A file whose last line was torn by a crash gets a line break first, so that the torn line spoils no other.
    """
    text = "".join(json.dumps(_finite(row), ensure_ascii=False) + "\n" for row in rows)
    if not text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                text = "\n" + text
        file.write(text.encode("utf-8"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON-lines file; a torn line (a crash in the middle of a write) is left out.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "m.jsonl"
        >>> append_jsonl(path, [{"step": 1}])
        >>> _ = path.write_text(path.read_text() + '{"step"')
        >>> read_jsonl(path)
        [{'step': 1}]
    """
    rows: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return rows
    for line in text.split("\n"):  # not splitlines: JSON text may hold U+2028 and its like
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


class FileLock:
    """An exclusive lock on a file that the kernel frees when the process ends, however it ends.

    Not re-entrant, and only as good as `flock` on the file system (not on old NFS).

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / ".lock"
        >>> with FileLock(path):
        ...     FileLock.is_held(path)
        True
    """

    def __init__(self, path: Path, *, busy: str = "") -> None:
        """Args: path: the lock file, made when missing; busy: what to say when another process holds it."""
        self.path = path
        self.busy = busy or f"{path}: held by another process"
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock now or raise `RunFolderError`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not _try_lock(descriptor):
            holder = _holder(descriptor)
            os.close(descriptor)
            raise RunFolderError(f"{self.busy}{holder}")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._file = descriptor

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @staticmethod
    def is_held(path: Path) -> bool:
        """Whether some process, this one included, holds the lock on `path`."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who ask do not see each other
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @staticmethod
    def holder(path: Path) -> int | None:
        """Process number written by the last holder of the lock, or None when there is none to read."""
        try:
            text = path.read_text().strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else None

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _try_lock(descriptor: int, patience: float = 0.2) -> bool:
    """Take the lock, asking again for a moment: somebody who only looks (`is_held`) holds it for microseconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def _holder(descriptor: int) -> str:
    with contextlib.suppress(OSError):
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        if text.isdigit():
            return f" (process {text})"
    return ""
