"""`trivet run` on a user's script: outcome, resume, plan, commands, failures, Ctrl-C, pipes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Finished = tuple[Path, Any]
ESCAPE = "\x1b"


def test_it_ends_with_verdict_table_times_and_report(finished: Finished) -> None:
    folder, ended = finished
    assert ended.code == 0, ended.err
    order = ["large", "small", "95 % interval", "where the time went", "report: "]
    places = [ended.out.index(words) for words in order]
    assert places[2:] == sorted(places[2:])
    assert "UNDECIDED" in ended.out, "three pairs cannot decide"
    assert (folder / "report.html").is_file()
    assert str(Path("studies/tiny/report.html")) in ended.out.splitlines()[-1]


def test_progress_is_plain_lines_on_standard_error(finished: Finished) -> None:
    _, ended = finished
    assert ESCAPE not in ended.out + ended.err
    counted = re.findall(r"^\[(\d)/6\] (?:small|large), seed \d: finished in [\d.]+ s", ended.err, re.MULTILINE)
    assert counted == ["1", "2", "3", "4", "5", "6"]
    assert "left" in ended.err


def test_the_same_command_runs_nothing_again(finished: Finished, trivet: Any) -> None:
    folder, _ = finished
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}
    ended = trivet(
        "run", folder.parent.parent / "tiny.yaml", "--out", folder, "--no-report", "--json", cwd=folder.parent.parent
    )
    assert ended.code == 0
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/result.json")} == before
    content = json.loads(ended.out)
    assert content["report"] is None
    assert content["study"]["runs"]["finished"] == 6
    assert content["comparisons"][0]["label"] == "undecided"
    assert content["harness"]["runs"] == 6


def test_a_dry_run_writes_nothing(trivet: Any, study: Any, tmp_path: Path) -> None:
    study()
    ended = trivet("run", "tiny.yaml", "--dry-run")
    assert ended.code == 0
    assert "6 runs = 2 arms × 3 seeds" in ended.out
    assert "nothing was run" in ended.out
    assert not (tmp_path / "studies").exists()


def test_a_dry_run_of_a_finished_study_knows_the_time(finished: Finished, trivet: Any) -> None:
    folder, _ = finished
    ended = trivet("run", folder, "--dry-run", "--json", "--set", "seeds=5", cwd=folder.parent.parent)
    content = json.loads(ended.out)
    assert content["runs"] == {"planned": 10, "done": 6}
    assert content["expected_seconds"] > 0
    assert content["estimate"] == "from the 6 finished runs of this study"
    assert [arm["arm"] for arm in content["arms"]] == ["small", "large"]
    assert content["arms"][0]["bitops"] is None


def test_printed_commands_do_the_runs(trivet: Any, study: Any, tmp_path: Path) -> None:
    study()
    ended = trivet("run", "tiny.yaml", "--print-commands", "--set", "seeds=1")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert len(lines) == 2
    assert all("-m trivet.tasks" in line for line in lines)
    for line in lines:
        subprocess.run(line, shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert "2 of 2 runs are done" in trivet("status", "studies/tiny").err


def test_failed_runs_end_with_exit_code_one_and_their_reason(
    real_trivet: Any, trivet: Any, study: Any, tmp_path: Path
) -> None:
    study(("{seed} 0.5 fine", "{seed} 0.5 crash"), ("seeds: 3", "seeds: 1"))
    ended = real_trivet("run", "tiny.yaml", "--no-report")
    assert ended.code == 1
    assert "failed" in ended.out
    assert "ended with exit code 1" in ended.out
    assert "log.txt" in ended.out
    assert "ended with exit code 1" in trivet("status", "studies/tiny").out
    assert any("no such luck" in log.read_text() for log in tmp_path.glob("studies/tiny/*/log.txt"))


def test_ctrl_c_stops_with_130_and_the_same_command_goes_on(trivet: Any, study: Any, tmp_path: Path) -> None:
    study(("0.5 fine", "0.5 slow"), ("seeds: 3", "seeds: 1"))
    command = [sys.executable, "-m", "trivet", "run", "tiny.yaml", "--slots", "1", "--no-report"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("studies/tiny/*/source/versions.txt")):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "the same command goes on from here" in err
    assert "Traceback" not in err
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text().replace("time.sleep(60)", "pass"))
    again = trivet("run", "studies/tiny", "--no-report")
    assert again.code == 0, again.err


def test_a_closed_pipe_is_no_error(finished: Finished) -> None:
    folder, _ = finished
    line = f"{sys.executable} -m trivet status {folder} --json | head -c 1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_terminal_without_unicode_still_gets_its_table(real_trivet: Any) -> None:
    ended = real_trivet("schedule", PYTHONIOENCODING="ascii")
    assert ended.code == 0
    assert "RTH" in ended.out


def test_a_metric_that_no_run_logs_ends_with_exit_code_one(trivet: Any, study: Any, tmp_path: Path) -> None:
    task = ("task: {command: \"python train.py {seed} 0.0 fine\", metrics: {loss: 'final loss: ([0-9.]+)'}}",)
    file = study((*task, 'task: {command: "python log.py"}'), ("train.py {seed} 0.5 fine", "log.py 1"))
    file.write_text(file.read_text().replace("name: loss", "name: acc"))
    (tmp_path / "log.py").write_text("import trivet\ntrivet.run().log({'accuracy': 0.5}, step=1)\n")
    ended = trivet("run", file, "--no-report")
    assert ended.code == 1
    assert "the metric acc was not reported; reported: accuracy; did you mean 'accuracy'?" in ended.out
    assert "diverged or failed" not in ended.out


def test_a_folder_that_cannot_be_made_ends_with_exit_code_two(trivet: Any, study: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = trivet("run", study(), "--out", "file/x")
    assert ended.code == 2
    assert "is a file" in ended.err
    assert "choose another one with --out" in ended.err


def test_until_decided_stops_at_a_planned_look(trivet: Any, study: Any, tmp_path: Path) -> None:
    study(("seeds: 3", "seeds: 12"), ("margin: 0.01", "margin: 1000.0"))
    words = ("run", "tiny.yaml", "--until-decided", "--looks", "2", "--no-report", "--json")
    content = json.loads(trivet(*words).out)
    (row,) = content["comparisons"]
    assert (row["label"], row["n_pairs"]) == ("equivalent", 7)
    assert "Look 1 of 2" in row["sentence"]
    assert content["study"]["runs"]["planned"] == 14
    assert any("10 runs were not needed" in notice for notice in content["notices"])
    again = trivet("compare", tmp_path / "studies" / "tiny", "--json")
    assert json.loads(again.out)["comparisons"][0]["sentence"] == row["sentence"]


def test_until_decided_needs_seeds(trivet: Any, study: Any) -> None:
    study(("seeds: 3", "seeds: 5"))
    ended = trivet("run", "tiny.yaml", "--until-decided")
    assert ended.code == 2
    assert "at least 6" in ended.err
