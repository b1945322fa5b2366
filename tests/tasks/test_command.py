from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trivet.core.runfolder import RunFolder
from trivet.tasks.command import CommandFailed, extract_metrics, split_command
from trivet.tasks.command_config import CommandConfig
from trivet.tasks.config import RunConfig
from trivet.tasks.run import run_task

MakeRun = Callable[..., RunFolder]


def _config(command: str, metrics: dict[str, str] | None = None, **rest: Any) -> dict[str, Any]:
    return {"task": {"command": command, "metrics": metrics or {}}, **rest}


def _script(folder: Path, text: str) -> Path:
    path = folder / "my script.py"
    path.write_text(textwrap.dedent(text))
    return path


def test_words_are_filled_in_and_never_split_again() -> None:
    task = CommandConfig(command="python 'my script.py' --dir={run_dir} --seed {seed} {{literal}} ${HOME}")
    words = split_command(RunConfig(task=task, seed=5), run_dir="/a b/c")
    assert words == [sys.executable, "my script.py", "--dir=/a b/c", "--seed", "5", "{literal}", "${HOME}"]


def test_the_last_match_counts() -> None:
    output = "epoch 1 loss=3.0\nepoch 2 loss=2e-3\nacc: 0.5\n"
    assert extract_metrics(output, {"loss": r"loss=(\S+)", "acc": "^acc: (.*)$"}) == {"loss": 2e-3, "acc": 0.5}


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf"])
def test_words_for_what_is_not_finite(word: str) -> None:
    assert abs(extract_metrics(f"loss {word}", {"loss": r"loss (\S+)"})["loss"]) != 1.0


def test_what_does_not_match_is_named() -> None:
    with pytest.raises(CommandFailed, match=r"metric 'loss'.*matches nothing in the 2 lines(.|\n)*b$"):
        extract_metrics("a\nb", {"loss": "loss: ([0-9.]+)"})
    with pytest.raises(CommandFailed, match=r"'1\.2\.3', which is no number"):
        extract_metrics("loss: 1.2.3", {"loss": "loss: ([0-9.]+)"})


def test_an_unmodified_script(make_run: MakeRun, tmp_path: Path) -> None:
    script = _script(
        tmp_path,
        """
        import argparse, os, sys
        parser = argparse.ArgumentParser()
        parser.add_argument("--seed", type=int)
        parser.add_argument("--threads", type=int)
        options = parser.parse_args()
        assert os.environ["OMP_NUM_THREADS"] == str(options.threads)
        print("final loss: 9")
        print("final loss:", options.seed / 8, file=sys.stderr)
        """,
    )
    command = f"python '{script}' --seed {{seed}} --threads {{environment.threads}}"
    metrics = {"loss": "final loss: ([0-9.]+)"}
    folder = make_run(config=_config(command, metrics, seed=3, environment={"threads": 2}))
    assert run_task(folder.path) == 0
    result = folder.read_result()
    assert (result.outcome, dict(result.metrics), result.bitops) == ("finished", {"loss": 0.375}, 0.0)
    assert result.seconds > 0
    assert "final loss: 0.375" in folder.log_path.read_text()
    assert (folder.source_path / script.name).read_text() == script.read_text()
    environment = folder.read_environment()
    assert environment["requested"]["threads"] == 2
    assert environment["realised"] == {}
    assert folder.read_error() is None


def test_rows_logged_by_the_script(make_run: MakeRun, tmp_path: Path) -> None:
    script = _script(
        tmp_path,
        """
        import trivet
        with trivet.run() as run:
            for step in (1, 2, 3):
                run.log({"loss": 1 / step, "accuracy": step / 4}, step=step)
        """,
    )
    folder = make_run(config=_config(f"python '{script}'"))
    folder.metrics_path.write_text('{"step": 9, "loss": 5}\n')  # left by an attempt that was killed
    assert run_task(folder.path) == 0
    assert folder.read_result().comparable == ("finished", {"loss": 1 / 3, "accuracy": 0.75}, 3)
    assert [row["step"] for row in folder.read_metrics()] == [1, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        "print('loss: nan')",
        "print('loss: 1')\nprint('loss: inf')",
    ],
)
def test_a_number_that_is_not_finite_is_divergence(text: str, make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(config=_config(f"python '{_script(tmp_path, text)}'", {"loss": r"loss: (\S+)"}))
    assert run_task(folder.path) == 0
    assert folder.read_result().comparable[:2] == ("diverged", {})
    assert folder.read_result().extra["reason"] == "not a finite number at the end: loss"


@pytest.mark.parametrize("declared", [True, False])
def test_only_what_the_study_is_judged_by_makes_a_run_diverged(
    declared: bool, make_run: MakeRun, tmp_path: Path
) -> None:
    text = (
        "import trivet\nwith trivet.run() as r: r.log({'aux': float('nan'), 'acc': 0.5}, step=10**3)\nprint('loss: 1')"
    )
    (tmp_path / "study.yaml").write_text("metric: {name: acc}\n")
    metrics = {"loss": r"loss: (\S+)"} if declared else {}
    folder = make_run(config=_config(f"python '{_script(tmp_path, text)}'", metrics))
    assert run_task(folder.path) == 0
    result = folder.read_result()
    assert result.comparable == ("finished", {"acc": 0.5, **({"loss": 1.0} if declared else {})}, 1000)
    assert result.extra["reason"] == "left out, not a finite number at the end: aux"
    (tmp_path / "study.yaml").write_text("metric: {name: aux}\n")
    again = make_run("again", config=_config(f"python '{tmp_path / 'my script.py'}'", metrics))
    assert run_task(again.path) == 0
    assert again.read_result().outcome == "diverged"
    assert again.read_result().extra["reason"].endswith(": aux")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("loss: 1.5e-05", r"takes '1\.5' out of '1\.5e-05'"),
        ("loss: -1.5", r"passes over '-1\.5'"),
        ("loss: 3\nloss: -1.5", r"passes over '-1\.5'"),
        ("loss: .5_000", r"takes '\.5' out of '\.5_000'"),
    ],
)
def test_a_part_of_a_number_is_refused_with_the_better_pattern(output: str, said: str) -> None:
    with pytest.raises(CommandFailed, match=rf"{said}(.|\n)*write `task\.metrics\.loss: 'loss: \(\\S\+\)'`"):
        extract_metrics(output, {"loss": "loss: ([0-9.]+)"})
    with pytest.raises(CommandFailed, match="another number"):
        extract_metrics("a value of -2", {"loss": "a value.*?([0-9.]+)"})


