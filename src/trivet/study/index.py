"""A cache of finished runs in SQLite, so that reading a large study again is quick. It can be deleted at any time.

A row counts only while the run's config.yaml and result.json look exactly as they did when the row was made (size, time
of change, inode); otherwise the folder is read again. Any fault of the database is answered by going without it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trivet.core.runfolder import RunFolder, RunResult
from trivet.study.plan import PlannedRun
from trivet.study.record import Record, done_record

_log = logging.getLogger(__name__)

_TABLE = """CREATE TABLE IF NOT EXISTS runs (
    run_id TEXT PRIMARY KEY, signature TEXT NOT NULL, arm TEXT, seed INTEGER, state TEXT,
    steps INTEGER, bitops REAL, seconds REAL, train_seconds REAL, metrics TEXT NOT NULL)"""

_FILES = tuple(f"/{path.name}" for path in (RunFolder(Path()).config_path, RunFolder(Path()).result_path))

Row = tuple[str, str, str, int, str, int, float, float, float, str]


class Index:
    """The cache of one study folder.

    Examples:
        >>> Index(Path("nowhere/index.sqlite")).load()
        {}
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, Row]:
        """Every row by run; empty when there is no usable database."""
        if not self.path.is_file():
            return {}
        try:
            with contextlib.closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as base:
                rows: list[Row] = base.execute("SELECT * FROM runs").fetchall()
                return {row[0]: row for row in rows if len(row) == 10}
        except (sqlite3.Error, OSError) as error:
            _log.debug("index %s not used: %s", self.path, error)
            return {}

    def save(self, records: Iterable[Record]) -> None:
        """Write the rows of finished runs; a database that cannot be used is replaced, a full disk ignored."""
        rows = [row for record in records if record.is_done for row in [_row(record)] if row]
        for attempt in range(2):
            try:
                with contextlib.closing(sqlite3.connect(self.path)) as base, base:
                    base.execute(_TABLE)
                    base.execute("DELETE FROM runs")
                    base.executemany(f"INSERT INTO runs VALUES ({','.join('?' * 10)})", rows)
                return
            except (sqlite3.Error, OSError, ValueError, OverflowError) as error:  # a value that SQLite cannot hold
                _log.debug("index %s not written: %s", self.path, error)
                if attempt == 0:
                    with contextlib.suppress(OSError):
                        self.path.unlink(missing_ok=True)


def cached_record(row: Row, run: PlannedRun, path: Path) -> Record | None:
    """The record of a row, or None when the row no longer fits the folder."""
    if row[1] != signature(path):
        return None
    try:
        metrics: Mapping[str, Any] = json.loads(row[9])
        result = RunResult(
            outcome=row[4],
            metrics=dict(metrics),
            steps=row[5],
            bitops=row[6],
            seconds=row[7],
            train_seconds=row[8],
        )
    except (ValueError, TypeError):
        return None
    return done_record(run, path, result)


def signature(path: Path) -> str | None:
    """Size, time of change and inode of the files that a finished record is read from; None when one is missing."""
    try:
        stats = [os.stat(f"{path}{name}") for name in _FILES]  # making 20,000 paths takes longer than their disk
    except OSError:
        return None
    return " ".join(f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ino}" for stat in stats)


def _row(record: Record) -> Row | None:
    mark = signature(record.folder)
    if mark is None or record.reason or not 0 <= record.steps < 2**63 or not 0 <= record.seed < 2**63:
        return None  # the cache has no place for it: read from the folder each time
    return (
        record.run_id,
        mark,
        record.arm,
        record.seed,
        record.state,
        record.steps,
        record.bitops,
        record.seconds,
        record.train_seconds,
        json.dumps(dict(record.metrics)),
    )
