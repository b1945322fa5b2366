"""Errors, registry, seeds, environment variables, the user's run, and what importing trivet loads."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trivet
from trivet.core import seeding
from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import ConfigError, MissingExtraError, Problem, TrivetError, nearest, unknown_name
from trivet.core.io import read_jsonl
from trivet.core.registry import Registry
from trivet.core.user_run import UserRun


def test_exit_codes_of_errors() -> None:
    assert TrivetError.exit_code == 1
    assert ConfigError.exit_code == MissingExtraError.exit_code == 2
    assert issubclass(ConfigError, ValueError)


def test_config_error_lists_every_problem() -> None:
    error = ConfigError([Problem("a.yaml", "x", "1", "2"), Problem("", "y", "3", "4", "try 4")])
    assert str(error).splitlines() == [
        "a.yaml: x: found 1; allowed: 2",
        "y: found 3; allowed: 4; try 4",
    ]


@pytest.mark.parametrize(
    ("name", "allowed", "close"),
    [
        ("seedz", ["name", "seeds"], "seeds"),
        ("COSINE", ["cosine", "linear"], "cosine"),
        ("fash", ["digits", "fashion-mnist"], "fashion-mnist"),
        ("", ["a"], None),
        ("zzz", ["cosine"], None),
    ],
)
def test_nearest(name: str, allowed: list[str], close: str | None) -> None:
    assert nearest(name, allowed) == close
    assert ("did you mean" in unknown_name("thing", name, allowed)) == (close is not None)


def test_registry() -> None:
    things: Registry[int] = Registry("thing")
    things.register("one")(1)
    things.add("two", 2)
    with pytest.raises(ValueError, match="registered already"):
        things.add("one", 3)
    with pytest.raises(ValueError, match="unknown thing 'on'; allowed: one, two; did you mean 'one'"):
        things.get("on")
    assert things.names("t*") == ["two"]
    assert list(things) == ["one", "two"]
    assert "one" in things


@given(st.integers(0, 2**62), st.lists(st.text(max_size=5), max_size=3))
def test_derived_seeds_are_63_bit_and_stable(seed: int, names: list[str]) -> None:
    value = seeding.derive(seed, *names)
    assert 0 <= value < 2**63
    assert value == seeding.derive(seed, *names)
    assert value != seeding.derive(seed + 1, *names)
    assert value != seeding.derive(seed, *names, "more")


def test_derived_seeds_are_the_same_on_every_machine() -> None:
    # printf '0\037data' | sha256sum, the first sixteen hex digits, shifted right by one bit.
    assert seeding.derive(0, "data") == int("f35a24bed5cf7762", 16) >> 1


def test_seed_everything_repeats() -> None:
    draws = []
    for _ in range(2):
        seeding.seed_everything(7)
        draws.append((random.random(), float(np.random.rand())))
    assert draws[0] == draws[1]
    with pytest.raises(ValueError, match="-1"):
        seeding.seed_everything(-1)


def test_environment_variables_are_set_for_every_pool() -> None:
    variables = EnvironmentConfig(threads=3).variables()
    assert set(variables.values()) == {"3"}
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"} <= set(variables)
    with pytest.raises(ValueError, match="threads=0"):
        EnvironmentConfig(threads=0)


def test_user_run_is_silent_outside_a_study_and_writes_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trivet.run() as run:
        run.log({"loss": 1.0}, step=0)
        assert not run.active
    monkeypatch.setenv("TRIVET_RUN_DIR", str(tmp_path))
    with trivet.run() as run:
        run.log({"loss": np.float32(0.5)}, step=1)
        run.log({"loss": float("nan")}, step=2)
        with pytest.raises(TypeError, match="loss"):
            run.log({"loss": "low"}, step=3)  # pyrefly: ignore
        with pytest.raises(ValueError, match="step=-1"):
            run.log({"loss": 1.0}, step=-1)
    assert read_jsonl(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]


def test_importing_trivet_loads_nothing_heavy() -> None:
    code = """
import sys, trivet
from trivet import run, Study, compare, decide, PrecisionSchedule
heavy = {"torch", "torchvision", "pandas", "altair", "vl_convert", "scipy.stats"} & set(sys.modules)
print(sorted(heavy), end="")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]"


def test_public_names_are_declared() -> None:
    assert set(dir(trivet)) | {"__version__"} == set(trivet.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trivet.nothing


@pytest.mark.parametrize("step", [1.5, True, "3", None])
def test_a_step_that_is_no_whole_number_is_refused(step: Any) -> None:
    with pytest.raises(TypeError, match="must be a whole number"):
        UserRun(None).log({"loss": 1.0}, step=step)


@pytest.mark.parametrize("step", [-1, 2**63, 10**400, 10**5000], ids=lambda step: f"{step.bit_length()} bits")
def test_a_step_that_64_bits_do_not_hold_is_refused(step: int) -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0, 2\*\*63 - 1\]"):
        UserRun(None).log({"loss": 1.0}, step=step)


@pytest.mark.parametrize("name", ["step", "seconds"])
def test_names_of_columns_are_no_names_of_metrics(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"cannot be called '{name}'"):
        UserRun(tmp_path).log({"loss": 1.0, name: 5}, step=1)
    assert not (tmp_path / "metrics.jsonl").exists()
