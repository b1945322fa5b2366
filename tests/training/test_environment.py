from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch

from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import ConfigError
from trivet.training import environment as module
from trivet.training.environment import apply_environment, describe_environment
from trivet.training.fingerprint import fingerprint


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


def test_settings_are_applied_and_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    config = EnvironmentConfig(device="cpu", threads=2, deterministic=True, matmul_precision="high")
    realised = apply_environment(config)
    assert realised.to_dict() == {"device": "cpu", "threads": 2, "deterministic": True, "matmul_precision": "high"}
    assert realised.not_realised == ()
    assert torch.get_num_threads() == 2
    assert torch.are_deterministic_algorithms_enabled()
    again = apply_environment(EnvironmentConfig(device="cpu"))
    assert not torch.are_deterministic_algorithms_enabled()
    assert again.deterministic is False


def test_what_was_not_realised_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 1)
    realised = apply_environment(EnvironmentConfig(device="cpu", threads=2))
    assert realised.not_realised == ("threads",)
    content = describe_environment(EnvironmentConfig(device="cpu", threads=2), realised)
    assert content["not_realised"] == ["threads"]
    assert (content["requested"]["threads"], content["realised"]["threads"]) == (2, 1)


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
