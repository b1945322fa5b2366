from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trivet.ghn.targets import Form, Target
from trivet.ghn.tile import spread, write_

LARGEST = 6
sizes = st.integers(1, 15)


def target(form: Form, shape: tuple[int, ...], view: tuple[int, ...], *, swapped: bool = False) -> Target:
    scale = 1.0 if form == "vector" else 0.75
    return Target("p", 0, "weight", shape, form, view, swapped, scale)  # pyrefly: ignore


def block(view: tuple[int, ...], n: int = 2) -> Tensor:
    shape = (n, min(view[0], LARGEST), min(view[1], LARGEST), *view[2:])
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def tiled(blocks: Tensor, view: tuple[int, ...], scale: float) -> Tensor:
    """Entry by entry: (o, i) is (o mod O, i mod I)."""
    rows = torch.arange(view[0]) % blocks.shape[1]
    columns = torch.arange(view[1]) % blocks.shape[2]
    return blocks[:, rows][:, :, columns] * scale


def both(values: Tensor, wanted: Target) -> Tensor:
    """What `spread` makes, after checking that `write_` fills the same, bit for bit, into storage of any strides."""
    made = spread(values, wanted)
    assert made.shape == (len(values), *wanted.shape)
    for strides in (
        torch.empty(wanted.shape),
        torch.empty(wanted.shape[::-1]).permute(*range(len(wanted.shape))[::-1]),
    ):
        parameter = torch.nn.Parameter(strides.fill_(torch.nan))
        with torch.no_grad():
            write_(parameter, values[1], wanted)
        assert torch.equal(parameter, made[1])
    return made


@settings(deadline=None, max_examples=40)
@given(sizes, sizes, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_kernels(out: int, inputs: int, height: int, width: int, swapped: bool) -> None:
    view = (out, inputs, height, width)
    shape = (inputs, out, height, width) if swapped else view
    expected = tiled(block(view), view, 0.75)
    made = both(block(view), target("kernel", shape, view, swapped=swapped))
    assert torch.equal(made, expected.transpose(1, 2) if swapped else expected)


@settings(deadline=None, max_examples=25)
@given(sizes, sizes, st.booleans())
def test_matrices(out: int, inputs: int, swapped: bool) -> None:
    view = (out, inputs, 1, 1)
    expected = tiled(block(view), view, 0.75)[..., 0, 0]
    made = both(block(view), target("matrix", (inputs, out) if swapped else (out, inputs), view, swapped=swapped))
    assert torch.equal(made, expected.transpose(1, 2) if swapped else expected)


def test_lines_volumes_and_maps() -> None:
    view = (13, 7, 1, 5)
    assert torch.equal(both(block(view), target("line", (13, 7, 5), view)), tiled(block(view), view, 0.75)[:, :, :, 0])
    view = (4, 9, 3, 2)
    volume = both(block(view), target("volume", (4, 9, 5, 3, 2), view))
    assert all(torch.equal(slab, tiled(block(view), view, 0.75)) for slab in volume.unbind(3))
    view = (1, 9, 3, 3)
    made = both(block(view), target("map", (1, 3, 3, 9), view))
    assert torch.equal(made, tiled(block(view), view, 0.75).permute(0, 1, 3, 4, 2))


@pytest.mark.parametrize("front", [0, 1, 2])
@pytest.mark.parametrize("leading", [(), (1,)])
def test_positions_begin_with_zeros(front: int, leading: tuple[int, ...]) -> None:
    view = (1, 8, 3, 3)
    made = both(block(view), target("positions", (*leading, 9 + front, 8), view)).reshape(2, 9 + front, 8)
    assert not made[:, :front].any()
    assert torch.equal(made[:, front:], tiled(block(view), view, 0.75)[:, 0].flatten(2).transpose(1, 2))


@settings(deadline=None, max_examples=25)
@given(sizes, st.sampled_from([(), (1,), (4,)]), st.booleans())
def test_vectors(channels: int, rest: tuple[int, ...], behind_one: bool) -> None:
    shape = (*((1,) if behind_one and channels > 1 else ()), channels, *(rest if channels > 1 else ()))
    values = torch.randn(2, LARGEST)
    made = both(values, target("vector", shape, (channels, 1, 1, 1)))
    expected = values[:, torch.arange(channels) % LARGEST if channels > LARGEST else torch.arange(channels)]
    axis = shape.index(channels)
    places = made.movedim(axis + 1, 1).reshape(2, channels, -1)
    assert torch.equal(places, expected.unsqueeze(2).expand_as(places))


def test_types_of_parameters_stay() -> None:
    view = (13, 4, 3, 3)
    parameter = torch.zeros(view, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    write_(parameter, block(view)[0], target("kernel", view, view))
    assert parameter.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(parameter, tiled(block(view), view, 0.75)[0].bfloat16())


def test_gradient_of_a_repeated_entry_is_the_sum_over_its_copies() -> None:
    view = (13, 6, 1, 1)
    values = block(view, 1).requires_grad_()
    spread(values, target("matrix", (13, 6), view)).sum().backward()
    copies = torch.tensor([3.0, 2, 2, 2, 2, 2]) * 0.75
    assert torch.equal(values.grad, copies.view(1, 6, 1, 1, 1).expand_as(values))


def test_writing_takes_no_memory_of_the_size_of_the_parameter() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and result.untyped_storage().data_ptr() != parameter.data_ptr():
                Largest.made = max(Largest.made, result.untyped_storage().nbytes())
            return result

    parameter = torch.zeros(601, 601, 3, 3)
    view = (601, 601, 3, 3)
    values = torch.randn(1, 64, 64, 3, 3)
    with Largest():
        write_(parameter, values[0], target("kernel", view, view))
    assert Largest.made <= values.untyped_storage().nbytes()
    assert torch.equal(parameter[600], parameter[24])
