"""Progress of a study on the terminal: a live table on a TTY, one plain line a finished run elsewhere.

Outcomes are not shown before the study has ended: looking at means on the way invites stopping when they please.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.cli.console import console, talk
from trivet.cli.timing import TimeLeft, duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trivet.study import ActiveRun, PlannedRun, Record

HEARTBEAT = 60.0
"""Seconds without a line after which plain progress says that it is alive."""

TAIL = 4096
"""Bytes of metrics.jsonl that are read to see how far a run is."""


def progress(runs: Sequence[PlannedRun], records: Sequence[Record] = ()) -> PlainProgress:
    """The progress that fits standard error: live on a terminal, plain lines elsewhere."""
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return LiveProgress(runs, records) if live else PlainProgress(runs, records)


def step_of(folder: Path) -> int | None:
    """Last step that a run has logged, from the end of its metrics file.

    Examples:
        >>> step_of(Path("nowhere")) is None
        True
    """
    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            return row["step"]
    return None


class PlainProgress:
    """Counts, and says one line an event; also the base of the live one."""

    def __init__(self, runs: Sequence[PlannedRun], records: Sequence[Record] = ()) -> None:
        """Args: runs: everything planned; records: how the runs stand before the start."""
        self.planned = Counter(run.arm for run in runs)
        self.steps = {run.run_id: _steps(run.config) for run in runs}
        self.total, self.done, self.slots = len(runs), 0, 1
        self.by_arm: dict[str, Counter[str]] = {arm: Counter() for arm in self.planned}
        self.clock = TimeLeft(1)
        self.start = self.last_line = time.monotonic()
        self.began: dict[str, float] = {}
        self.active: list[ActiveRun] = []
        for record in records:
            self.by_arm[record.arm][record.state] += record.is_done

    def begin(self, total: int, done: int, slots: int) -> None:
        """See `trivet.study.Progress`."""
        self.total, self.done, self.slots = total, done, slots
        self.clock = TimeLeft(slots)
        already = f", {done} done already" if done else ""
        self.say(f"{total} runs ({len(self.planned)} arms){already}; {slots} at the same time")

    def started(self, run: PlannedRun, attempt: int) -> None:
        """See `trivet.study.Progress`."""
        self.began[run.run_id] = time.monotonic()
        if attempt > 1:
            self.say(f"{run.arm}, seed {run.seed}: was killed; started again")

    def ended(self, record: Record) -> None:
        """See `trivet.study.Progress`."""
        began = self.began.pop(record.run_id, None)
        self.active = [item for item in self.active if item.run.run_id != record.run_id]
        if record.state == "pending":
            return
        self.by_arm[record.arm][record.state] += 1
        self.done += record.is_done
        seconds = None if began is None else time.monotonic() - began
        if seconds is not None and record.state == "finished":
            self.clock.add(record.arm, seconds)
        self.line(record, seconds)

    def line(self, record: Record, seconds: float | None) -> None:
        """Say that a run has come to rest."""
        took = "" if seconds is None else f" in {seconds:.1f} s"
        reason = f": {record.reason}" if record.reason else ""
        left = self.left()
        rest = f"; about {duration(left)} left" if left is not None and self.done < self.total else ""
        self.say(f"[{self.done}/{self.total}] {record.arm}, seed {record.seed}: {record.state}{took}{reason}{rest}")

    def tick(self, active: Sequence[ActiveRun]) -> None:
        """See `trivet.study.Progress`."""
        self.active = list(active)
        if time.monotonic() - self.last_line > HEARTBEAT and active:
            running = ", ".join(f"{item.run.arm} seed {item.run.seed}{self.place(item)}" for item in active)
            self.say(f"… running: {running}")

    def place(self, item: ActiveRun) -> str:
        """How far a run is, as text."""
        step, steps = step_of(item.folder), self.steps.get(item.run.run_id, 0)
        if step is None:
            return ""
        return f" at step {step:,} of {steps:,}" if steps else f" at step {step:,}"

    def message(self, text: str) -> None:
        """See `trivet.study.Progress`."""
        self.say(text)

    def say(self, text: str) -> None:
        """One line for the user."""
        self.last_line = time.monotonic()
        talk(text)

    def end(self) -> None:
        """See `trivet.study.Progress`."""

    def left(self) -> float | None:
        """Seconds left, or None while nothing is known."""
        active = Counter(item.run.arm for item in self.active)
        waiting = {
            arm: max(planned - self.by_arm[arm].total() - active[arm], 0) for arm, planned in self.planned.items()
        }
        return self.clock.left(waiting, [(item.run.arm, item.seconds) for item in self.active])


class LiveProgress(PlainProgress):
    """A table that redraws itself: arms, how many runs are done, how far the running ones are, time left."""

    def __init__(self, runs: Sequence[PlannedRun], records: Sequence[Record] = ()) -> None:
        """See `PlainProgress`."""
        super().__init__(runs, records)
        from rich.live import Live

        self._live = Live(console=console(sys.stderr), auto_refresh=False, transient=True)

    def begin(self, total: int, done: int, slots: int) -> None:
        """Start drawing."""
        super().begin(total, done, slots)
        self._live.start()

    def line(self, record: Record, seconds: float | None) -> None:
        """Only what went wrong gets a line that stays."""
        if record.state != "finished":
            super().line(record, seconds)

    def tick(self, active: Sequence[ActiveRun]) -> None:
        """Redraw."""
        self.active = list(active)
        self._live.update(self._draw(), refresh=True)

    def say(self, text: str) -> None:
        """A line above the table."""
        self._live.console.print(text, soft_wrap=True)

    def end(self) -> None:
        """Take the table away; the result follows."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        left = self.left()
        gone = duration(time.monotonic() - self.start)
        rest = f", about {duration(left)} left" if left is not None else ""
        head = Text.assemble(
            (f"{self.done} of {self.total} runs", "bold"),
            f"   {gone} gone{rest}   Ctrl-C stops, the same command goes on",
        )
        grid = Table.grid(padding=(0, 2))
        for arm in self.planned:
            running = [item for item in self.active if item.run.arm == arm]
            done = self._done_of(arm)
            bar = ProgressBar(
                total=self.planned[arm], completed=done + sum(self._fraction(i) for i in running), width=24
            )
            now = "   ".join(f"seed {item.run.seed}{self.place(item)}" for item in running)
            grid.add_row(Text(arm), bar, Text(f"{done}/{self.planned[arm]}"), Text(now, style="dim"))
        return Group(head, grid)

    def _done_of(self, arm: str) -> int:
        return sum(self.by_arm[arm][state] for state in ("finished", "diverged"))

    def _fraction(self, item: ActiveRun) -> float:
        step, steps = step_of(item.folder), self.steps.get(item.run.run_id, 0)
        return min((step or 0) / steps, 1.0) if steps else 0.0


def _steps(config: Any) -> int:
    training = config.get("training") or {}
    return int(training.get("steps") or 0)