def test_what_may_stand_around_a_number() -> None:
    digits = "loss: ([0-9.]+)"
    assert extract_metrics("loss: 0.5s", {"loss": digits}) == {"loss": 0.5}
    assert extract_metrics("loss: 0.5, x", {"loss": r"loss: (\S+)"}) == {"loss": 0.5}
    assert extract_metrics("run-7-b", {"n": r"run-(\d+)"}) == {"n": 7}
    assert extract_metrics("v1.25", {"n": r"v(\d)\.25"}) == {"n": 1}
    assert extract_metrics("loss: 1 end\nloss: 2 middle", {"loss": "loss: ([0-9.]+) end"}) == {"loss": 1}
    for text in ("loss: nan", "loss: 1\nloss: nan"):
        assert str(extract_metrics(text, {"loss": digits})["loss"]) == "nan"


def test_a_huge_step_of_a_script_that_writes_rows_itself(make_run: MakeRun, tmp_path: Path) -> None:
    row = "'{\"step\": 1' + '0' * 400 + ', \"l\": 1}\\n'"
    text = f"import os\nopen(os.environ['TRIVET_RUN_DIR'] + '/metrics.jsonl', 'a').write({row})"
    folder = make_run(config=_config(f"python '{_script(tmp_path, text)}'"))
    assert run_task(folder.path) == 0
    assert folder.read_result().comparable == ("finished", {"l": 1.0}, 0)


@pytest.mark.parametrize(
    ("text", "metrics", "words"),
    [
        ("import sys; print('about to fail'); sys.exit(3)", {"loss": "loss: (.*)"}, ["exit code 3", "about to fail"]),
        ("import os; os.kill(os.getpid(), 9)", {"loss": "loss: (.*)"}, ["SIGKILL"]),
        ("print('lost: 1')", {"loss": "loss: (.*)"}, ["metric 'loss'", "lost: 1"]),
        ("print('nothing')", {}, ["gave no metric"]),
    ],
)
def test_failures_say_why(text: str, metrics: dict, words: list[str], make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(config=_config(f"python '{_script(tmp_path, text)}'", metrics))
    assert run_task(folder.path) == 1
    error = folder.read_error()
    assert error is not None
    assert error["type"] == "CommandFailed"
    assert all(word in error["message"] for word in words)
    assert not folder.result_path.exists()
    assert "CommandFailed" in error["traceback"]
    assert error["message"].splitlines()[0] in folder.log_path.read_text()


def test_a_program_that_is_not_there(make_run: MakeRun) -> None:
    folder = make_run(config=_config("no-such-program", {"loss": "(.*)"}))
    assert run_task(folder.path) == 2
    error = folder.read_error()
    assert error is not None
    assert "no-such-program" in error["message"]


SLEEPER = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], "pid").write_text(str(os.getpid()))
time.sleep(60)
"""


def _wait_for(path: Path) -> str:
    for _ in range(1000):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_run(
    number: signal.Signals, make_run: MakeRun, start: Callable[[RunFolder], subprocess.Popen[str]], tmp_path: Path
) -> None:
    folder = make_run(config=_config(f"python '{_script(tmp_path, SLEEPER)}' {{run_dir}}", {"loss": "(.*)"}))
    process = start(folder)
    child = int(_wait_for(folder.path / "pid"))
    os.kill(process.pid, number)  # the process alone, not its group
    assert process.wait(timeout=30) == (143 if number == signal.SIGTERM else -9)
    for _ in range(200):
        if not _is_alive(child):
            break
        time.sleep(0.02)
    assert not _is_alive(child)
    assert not folder.result_path.exists()
    assert folder.read_error() is None


def test_the_environment_says_where_it_listens(make_run: MakeRun, tmp_path: Path) -> None:
    script = _script(
        tmp_path, "import json, os; print('seen', json.dumps(os.environ['TRIVET_RUN_DIR'])); print('loss: 1')"
    )
    folder = make_run(config=_config(f"python '{script}'", {"loss": "loss: (.*)"}))
    assert run_task(folder.path) == 0
    assert f"seen {json.dumps(str(folder.path))}" in folder.log_path.read_text()
