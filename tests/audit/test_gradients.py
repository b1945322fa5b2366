"""The gradient of a window against float64: right windows pass at rounding, planted faults are far above."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet import audit
from trivet.audit.reference import Copied

_spec = importlib.util.spec_from_file_location("audit_variants", Path(__file__).with_name("variants.py"))
assert _spec is not None
assert _spec.loader is not None
variants = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = variants
_spec.loader.exec_module(variants)

FULL = [seed for seed in range(50) if variants.draw_variant(seed).overwrite == "all"][:12]


@pytest.mark.parametrize("seed", FULL)
def test_the_planted_fault(seed: int, tmp_path: Path) -> None:
    variant = variants.draw_variant(seed)
    torch.manual_seed(seed)
    model = variants.MODELS[variant.model]().to(variant.dtype)

    def window(module: nn.Module, frames: Iterator[Tensor]) -> Tensor:
        total: Any = 0.0
        for x in frames:
            source = x.clone() if variant.target_only else x
            total = total + variants.LOSSES[variant.loss](module(source), x)
        return total

    faulty = audit.gradient(model, window, lambda: variants.shared(variant.sharing, variant.frames_of(), tmp_path))
    right = audit.gradient(model, window, lambda: [torch.from_numpy(frame) for frame in variant.frames_of()])
    assert not right.findings, str(right)
    assert right.relative < 1e-5
    assert right.changed == 0
    if variant.loss == "l1":  # its gradient is a sign, which need not change
        return
    assert faulty.relative > 1e-3, variant
    assert "change before backward" in faulty.findings[0].what
    assert faulty.copied < 1e-5  # the copies undo it
    assert faulty.loss == pytest.approx(right.loss, rel=1e-5)  # the loss shows nothing
    assert faulty.loss64 == pytest.approx(right.loss64, rel=1e-12)


def test_float64_is_the_hand_computed_gradient() -> None:
    """L = Σ (w·x - y)²: dL/dw = 2 Σ (w·x - y) x, in float64."""
    model = nn.Linear(3, 1, bias=False)
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    found = audit.gradient(model, lambda m, b: (m(b[0]) - b[1]).square().sum(), (x, y))
    w, x64, y64 = model.weight.detach().double(), x.double(), y.double()
    right = 2 * ((x64 @ w.T - y64) * x64).sum(0)
    model.zero_grad()
    (model(x) - y).square().sum().backward()
    assert model.weight.grad is not None
    expected = ((model.weight.grad.double() - right).norm() / right.norm()).item()
    assert found.relative == pytest.approx(expected, rel=1e-6)
    assert found.parameters[0].share == found.relative
    assert found.loss64 == pytest.approx((x64 @ w.T - y64).square().sum().item(), rel=1e-14)


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout2d(0.3), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(144, 3),
    )  # fmt: skip


def batch() -> tuple[Tensor, Tensor]:
    return torch.rand(6, 1, 8, 8), torch.randint(3, (6,))


def test_dropout_batch_norm_and_noise_agree() -> None:
    def noisy(model: nn.Module, given: tuple[Tensor, Tensor]) -> Tensor:
        images = given[0] + 0.1 * torch.randn_like(given[0]) + torch.empty(1).uniform_(0, 1) + torch.rand(1)
        return F.cross_entropy(F.dropout(model(images), 0.2), given[1])

    model = net()
    before = [tensor.clone() for tensor in model.state_dict().values()]
    given = batch()
    state = torch.get_rng_state()
    found = audit.gradient(model, noisy, given)
    assert not found.findings, str(found)
    assert found.relative < 1e-5
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("module", [nn.LSTM(3, 4, 2, dropout=0.5), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3)])
def test_masks_inside_an_operation(module: nn.Module) -> None:
    width = 3 if isinstance(module, nn.LSTM) else 4

    def window(model: nn.Module, x: Tensor) -> Tensor:
        out = model(x)
        return (out[0] if isinstance(out, tuple) else out).square().sum()

    assert audit.gradient(module, window, torch.rand(5, 2, width)).relative < 1e-5


def test_a_batch_that_the_window_writes_to() -> None:
    def window(model: nn.Module, x: Tensor) -> Tensor:
        loss = model(x).square().sum()
        x.numpy()[:] = 3
        return loss

    found = audit.gradient(nn.Linear(3, 2), window, torch.rand(4, 3))
    assert len(found.findings) == 1
    assert "audit.alias()" in found.findings[0].advice


def test_low_precision_is_judged_against_itself() -> None:
    def window(model: nn.Module, frames: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return sum(model(frame).square().sum() for frame in frames)

    def reused() -> Iterator[Tensor]:
        buffer = np.empty((2, 3), np.float32)
        for step in range(3):
            buffer[:] = np.random.default_rng(step).random((2, 3))
            yield torch.from_numpy(buffer)

    model = nn.LayerNorm(3)  # reads its input in backward, and autocast leaves it in float32
    right = audit.gradient(nn.Sequential(model, nn.Linear(3, 2)), window, lambda: [torch.rand(2, 3)])
    assert not right.findings
    assert "bfloat16" in right.notes[0]
    assert right.relative > 1e-4
    assert audit.gradient(nn.Sequential(model, nn.Linear(3, 2)), window, reused).findings


def test_ill_conditioned_is_called_so() -> None:
    found = audit.gradient(
        nn.Linear(1, 1), lambda m, x: (m(x) + 1e6).square().sum() - 1e12 - 2e6 * m(x).sum(), torch.rand(4, 1)
    )
    assert "also on copied inputs" in found.findings[0].what


def test_not_finite() -> None:
    found = audit.gradient(nn.Linear(1, 1), lambda m, x: (m(x) * 0).sqrt().sum(), torch.rand(4, 1))
    assert found.findings[0].what == "the gradient is not finite"
    assert "not finite" in str(found)


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        if self.w.dtype != torch.float32:
            raise RuntimeError("this kernel takes float32 only")
        return self.w * x


def test_what_cannot_be_audited() -> None:
    x = torch.rand(2)
    with pytest.raises(audit.WindowError, match=r"cannot be computed in float64: RuntimeError: this kernel takes"):
        audit.gradient(Half(), lambda m, b: m(b).sum(), x)
    with pytest.raises(audit.WindowError, match="as it is given: RuntimeError"):
        audit.gradient(nn.Linear(3, 1), lambda m, b: m(b).sum(), x)
    with pytest.raises(audit.WindowError, match=r"a tensor of shape \[2\]"):
        audit.gradient(nn.Linear(2, 2), lambda m, b: m(b), x)
    with pytest.raises(audit.WindowError, match="returned a float"):
        audit.gradient(nn.Linear(2, 2), lambda m, b: m(b).sum().item(), x)
    other = nn.Linear(2, 1)
    with pytest.raises(audit.WindowError, match="with the model that it is given"):
        audit.gradient(nn.Linear(2, 1), lambda m, b: other(b).sum(), x)
    kept = nn.Linear(2, 1)
    kept.state = kept(x)  # type: ignore[assignment]
    with pytest.raises(audit.WindowError, match="cannot be copied"):
        audit.gradient(kept, lambda m, b: m(b).sum(), x)
    with pytest.raises(ValueError, match="threshold=0"):
        audit.gradient(nn.Linear(2, 1), lambda m, b: m(b).sum(), x, threshold=0)
    assert torch.get_default_dtype() == torch.float32


def test_float64_whatever_is_asked_for() -> None:
    x = torch.ones(2)
    with Copied(double=True):
        made = [
            x.float() + 1, x.to(torch.float32) + 1, x.half() + 1, torch.zeros(2, dtype=torch.float32) + x,
            x.type_as(x) * 1, torch.rand(2), torch.randn_like(x), torch.bernoulli(x * 0.5), F.dropout(x), x[:1] * 2,
        ]  # fmt: skip
        counter = torch.zeros(2, dtype=torch.int64)
        counter += 1
        counter[0] = 5
    assert [value.dtype for value in made] == [torch.float64] * len(made)
    assert counter.tolist() == [5, 1]
