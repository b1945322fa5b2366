"""A stand-in for `python -m trivet.tasks`: same command line, server protocol, exit codes and files, no torch.

"Training" is a chain of hashes from the run's configuration, so its result is exact and depends on every step; it
writes a checkpoint after each step and resumes from it. Every start and every result leaves a line in the file
FAKE_COUNT. FAKE_STEP_SECONDS slows it down. FAKE_FAULTS is JSON: seed → raise | config | killed-once | killed |
enospc | diverge | exit3 | deaf. FAKE_SERVER: never (exits at start) | dies (exits when the second run is asked for).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from trivet.core.config import digest, load_yaml
from trivet.core.errors import RunFolderError
from trivet.core.io import FileLock, append_jsonl, write_json
from trivet.core.runfolder import RunFolder, RunResult

STEP_SECONDS = float(os.environ.get("FAKE_STEP_SECONDS", "0"))


def count(text: str) -> None:
    if os.environ.get("FAKE_COUNT"):
        with open(os.environ["FAKE_COUNT"], "a", encoding="utf-8") as file:
            file.write(text + "\n")


def run(path: str) -> int:
    folder = RunFolder(Path(path))
    try:
        with FileLock(folder.lock_path):
            if folder.is_done:
                return 0
            folder.error_path.unlink(missing_ok=True)
            return train(folder)
    except RunFolderError as error:
        sys.stdout.write(f"{error}\n")
        return 1


def train(folder: RunFolder) -> int:
    stop: list[int] = []
    config = load_yaml(folder.config_path)
    fault = json.loads(os.environ.get("FAKE_FAULTS", "{}")).get(str(config["seed"]), "")
    if fault == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    begun = time.monotonic()
    saved = folder.checkpoint_path / "state.json"
    step, state = json.loads(saved.read_text()) if saved.exists() else (0, digest(config))
    count(
        f"start {folder.path.name} {step} {os.environ.get('OMP_NUM_THREADS')} {os.environ.get('CUDA_VISIBLE_DEVICES')}"
    )
    write_json(folder.environment_path, {"requested": config["environment"], "variables": {}})
    steps = config["training"]["steps"]
    while step < steps:
        if step == steps // 2:
            code = misbehave(fault, folder)
            if code is not None:
                return code
        time.sleep(STEP_SECONDS)
        step, state = step + 1, hashlib.sha256(f"{state}{step}".encode()).hexdigest()
        append_jsonl(folder.metrics_path, [{"step": step, "train_loss": int(state[:8], 16) / 2**32}])
        write_json(saved, [step, state])
        if stop:
            return 143
    outcome = "diverged" if fault == "diverge" else "finished"
    metrics = (
        {} if fault == "diverge" else {"test_accuracy": int(state[:8], 16) / 2**32, "test_loss": 1.0, "train_loss": 2.0}
    )
    seconds = time.monotonic() - begun
    folder.write_result(
        RunResult(
            outcome=outcome, metrics=metrics, steps=step, bitops=8.0 * step, seconds=seconds, train_seconds=seconds
        )
    )
    count(f"done {folder.path.name}")
    return 0


def misbehave(fault: str, folder: RunFolder) -> int | None:
    mark = folder.path / "killed"
    if fault == "killed" or (fault == "killed-once" and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if fault in ("raise", "config"):
        write_json(folder.error_path, {"type": "ValueError", "message": "made to fail", "traceback": ""})
        return 1 if fault == "raise" else 2
    if fault == "enospc":
        sys.stdout.write("OSError: [Errno 28] No space left on device\n")
        return 1
    if fault == "exit3":
        sys.stdout.write("the last words\n")
        return 3
    return None


def serve() -> int:
    if os.environ.get("FAKE_SERVER") == "never":
        sys.stderr.write("cannot import what is not there\n")
        return 1
    children: dict[int, str] = {}
    asked = 0

    def write(message: dict[str, object]) -> None:
        os.write(1, (json.dumps(message) + "\n").encode())

    def reap(wait: bool = False) -> None:
        while children:
            pid, status = os.waitpid(-1, 0 if wait else os.WNOHANG)
            if not pid:
                return
            write({"run": children.pop(pid), "exit": os.waitstatus_to_exitcode(status)})

    import select

    write({"ready": os.getpid()})
    rest = b""
    while True:
        reap()
        if not select.select([0], [], [], 0.01)[0]:
            continue
        part = os.read(0, 65536)
        if not part:
            break
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "run" in request:
                asked += 1
                mark = os.environ.get("FAKE_COUNT", "") + ".died"
                if os.environ.get("FAKE_SERVER") == "dies" and asked == 2 and not os.path.exists(mark):
                    Path(mark).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                pid = os.fork()
                if pid == 0:
                    child(request)
                children[pid] = request["run"]
                write({"run": request["run"], "pid": pid})
            else:
                ((kind, folder),) = request.items()
                for pid in [pid for pid, running in children.items() if running == folder]:
                    os.killpg(pid, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
    for pid in children:
        os.killpg(pid, signal.SIGTERM)
    reap(wait=True)
    return 0


def child(request: dict[str, object]) -> None:
    import ctypes

    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        log = os.open(Path(str(request["run"])) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(request.get("env") or {})  # type: ignore[arg-type]
        code = run(str(request["run"]))
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["--serve"] else run(sys.argv[1]))
