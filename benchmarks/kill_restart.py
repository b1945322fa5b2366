"""Kill -9 a study's parent at random moments, restart it, and compare with an uninterrupted study bit for bit.

    python benchmarks/kill_restart.py [STUDY.yaml] [--kills 10] [--set key=value ...]

Prints for how many runs outcome, metrics and steps are bit-equal, and whether a run that was done was ever done again
(its result.json written a second time). Exit code 1 when either fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def results(folder: Path) -> dict[str, tuple[str, float]]:
    """Run → (comparable part of its result as text, time of writing)."""
    found: dict[str, tuple[str, float]] = {}
    for path in folder.glob("*/result.json"):
        content = json.loads(path.read_text())
        part = {key: content[key] for key in ("outcome", "metrics", "steps", "bitops")}
        found[path.parent.name] = json.dumps(part, sort_keys=True), path.stat().st_mtime
    return found


def start(study: str, folder: Path, settings: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trivet", "run", study, "--out", str(folder), "--no-report"]
    command += [part for setting in settings for part in ("--set", setting)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", nargs="?", default="recipes/demo.yaml")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    base = Path(tempfile.mkdtemp(prefix="trivet-kill-"))

    begun = time.monotonic()
    if start(options.study, base / "whole", options.set).wait() != 0:
        print("the uninterrupted study failed")
        return 1
    length = time.monotonic() - begun
    whole = results(base / "whole")
    print(f"uninterrupted: {len(whole)} runs in {length:.0f} s")

    written: dict[str, set[float]] = {}
    kills = 0
    while kills < options.kills:
        parent = start(options.study, base / "killed", options.set)
        # Moments spread over start-up and training; short enough that most of them fall inside the study.
        moment = chance.uniform(0.06 * length, 0.2 * length)
        ended = time.monotonic() + moment
        while time.monotonic() < ended and parent.poll() is None:
            time.sleep(0.05)
        if parent.poll() is not None:
            print(f"finished before kill {kills + 1}")
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        kills += 1
        done = results(base / "killed")
        print(f"kill {kills:2d} after {moment:5.1f} s: {len(done)} of {len(whole)} runs done")
        for name, (_, moment) in done.items():
            written.setdefault(name, set()).add(moment)
    code = start(options.study, base / "killed", options.set).wait()
    killed = results(base / "killed")
    for name, (_, moment) in killed.items():
        written.setdefault(name, set()).add(moment)
    equal = sum(killed.get(name, ("", 0.0))[0] == content for name, (content, _) in whole.items())
    twice = sum(len(times) > 1 for times in written.values())
    print(f"after {kills} kills: exit code {code}, {equal} of {len(whole)} runs bit-equal, {twice} done twice")
    return 0 if code == 0 and equal == len(whole) == len(killed) and twice == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
