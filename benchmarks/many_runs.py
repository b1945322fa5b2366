"""What a large study costs the parent: planning, scheduling, `trivet status`, the report, memory.

    python benchmarks/many_runs.py 1000 10000

The runs are trivial: an executor inside the parent writes each result.json at once (a process for each would measure
the processes). Its own time is measured and taken off, so "scheduling" is what the parent adds to a run: its folder and
config.yaml, the start, looking for the end, reading the result. Each size runs in a process of its own; `status` is the
command as a user starts it. Seconds are of the clock, "cpu" those of the processor: on a busy machine only these mean
much. Prints a table for docs/scale.md.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ARMS = 10


class InProcess:
    """Writes a result where a process would run."""

    def __init__(self) -> None:
        self.seconds = 0.0

    start_seconds = 0.0

    def command(self, job: Any) -> list[str]:
        return ["true", str(job.folder)]

    def start(self, job: Any) -> Any:
        from trivet.core.runfolder import RunFolder, RunResult
        from trivet.study.executors.base import Exit

        begun = time.perf_counter()
        loss = (job.run.seed * 7919 % 1000) / 1000
        RunFolder(job.folder).write_result(RunResult(outcome="finished", metrics={"loss": loss}, steps=1))
        self.seconds += time.perf_counter() - begun
        return Exit(code=0, waited=0.0, ran=0.0)

    def poll(self, handle: Any) -> Any:
        return handle

    def cancel(self, handle: Any, *, force: bool) -> None:
        return

    def wait(self, seconds: float) -> None:
        return

    def close(self) -> None:
        return


def measure(count: int, root: Path) -> dict[str, float]:
    from trivet.study import Results, Study, StudySpec

    task = {"command": "true {seed}", "metrics": {"loss": r"loss: (\S+)"}}
    levels = {f"a{number}": {"task": {"command": f"true {number} {{seed}}"}} for number in range(ARMS)}
    content = {"name": "many", "base": {"task": task}, "factors": {"arm": levels}, "seeds": count // ARMS}
    study = Study(StudySpec.from_mapping({**content, "metric": {"name": "loss"}}), root / "many")
    begun = time.perf_counter()
    runs = study.plan()
    planned = time.perf_counter() - begun
    place: Any = InProcess()
    begun, used = time.perf_counter(), time.process_time()
    study.run(place, slots=2)
    ran, used = time.perf_counter() - begun, time.process_time() - used
    parent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    command = [sys.executable, "-m", "trivet", "status", str(root / "many")]
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    status = time.perf_counter() - begun
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    results = Results.load(root / "many")
    read = time.perf_counter() - begun
    from trivet.report.build import build

    begun, drawn = time.perf_counter(), time.process_time()
    page = build(results, None)
    report, drawn = time.perf_counter() - begun, time.process_time() - drawn
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "runs": len(runs),
        "plan s": planned,
        "scheduling ms/run": 1000 * (ran - place.seconds) / count,
        "with its writing, cpu ms/run": 1000 * used / count,
        "status s": status,
        "cpu s of status": own.ru_utime + own.ru_stime,
        "of which reading s": read,
        "report s": report,
        "cpu s of report": drawn,
        "report MB": page.stat().st_size / 1e6,
        "parent MB": parent,
        "with report MB": peak,
    }


def main(counts: list[int]) -> None:
    if len(counts) == 1 and "--inner" in sys.argv:
        with tempfile.TemporaryDirectory(prefix="trivet-many-") as scratch:
            print(json.dumps(measure(counts[0], Path(scratch))))
        return
    rows = []
    for count in counts:
        command = [sys.executable, __file__, str(count), "--inner"]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
        print(rows[-1], file=sys.stderr, flush=True)
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(f"{value:,.4g}" if value < 1000 else f"{value:,.0f}" for value in row.values()) + " |")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:] if word.isdigit()] or [1000, 10_000])
