"""The checksum sees every change of one element, and what a sum would miss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trivet.audit import checksum as module
from trivet.audit.checksum import BLOCK, Unreadable, checksum, flat_bytes

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


def by_definition(content: bytes) -> int:
    """Python integers, one word at a time."""
    whole = len(content) // 4 * 4
    keys = [int(key) for key in module._keys()]
    total = int.from_bytes(content[whole:], "little") + len(content) - whole
    words = [int.from_bytes(content[i : i + 4], "little", signed=True) for i in range(0, whole, 4)]
    for start in range(0, len(words), BLOCK):
        part = sum(word * key for word, key in zip(words[start : start + BLOCK], keys, strict=False))
        total = (total * module._POINT + part) % 2**64
    return total


@pytest.mark.parametrize("size", [0, 1, 3, 4, 1001, 4 * BLOCK + 6])
def test_is_what_the_formula_says(size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    assert checksum(torch.from_numpy(content)) == by_definition(content.tobytes())


def test_other_devices_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    words = torch.randint(-(2**31), 2**31, (2 * BLOCK + 5,), dtype=torch.int32)
    assert module._sums(words) == module._sums_on_cpu(words.numpy())
    assert module._sums(words[:0]) == []


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), size=st.integers(1, 3000))
def test_sees_one_bit(data: st.DataObject, dtype: torch.dtype, size: int) -> None:
    tensor = (torch.rand(size, generator=torch.Generator().manual_seed(size)) * 2).to(dtype)
    before = checksum(tensor)
    raw = tensor.view(torch.uint8).numpy()
    place, bit = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(0, 7))
    raw[place] ^= 1 << bit
    assert checksum(tensor) != before
    raw[place] ^= 1 << bit
    assert checksum(tensor) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sees_what_a_sum_misses(dtype: torch.dtype) -> None:
    x = torch.rand(4000, dtype=torch.float64).to(dtype)
    changed = [x.flip(0), x.roll(1), -x, x.clone(), x.clone(), x.clone()]
    changed[3][[5, 2999]] = x[[2999, 5]]  # two swapped
    changed[4][[1, 3]] *= -1  # two signs: 2^31 · key each
    changed[5][::2] *= -1
    assert len({checksum(x), *map(checksum, changed)}) == 7


def layouts() -> list[tuple[str, Tensor]]:
    base = torch.arange(240, dtype=torch.float32)
    image = base.view(2, 3, 5, 8)
    return [
        ("scalar", base[3]),
        ("channels last", image.contiguous(memory_format=torch.channels_last)),
        ("transposed", base.view(12, 20).t()),
        ("strided", base[::7]),
        ("window", image[:, 1:, ::2, 3:6]),
        ("expanded", base[:3].view(3, 1).expand(3, 1000)),
        ("empty", base[:0]),
        ("conjugate", torch.view_as_complex(base.view(120, 2)).conj()),
        ("unfolded", base.unfold(0, 8, 3)),
    ]


@pytest.mark.parametrize(("name", "tensor"), layouts(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_layout(name: str, tensor: Tensor) -> None:
    before = checksum(tensor)
    assert checksum(tensor) == before
    if tensor.numel():
        storage = torch.empty(0, dtype=torch.float32).set_(tensor.untyped_storage())
        storage[tensor.storage_offset() * (2 if tensor.is_complex() else 1)] += 1
        assert checksum(tensor) != before
    if name in ("channels last", "transposed"):  # dense memory is read where it is
        assert flat_bytes(tensor).data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize(
    "tensor",
    [torch.eye(2).to_sparse(), torch.empty(2, device="meta"), torch.nn.UninitializedParameter()],
    ids=["sparse", "meta", "subclass"],
)
def test_unreadable(tensor: Tensor) -> None:
    with pytest.raises(Unreadable):
        checksum(tensor)
