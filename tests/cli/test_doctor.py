"""`trivet doctor`: the table, its assertions, and a user's own script; two tests start real trainings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.audit.movement import Movement, Trace
from trivet.audit.settings import BASELINE, REPEAT, settings
from trivet.cli import doctor_script, moving
from trivet.cli.moving import Row, advice, broken_controls, columns, readings

Trivet = Callable[..., Any]

STILL = Movement(step=None, loss_step=None, distances={1: 0.0}, end=0.0, path_share=0.0, churn=0.0, steps=(1, 1))


def moved(end: float, loss_step: int | None = None) -> Movement:
    return replace(STILL, step=1, loss_step=loss_step, distances={1: end}, end=end, path_share=end)


def row(name: str, found: Movement | None, **fields: Any) -> Row:
    setting = next(one for one in settings("all", cores=2) if one.name == name)
    return Row(setting=setting, moved=found, unrealised={}, **fields)


ROWS = [
    row(REPEAT, STILL),
    row("NNPACK off", STILL),
    row("rounding 2^-24", moved(1e-7, 17)),
    row("threads 2", moved(2e-7, 1)),
    row("autocast bf16", moved(0.2, 1)),
    replace(row("MKL AVX2", STILL), unrealised={"mkl_cbwr": "asked AVX2, got AUTO"}),
    replace(row("GPU instead of CPU", None), problem="not here: no CUDA device"),
]


def test_what_the_table_says() -> None:
    titles, cells = columns(ROWS)
    assert len(cells) == 6
    assert {len(line) for line in cells} == {len(titles)}
    lines = {line[0]: line for line in cells}
    assert lines["MKL AVX2"][1] == "no: asked AVX2, got AUTO"
    assert lines["rounding 2^-24"][2:5] == ["1", "17", "1e-07"]
    assert broken_controls(ROWS) == []
    text = "\n".join(readings(ROWS))
    assert "3 of 6 settings changed no bit" in text
    assert "more than 10 times that: autocast bf16" in text
    assert "in 1 of 3 settings that change the weights" in text
    assert [name for name, _ in advice(ROWS)] == ["rounding 2^-24", "threads 2", "autocast bf16"]


def test_a_repeat_that_is_not_zero_is_reported_loudly(trivet: Trivet, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(REPEAT, moved(1e-9)), row("NNPACK off", moved(1e-9)), *ROWS[2:]]
    assert len(broken_controls(rows)) == 2
    monkeypatch.setattr(moving, "measured", lambda group: rows)
    ended = trivet("doctor", "--no-checks")
    assert ended.code == 1
    assert "THE SAME TRAINING GAVE OTHER BITS" in ended.err
    assert "NNPACK off: must not change a bit" in ended.err
    unrealised = [replace(rows[1], unrealised={"nnpack off": "not so"})]
    assert broken_controls(unrealised) == []


def test_the_table_and_its_json(trivet: Trivet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(moving, "measured", lambda group: asked.append(group) or ROWS)
    ended = trivet("doctor", "--no-checks", "--quick")
    assert ended.code == 0
    assert "not here: no CUDA device: GPU instead of CPU" in ended.out
    assert "threads 2: fix the number of threads" in ended.out
    content = json.loads(trivet("doctor", "--no-checks", "--all", "--json").out)
    assert content["ok"] is True
    assert asked == ["quick", "all"]
    by_name = {one["setting"]: one for one in content["settings"]}
    assert by_name["MKL AVX2"]["realised"] is False
    assert by_name["MKL AVX2"]["reason"] == "mkl_cbwr: asked AVX2, got AUTO"
    assert by_name["autocast bf16"]["distance"] == {"1": 0.2}
    failed = [replace(ROWS[1], moved=None, problem="failed: RuntimeError: no")]
    monkeypatch.setattr(moving, "measured", lambda group: failed)
    assert trivet("doctor", "--no-checks").code == 1


def test_options_that_exclude_each_other(trivet: Trivet) -> None:
    for arguments, words in [
        (("--quick", "--all"), "exclude each other"),
        (("--no-checks", "--no-settings"), "nothing to do"),
        (("--no-smoke", "--", "python", "x.py"), "do not apply to a command"),
        (("--", "no-such-program"), "there is no program"),
    ]:
        ended = trivet("doctor", *arguments)
        assert ended.code == 2
        assert words in ended.err


def test_real_trainings_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [one for one in settings("all", cores=2) if one.name in (BASELINE, REPEAT, "NNPACK off", "other seed")]
    monkeypatch.setattr(moving, "settings", lambda group, cores: chosen)
    rows = {one.setting.name: one for one in moving.measured("quick", steps=2)}
    assert rows[REPEAT].is_realised
    assert rows[REPEAT].moved is not None
    assert rows[REPEAT].moved.is_zero, "forked or started from nothing, the bits must be the same"
    assert rows["other seed"].moved is not None
    assert rows["other seed"].moved.step == 0
    assert broken_controls(list(rows.values())) == []


PLAIN = """
import os, random, sys, time
seeded = "--seed" in sys.argv
print("loss", 0.5 if seeded else random.random(), "took", time.perf_counter())
print("threads", os.environ.get("OMP_NUM_THREADS", "unset"))
if os.environ.get("ATEN_CPU_CAPABILITY") and "--fragile" in sys.argv:
    sys.exit("no such instructions")
