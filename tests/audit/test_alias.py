"""The alias detector: finds every planted fault, and nothing where there is none."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from trivet import audit
from trivet.audit import saved

_spec = importlib.util.spec_from_file_location("audit_variants", Path(__file__).with_name("variants.py"))
assert _spec is not None
assert _spec.loader is not None
variants = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = variants
_spec.loader.exec_module(variants)


def nothing(model: nn.Module) -> Any:
    return contextlib.nullcontext()


@pytest.mark.parametrize("seed", range(50))
def test_finds_the_fault_and_only_that(seed: int, tmp_path: Path) -> None:
    variant = variants.draw_variant(seed)
    audits: list[audit.AliasAudit] = []

    def audited(model: nn.Module) -> audit.AliasAudit:
        audits.append(audit.alias(model))
        return audits[-1]

    right = variant.run(tmp_path, copies=True, window=nothing)
    checked = variant.run(tmp_path, copies=True, window=audited)
    wrong = variant.run(tmp_path, copies=False, window=audited)
    clean, faulty = audits
    assert all(torch.equal(a, b) for a, b in zip(right, checked, strict=True)), variant
    assert not clean.findings, variant
    assert clean.checked > 0
    assert faulty.findings, variant
    assert {found.buffer for found in faulty.findings} == {0}
    assert {found.how for found in faulty.findings} == {"foreign"}
    if variant.overwrite == "all" and variant.loss != "l1":
        assert any(not torch.equal(a, b) for a, b in zip(right, wrong, strict=True)), variant


def test_the_variants_differ() -> None:
    drawn = [variants.draw_variant(seed) for seed in range(50)]
    for name in ("sharing", "model", "loss", "overwrite", "dtype"):
        assert len({getattr(variant, name) for variant in drawn}) == len(
            {"sharing": variants.SHARING, "model": variants.MODELS, "loss": variants.LOSSES,
             "overwrite": variants.OVERWRITES, "dtype": (1, 2)}[name]
        )  # fmt: skip


def test_the_window_of_the_retracted_study() -> None:
    """20 frames in two reused buffers: 19 changed inputs and 19 changed targets."""
    model = nn.Conv2d(1, 1, 3, padding=1)
    x, y = np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 1, 4, 4), np.float32)
    draw = np.random.default_rng(0)
    with audit.alias() as a:
        loss = torch.zeros(())
        for _ in range(20):
            x[:], y[:] = draw.random(x.shape), draw.random(y.shape)
            loss = loss + F.mse_loss(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
    assert len(a.findings) == 38
    inputs, targets = ([found for found in a.findings if found.role == role] for role in ("input", "target"))
    assert (len(inputs), len(targets)) == (19, 19)
    assert {found.module for found in inputs} == {"Conv2d"}
    assert {found.module for found in targets} == {""}
    assert {found.buffer for found in inputs}.isdisjoint({found.buffer for found in targets})
    assert all(found.size.startswith("16 of 16 elements, relative L2 ") for found in a.findings)
    assert all(found.line.startswith("test_alias.py:") for found in a.findings)
    assert "mse_loss" in str(a)
    assert "38 changed" in str(a)
    assert a.to_dict()["findings"][0]["advice"].startswith("give each step memory of its own")


def test_reused_token_ids() -> None:
    """Integers: the gradient goes to the embeddings of the last window's words."""
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    ids = np.zeros(5, np.int64)
    with audit.alias(model) as a:
        loss = torch.zeros(())
        for step in range(3):
            ids[:] = np.arange(5) + step
            words = torch.from_numpy(ids)
            loss = loss + F.cross_entropy(model(words), words)
        loss.backward()
    assert {(found.module, found.role) for found in a.findings} == {("0 (Embedding)", "indices"), ("", "target")}
    assert a.findings[0].size == "5 of 5 elements"


def test_written_after_forward_but_never_read() -> None:
    buffer = np.ones((2, 3), np.float32)
    weight = torch.ones(3, requires_grad=True)
    with audit.alias() as a:
        out = (torch.from_numpy(buffer) + weight).sum()  # the sum saves nothing of it
        other = (torch.from_numpy(buffer) * weight).sum()
        buffer[:] = 5
        out.backward()
        del other  # its tensors were saved and are never read
    assert a.saved > 0
    assert not a.findings


@pytest.mark.parametrize("kind", ["data", "replaced", "in-place"])
def test_writes_inside_torch(kind: str) -> None:
    weight = torch.ones(3, requires_grad=True)
    with audit.alias() as a:
        loss = (weight * weight.detach().clone().requires_grad_()).sum()
        if kind == "data":
            weight.data.mul_(2)
        elif kind == "replaced":
            weight.data = torch.full((3,), 2.0)
        else:
            with torch.no_grad():
                weight.mul_(2)
        loss.backward()
    assert [found.how for found in a.findings] == ["in-place" if kind == "in-place" else "own"]


def test_large_memory_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checksum then, which sees the change and not its size."""
    monkeypatch.setattr(saved, "COPY_LIMIT", 16)
    buffer, small = np.ones(5, np.float32), np.ones(4, np.float32)
    weight = torch.ones(5, requires_grad=True)
    with audit.alias() as a:
        loss = (torch.from_numpy(buffer) * weight).sum() + (torch.from_numpy(small) * weight[:4]).sum()
        buffer[2] = small[1] = np.nextafter(np.float32(1), np.float32(2))
        loss.backward()
    assert sorted(found.size for found in a.findings) == [
        "1 of 4 elements, relative L2 6e-08",
        "some of 5 elements, 20 bytes (a checksum does not say how many)",
    ]
    assert [found.how for found in a.findings] == ["foreign", "foreign"]


def test_what_cannot_be_compared_is_counted() -> None:
    weight = torch.rand(3, 2, requires_grad=True)
    with audit.alias() as a:
        torch.sparse.mm(torch.eye(3).to_sparse(), weight).square().sum().backward()
    assert sum(a.skipped.values()) == a.saved - a.checked == 1
    assert "1 not compared: a tensor of layout torch.sparse_coo" in str(a)


def test_the_block_without_backward_says_so() -> None:
    weight = torch.ones(3, requires_grad=True)
    with audit.alias() as a:
        loss = (weight * weight).sum()
    assert "nothing was compared" in str(a)
    loss.backward()  # still compared, though the block has ended
    assert a.checked > 0


def test_entered_twice() -> None:
    a = audit.alias()
    with a, pytest.raises(RuntimeError, match="entered already"), a:
        pass
    with a:
        pass


def test_no_hooks_are_left() -> None:
    with contextlib.suppress(ZeroDivisionError), audit.alias():
        raise ZeroDivisionError
    from torch.nn.modules import module

    assert not module._global_forward_pre_hooks
    assert not module._global_forward_hooks
    weight = torch.ones(1, requires_grad=True)
    assert (weight * weight).grad_fn is not None


# Ordinary loops, in which nothing may be found
