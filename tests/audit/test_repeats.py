"""Repeat and resume: equal bits are found equal, and the first difference is the first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trivet import audit
from trivet.audit.leaves import first_difference, leaves, tensor_difference


def train(stray: Any = None) -> Iterator[Any]:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(5):
        x = torch.randn(4, 3) + random.random() + float(np.random.rand())
        if stray is not None and step == 3:
            x = x + stray.random()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield {"loss": loss, "model": model}


def test_a_seeded_training_repeats() -> None:
    state = torch.get_rng_state(), random.getstate()
    found = audit.repeat(train)
    assert found.equal
    assert found.compared == 5 * 5
    assert "all bits are equal" in str(found)
    assert torch.equal(state[0], torch.get_rng_state())
    assert state[1] == random.getstate()


def test_a_stray_generator_is_found_at_its_step() -> None:
    found = audit.repeat(lambda: train(np.random.default_rng()))
    assert not found.equal
    assert found.findings[0].where == "step 3, loss"
    assert found.findings[0].size.startswith("1 of 1 element, relative L2 ")


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="returned nothing"):
        audit.repeat(lambda: [])
    with pytest.raises(ValueError, match="stop=0"):
        audit.resume(lambda folder, stop: 1, stop=0)


SAVED = ("model", "optimizer", "torch", "step", "schedule")


@pytest.mark.parametrize("forgotten", ["", *SAVED])
def test_resume(forgotten: str) -> None:
    """Whatever a checkpoint leaves out, the resumed run ends elsewhere."""

    def fn(folder: Path, stop: int | None) -> Any:
        file = folder / "checkpoint.pt"
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        step = 0
        if file.exists():
            saved = torch.load(file, weights_only=True)
            for name, part in (("model", model), ("optimizer", optimizer), ("schedule", schedule)):
                if name != forgotten:
                    part.load_state_dict(saved[name])
            step = 0 if forgotten == "step" else saved["step"]
            if forgotten != "torch":
                torch.set_rng_state(saved["torch"])
        while step < (stop or 7):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
            schedule.step()
            step += 1
        content = {"model": model, "optimizer": optimizer, "schedule": schedule}
        saved = {name: part.state_dict() for name, part in content.items()}
        torch.save({**saved, "torch": torch.get_rng_state(), "step": step}, file)
        return model

    found = audit.resume(fn, stop=3)
    assert found.equal == (not forgotten), str(found)
    if forgotten:
        assert "resumed run ends elsewhere" in found.findings[0].what
        assert "either" not in found.findings[0].what


def test_resume_of_what_does_not_repeat() -> None:
    found = audit.resume(lambda folder, stop: random.SystemRandom().random(), stop=1)
    assert "does not repeat either" in found.findings[0].what


@dataclass
class Pair:
    one: Any
    two: Any


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.floats() | st.integers() | st.text() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_value_equals_itself(value: Any) -> None:
    assert first_difference(list(leaves(value)), list(leaves(value))) is None


def test_first_difference() -> None:
    one = Pair({"a": torch.ones(2), "b": np.arange(3)}, (1, "x", None, b"y", True))
    changes: list[tuple[Any, str]] = [
        (Pair({"a": torch.ones(2), "b": np.array([0, 1, 3])}, one.two), "one.b"),
        (Pair({"a": torch.ones(3), "b": np.arange(3)}, one.two), "one.a"),
        (Pair(one.one, (1, "z", None, b"y", True)), "two[1]"),
        (Pair(one.one, (1, "x", None, b"y", 1)), "two[4]"),
        (Pair(one.one, (1, "x", None, b"y")), "two[4]"),
        (Pair({"a": torch.ones(2), "c": np.arange(3)}, one.two), "one.b"),
    ]
    for other, where in changes:
        found = first_difference(list(leaves(one)), list(leaves(other)))
        assert found is not None
        assert found.where == where


def test_bits_and_not_values() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    assert tensor_difference(nan, nan.clone()) == ""
    assert tensor_difference(torch.tensor(0.0), torch.tensor(-0.0)) == "1 of 1 element"
    assert tensor_difference(torch.ones(2), torch.ones(2, dtype=torch.float64)) == "float32 [2] and float64 [2]"
    assert tensor_difference(torch.tensor([1, 2]), torch.tensor([1, 3])) == "1 of 2 elements"
    dense = torch.eye(3)
    assert first_difference(list(leaves(dense.to_sparse())), list(leaves(dense))) is None