print("folder", sys.argv[-1])
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    path = tmp_path / "plain.py"
    path.write_text(PLAIN)
    return path


def test_a_script_without_torch_is_compared_by_what_it_prints(trivet: Trivet, script: Path) -> None:
    ended = trivet("doctor", "--quick", "--json", "--", "python", "plain.py", "--seed", "--fragile", "{run_dir}")
    assert ended.code == 0, ended.err
    content = json.loads(ended.out)
    assert (content["followed"], content["ok"]) == (False, True)
    assert "1 numbers or lines differ between two runs and are left out" in content["notes"][0]
    rows = {one["setting"]: one for one in content["settings"]}
    assert rows["threads 2"]["moves_result"] is True
    assert rows["threads 2"]["printed"]["last"] == "'threads unset' and 'threads 2'"
    assert rows["threads 2"]["realised"] is None
    assert rows["all three lowest"]["reason"] == "failed with exit code 1: no such instructions"
    shown = trivet("doctor", "--quick", "--", "python", "plain.py", "--seed", "x")
    assert "threads 2: fix the number of threads" in shown.out


def test_a_script_that_fails_ends_the_doctor(trivet: Trivet, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("raise RuntimeError('no such luck')")
    ended = trivet("doctor", "--", "python", "bad.py")
    assert ended.code == 1
    assert "no such luck" in ended.err


def fake(step: int | None, code: int = 0) -> doctor_script.Run:
    sums = ["0", "a", "b"]
    weights = {0: np.zeros(2), 2: np.ones(2)}
    if step is not None:
        sums[step] = f"{step}{np.random.default_rng().random()}"
        weights[2] = np.array([1.0, 1.5])
    trace = Trace(checksums=sums, losses=["x", "y"], weights=weights)
    used = {"device": "cpu", "threads": 1, "aten_isa": "avx2", "onednn_isa": "AVX2", "mkl_cbwr": "OFF"}
    return doctor_script.Run(code=code, output="", errors="", seconds=1.0, trace=trace, used=used)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("seeds", "seed them in the script"),
        ("threads", "threads race in it"),
        ("else", "it still does not"),
        ("", "bit-equal in the weights of 2"),
    ],
)
def test_why_a_script_does_not_repeat(cause: str, words: str, trivet: Trivet, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(lab: Any, what: str, variables: dict[str, str], *, seed: bool = False) -> doctor_script.Run:
        mended = {"": True, "seeds": seed, "threads": seed and "OMP_NUM_THREADS" in variables, "else": False}[cause]
        return fake(2 if what == "all three lowest" or not mended else None)

    monkeypatch.setattr(doctor_script._Lab, "run", run)
    ended = trivet("doctor", "--quick", "--", "python", "x.py")
    assert ended.code == (1 if cause == "else" else 0)
    assert words in ended.out
    assert ("TWO RUNS OF THE SAME COMMAND" in ended.out) == bool(cause)
    if cause != "else":
        assert "asked 2, got 1" in ended.out  # the script sets its threads itself
        assert "all three lowest: ATEN_CPU_CAPABILITY=default" in ended.out


TORCH = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.arange(8.0).view(2, 4) / 8
for step in range(6):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item())
print("end")
"""


def test_a_script_with_torch_is_followed_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TORCH)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("print('mine')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(mine), os.environ.get("PYTHONPATH", "")]))
    lab = doctor_script._Lab([sys.executable, str(tmp_path / "train.py")], tmp_path, steps=4)
    found = lab.run("once", {})
    assert found.code == 0, found.errors
    printed = found.output.splitlines()
    assert printed[0] == "mine"
    assert len(printed) == 4, "the last step is stopped before it prints"
    assert found.trace is not None
    assert sorted(found.trace.weights) == [0, 1, 4]
    assert len(set(found.trace.checksums)) == 5
    losses = [float.fromhex(value) for value in found.trace.losses]
    assert losses[:3] == pytest.approx([float(line.split()[2]) for line in printed[1:]], rel=1e-6)
    assert found.used["threads"] == 1
    x = (np.arange(8.0) / 8).reshape(2, 4)
    start = found.trace.weights[0]
    residual = x @ start[:4] + start[4]
    expected = start - 0.1 * np.append(residual @ x, residual.sum())
    np.testing.assert_allclose(found.trace.weights[1], expected, rtol=1e-5)
