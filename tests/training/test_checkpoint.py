from __future__ import annotations

import errno
import logging
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from trivet.training import checkpoint as module
from trivet.training.checkpoint import Checkpoints, rng_state, set_rng_state


def _save(checkpoints: Checkpoints, step: int) -> None:
    checkpoints.save(step, {"w": torch.full((3,), float(step))}, {"step": step, "nested": [{"t": torch.arange(step)}]})


def test_round_trip_and_keeping_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.load() is None
    for step in (1, 2, 3):
        _save(checkpoints, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    found = checkpoints.load()
    assert found is not None
    assert (found.step, found.model["w"].tolist(), found.state["step"]) == (3, [3.0] * 3, 3)
    assert torch.equal(found.state["nested"][0]["t"], torch.arange(3))


def test_tied_and_strided_tensors(tmp_path: Path) -> None:
    weight = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    Checkpoints(tmp_path).save(1, {"a": weight, "b": weight}, {})
    found = Checkpoints(tmp_path).load()
    assert found is not None
    assert torch.equal(found.model["a"], weight)
    assert torch.equal(found.model["b"], weight)


def _flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: _flip_byte(folder / "model.safetensors"),
        lambda folder: _flip_byte(folder / "state.pt"),
        lambda folder: (folder / "state.pt").write_bytes(b""),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text('{"step": 2'),
        lambda folder: (folder / "manifest.json").write_text("[]"),
        lambda folder: (folder / "manifest.json").write_text("{}"),
    ],
)
def test_damage_falls_back_to_the_one_before(damage, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = Checkpoints(tmp_path)
    _save(checkpoints, 1)
    _save(checkpoints, 2)
    damage(tmp_path / "step-00000002")
    with caplog.at_level(logging.WARNING, "trivet"):
        found = checkpoints.load()
    assert found is not None
    assert found.step == 1
    assert "step-00000002 cannot be used" in caplog.text
    damage(tmp_path / "step-00000001")
    assert checkpoints.load() is None
    assert "starts anew" in caplog.text
    _save(checkpoints, 2)  # the same step again replaces the damaged one
    found = checkpoints.load()
    assert found is not None
    assert found.step == 2


def test_another_configuration_is_not_resumed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _save(Checkpoints(tmp_path, key="a"), 1)
    with caplog.at_level(logging.WARNING, "trivet"):
        assert Checkpoints(tmp_path, key="b").load() is None
    assert "another configuration" in caplog.text


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "pwned"),)

    Checkpoints(tmp_path).save(1, {}, {"evil": Evil()})
    assert Checkpoints(tmp_path).load() is None
    assert not (tmp_path / "pwned").exists()


def test_a_half_written_folder_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    _save(checkpoints, 1)

    def full(*args) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OSError, match="checkpoint of step 2 not written: No space left"):
        _save(checkpoints, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    found = checkpoints.load()
    assert found is not None
    assert found.step == 1


def test_random_state_round_trip() -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    np.random.standard_normal(3)  # leaves a cached second normal
    random.gauss(0, 1)
    state = rng_state()
    draw = lambda: (random.gauss(0, 1), random.random(), np.random.standard_normal(3).tolist(), torch.rand(3).tolist())  # noqa: E731
    first = draw()
    set_rng_state(state)
    assert draw() == first


def test_keep_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep=0"):
        Checkpoints(tmp_path, keep=0)
