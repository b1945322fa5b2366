from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from trivet.core.config import to_plain
from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import ConfigError
from trivet.training import environment as module
from trivet.training.environment import apply_environment, describe_environment
from trivet.training.fingerprint import available_cores, fingerprint


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


def test_settings_are_applied_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    config = EnvironmentConfig(device="cpu", threads=1, deterministic=True, matmul_precision="high")
    realised = apply_environment(config)
    assert realised.not_realised == ()
    assert {**to_plain(config), **realised.to_dict()} == realised.to_dict()  # every setting is told
    chosen = {name: realised.to_dict()[name] for name in ("device", "threads", "deterministic", "matmul_precision")}
    assert chosen == {"device": "cpu", "threads": 1, "deterministic": True, "matmul_precision": "high"}
    assert torch.are_deterministic_algorithms_enabled()
    again = apply_environment(EnvironmentConfig(device="cpu"))
    assert not torch.are_deterministic_algorithms_enabled()
    assert again.to_dict()["deterministic"] is False


def test_what_was_not_realised_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.probes, "busy_threads", lambda: 1)
    monkeypatch.setattr(module, "available_cores", lambda: 4)
    realised = apply_environment(EnvironmentConfig(device="cpu", threads=2))
    assert realised.not_realised == ("threads",)
    content = describe_environment(EnvironmentConfig(device="cpu", threads=2), realised)
    assert content["not_realised"] == ["threads"]
    assert (content["requested"]["threads"], content["realised"]["threads"]) == (2, 1)
    assert content["evidence"]["threads"] == "1 threads were busy in one operation, on 4 processors"


def test_more_threads_than_processors_are_not_realised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_cores", lambda: 2)
    monkeypatch.setattr(module.probes, "busy_threads", lambda: 4)
    realised = apply_environment(EnvironmentConfig(device="cpu", threads=4))
    assert (realised.not_realised, realised.to_dict()["threads"]) == (("threads",), 2)


def test_without_onednn_no_kernel_of_it_runs() -> None:
    try:
        realised = apply_environment(EnvironmentConfig(device="cpu", mkldnn=False))
        assert realised.not_realised == ()
        assert "no convolution" in realised.evidence["mkldnn"]
    finally:
        again = apply_environment(EnvironmentConfig(device="cpu"))
    assert again.not_realised == ()


CHILD = """
import json, sys
from trivet.core.config import build
from trivet.core.environment import EnvironmentConfig
from trivet.training.environment import apply_environment
realised = apply_environment(build(EnvironmentConfig, json.loads(sys.argv[1])))
print(json.dumps([list(realised.not_realised), realised.to_dict()]))
"""


def in_a_process_of_its_own(**asked: str | int) -> tuple[list[str], dict[str, Any]]:
    """What a run that asks for these settings gets; its variables are set before torch is imported, as in a study."""
    config = EnvironmentConfig(device="cpu", **asked)  # pyrefly: ignore[bad-argument-type]
    command = [sys.executable, "-c", CHILD, json.dumps({"device": "cpu", **asked})]
    done = subprocess.run(
        command, env={**os.environ, **config.variables()}, capture_output=True, text=True, check=True, timeout=120
    )
    missed, settings = json.loads(done.stdout.splitlines()[-1])
    return missed, settings


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="instruction sets of x86 processors")
def test_lower_instruction_sets_are_real_and_higher_ones_are_caught() -> None:
    missed, settings = in_a_process_of_its_own(aten_isa="default", onednn_isa="SSE41", mkl_cbwr="COMPATIBLE")
    assert missed == []
    chosen = (settings["aten_isa"], settings["onednn_isa"], settings["mkl_cbwr"])
    assert chosen == ("default", "SSE41", "COMPATIBLE")
    flags = fingerprint()["cpu"]["flags"]
    # MKL turns AVX2 into AUTO on AMD processors, without a word; only an Intel processor can take it.
    wanted: dict[str, str | int] = {"mkl_cbwr": "AVX2", "threads": 4 * available_cores()}
    if "avx512f" not in flags:
        wanted["onednn_isa"] = "AVX512_CORE"
    missed, _ = in_a_process_of_its_own(**wanted)
    intel = "Intel" in fingerprint()["cpu"]["model"]
    assert set(missed) == set(wanted) - ({"mkl_cbwr"} if intel else set())


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"environment\.device"):
        apply_environment(EnvironmentConfig(device="cuda"))
    assert apply_environment(EnvironmentConfig(device="auto")).device == "cpu"


def test_fingerprint_has_versions_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MY_TOKEN", "secret")
    content = fingerprint()
    assert content["packages"]["torch"] == torch.__version__.partition("+")[0] or content["packages"]["torch"]
    assert content["variables"]["OMP_NUM_THREADS"] == "1"
    assert "secret" not in json.dumps(content)
    assert content["machine"]["cores"] >= 1
    assert json.loads(json.dumps(content)) == content


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_fingerprint_names_what_is_loaded_and_built() -> None:
    content = fingerprint()
    assert content["cpu"]["vendor"]
    assert content["machine"]["memory_bytes"] > 2**28
    libraries = content["libraries"]
    assert libraries == sorted(set(libraries))
    assert any(name.startswith(("libgomp", "libiomp", "libomp")) for name in libraries)  # torch's
    built = describe_environment(EnvironmentConfig(device="cpu"), apply_environment(EnvironmentConfig(device="cpu")))[
        "built"
    ]
    assert all(built.values())
    assert set(built) >= {"openmp", "compiler"}
