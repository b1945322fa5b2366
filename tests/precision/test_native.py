"""Native execution against its oracles: whole-number arithmetic, and the same layer simulated in float32."""

from __future__ import annotations

import copy
import gc
import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from trivet.precision import PrecisionConfig, PrecisionController, PrecisionSchedule, choice, formats, quantize_, snap
from trivet.precision.codes import Operand, encode_anywhere
from trivet.precision.convproducts import ConvProducts
from trivet.precision.formats import support_of
from trivet.precision.inject import quantized_sites
from trivet.precision.matproducts import MatrixProducts, fp8_matmul, int_matmul
from trivet.precision.rounding import finite_range, make_grid

CPU = torch.device("cpu")
LAST = torch.channels_last

pytestmark = pytest.mark.skipif(not support_of(CPU).matmul, reason="this processor has no correct int8 products")


def everything(module: nn.Module, name: str) -> bool:
    return not isinstance(module, nn.Sequential)


def static(bits: int) -> PrecisionSchedule:
    return PrecisionSchedule.static(bits, total_steps=1000)


def layers() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    torch.manual_seed(0)
    image = torch.randn(3, 16, 7, 7)
    return {
        "linear, odd sizes": (nn.Linear(37, 19), torch.randn(5, 3, 37)),
        "linear, relu": (nn.Linear(24, 16, bias=False), torch.randn(33, 24).relu()),
        "linear, one row": (nn.Linear(24, 16), torch.randn(1, 24)),
        "linear, one output": (nn.Linear(24, 1), torch.randn(9, 24)),
        "conv": (nn.Conv2d(16, 24, 3, padding=1), image.to(memory_format=LAST).relu()),
        "conv, contiguous": (nn.Conv2d(16, 64, 3, padding=(0, 1), bias=False), image),
        "conv, strided": (nn.Conv2d(16, 8, (3, 5), 2, padding=1), image.relu()),
        "conv, 1 x 1": (nn.Conv2d(16, 8, 1), image.to(memory_format=LAST)),
        "conv, three channels": (nn.Conv2d(3, 7, 3), image[:, :3].contiguous()),
        "conv, one laid out": (nn.Conv2d(16, 24, 3, padding=1).to(memory_format=LAST), image),
        "conv, wide": (nn.Conv2d(64, 72, 3, padding=1), torch.randn(2, 64, 5, 5).to(memory_format=LAST)),
    }


@pytest.mark.parametrize("channels", [1, 16])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("last", [(False, False), (True, False), (False, True), (True, True)])
def test_results_lie_as_torch_lays_them(channels: int, size: int, last: tuple[bool, bool]) -> None:
    """Else every layer after a picture of one channel would be copied back and forth between two layouts."""
    formats = [LAST if one else torch.contiguous_format for one in last]
    layer = nn.Conv2d(channels, 24, size, padding=size // 2)
    # empty_like and copy_, because a tensor that fits both layouts stays as it is under `to`
    layer.weight.data = torch.empty_like(layer.weight.data, memory_format=formats[0]).copy_(layer.weight.data)
    x = torch.empty(3, channels, 8, 8, memory_format=formats[1]).normal_().relu_()
    found = []
    for execution in ("simulated", "native"):
        model = quantize_(copy.deepcopy(layer), everything)
        controller = PrecisionController(model, static(8), execution=execution)
        given = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = model(given)
        y.backward(torch.ones_like(y))
        assert ("int8" in controller.report()[0].execution) == (execution == "native")
        found.append((y, given.grad))
    for simulated, native in zip(*found, strict=True):
        assert native.is_contiguous(memory_format=LAST) == simulated.is_contiguous(memory_format=LAST)
        assert native.is_contiguous() == simulated.is_contiguous()


Found = tuple[list[torch.Tensor], PrecisionController]


def computed(layer: nn.Module, x: torch.Tensor, bits: int, grad_bits: int, execution: str) -> Found:
    """Output and gradients of input and parameters."""
    model = quantize_(copy.deepcopy(layer), everything)
    controller = PrecisionController(model, static(bits), grad_bits=grad_bits, execution=execution)
    x = x.clone().requires_grad_()
    y = model(x)
    (y * torch.linspace(0, 9, y.numel()).view(y.shape).sin()).sum().backward()
    grads = [p.grad for p in (x, *model.parameters())]
    return [y.detach(), *(g for g in grads if g is not None)], controller


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / a.norm())


@pytest.mark.parametrize("name", layers())
def test_like_simulated(name: str) -> None:
    layer, x = layers()[name]
    for bits, grad_bits, execution in ((3, 8, "native"), (8, 8, "native"), (7, 4, "auto"), (12, 8, "native")):
        simulated, _ = computed(layer, x, bits, grad_bits, "simulated")
        native, controller = computed(layer, x, bits, grad_bits, execution)
        full, _ = computed(layer, x, 32, 32, "simulated")
        assert "simulated" not in controller.report()[0].execution
        y, dx, dw, *db = (distance(a, b) for a, b in zip(simulated, native, strict=True))
        error = [distance(a, b) for a, b in zip(full, simulated, strict=True)]
        # Codes below 8 bits are the same; bf16 kernels round results to 8 significant bits.
        wide = 0.004
        assert y < {8: 2.5 * error[0], 12: wide}.get(bits, 1e-5 if execution == "native" else wide)
        assert dx < max(2.5 * error[1], wide)
        assert dw < wide
        assert not db or db[0] < 1e-5
        assert [t.stride() for t in native[:2]] == [t.stride() for t in simulated[:2]]


def test_gradient_bits_decide_the_backward_products() -> None:
    layer, x = layers()["linear, relu"]
    found = {}
    for grad_bits in (8, 16, 32):
        _, controller = computed(layer, x, 8, grad_bits, "native")
        found[grad_bits] = controller.report()[0].execution
    wide = "bf16" if support_of(CPU).bf16 else "fp32"
    assert found == {8: "int8 · int8 · int8", 16: f"int8 · {wide} · {wide}", 32: "int8 · fp32 · fp32"}


@pytest.mark.parametrize(
    ("stride", "kernels"),
    [((1, 1), ("int8", "int8-matmul", "int8-shifted", "bf16", "fp32")), ((2, 2), ("int8-matmul",))],
)
def test_every_kernel_computes_the_same(stride: tuple[int, int], kernels: tuple[str, ...]) -> None:
    torch.manual_seed(1)
    products = ConvProducts(stride, (1, 1))
    x = Operand(torch.randint(0, 256, (2, 8, 6, 6), dtype=torch.uint8).contiguous(memory_format=LAST), 0.5, 100)
    w = Operand(torch.randint(-127, 128, (8, 8, 3, 3), dtype=torch.int8), torch.full((8,), 0.25), 0, 127 * 0.25)
    y = functional.conv2d(x.values().double(), w.values().double(), None, stride, 1)
    codes = torch.randint(-128, 128, y.shape, dtype=torch.int8).contiguous(memory_format=LAST)
    g = Operand(codes, 2.0, -3)
    dx, dw, _ = torch.ops.aten.convolution_backward(
        g.values().double(), x.values().double(), w.values().double(), None, stride, (1, 1), (1, 1), False, (0, 0), 1,
        (True, True, False),
    )  # fmt: skip
    for kernel in kernels:
        close = 0.004 if kernel == "bf16" else 1e-6
        if kernel != "int8-shifted":
            assert distance(y, products.forward(kernel, x, w, None)) < close
        if stride == (1, 1) and kernel != "int8-shifted":
            assert distance(dx, products.input(kernel, g, w, x.data.shape)) < close
        if kernel != "int8":
            assert distance(dw, products.weight(kernel, g, x, w.data.shape)) < close
    assert distance(g.values().double().sum((0, 2, 3)), products.bias(g)) < 1e-6


@pytest.mark.parametrize("sizes", [(1, 64, 1), (1, 5, 3), (7, 1, 4), (5, 3, 1), (17, 40, 9), (2, 140_000, 3)])
def test_whole_number_products(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((m, k), (k, n)))
    expected = a.double() @ b.double()
    turned = a.t().contiguous().t(), b.t().contiguous().t()
    for one, other in itertools.product((a, turned[0]), (b, turned[1])):
        assert torch.equal(int_matmul(one, other).double(), expected)


def test_fp8_holds_four_bits() -> None:
    a, b = (torch.randint(-15, 16, (16, 32), dtype=torch.int8) for _ in range(2))
    assert torch.equal(fp8_matmul(a, b.t()), a.float() @ b.float().t())


def test_codes_of_other_devices() -> None:
    x = torch.randn(50)
    for bits in (3, 8):
        low, high, bad = finite_range(x)
        grid = make_grid(low, high, torch.tensor(2.0**bits - 1))
        codes = encode_anywhere(x, grid, bits, bad)
        assert codes.data.dtype == torch.int8
        assert float((codes.values() - x).abs().max()) <= float(grid.scale) * 0.501
    assert encode_anywhere(x, grid, 8, torch.tensor(1)).values().isnan().all()


def test_outlier_channel_takes_a_floating_point_format() -> None:
    """One scale for the whole weight would leave nothing of the small channels."""
    layer, x = layers()["linear, relu"]
    with torch.no_grad():
        layer.weight[0] *= 1000  # pyrefly: ignore[unsupported-operation]
    g = torch.randn(33, 16)
    g[:, 0] = 0.0
    found = []
    for execution in ("simulated", "native"):
        model = quantize_(copy.deepcopy(layer))
        PrecisionController(model, static(8), execution=execution)
        inputs = x.clone().requires_grad_()
        model(inputs).backward(g)
        found.append(inputs.grad)
    assert distance(*found) < 0.02  # pyrefly: ignore[bad-argument-type]


def test_saturating_kernels_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def saturating(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.int() @ b.int()).clamp(-32768, 32767)

    monkeypatch.setattr(torch, "_int_mm", saturating)
    found = support_of.__wrapped__(CPU)
    assert not found.matmul
    assert "int8 matrix products" in found.note
    assert "int8" not in found.formats


def test_device_without_integer_products(monkeypatch: pytest.MonkeyPatch) -> None:
    none = formats.Support(matmul=False, conv=False, bf16=False, fp8=False, note="this device has nothing")
    monkeypatch.setattr("trivet.precision.native.support_of", lambda device: none)
    layer, x = layers()["conv"]
    simulated, _ = computed(layer, x, 8, 8, "simulated")
    native, controller = computed(layer, x, 8, 8, "native")
    assert all(torch.equal(a, b) for a, b in zip(simulated, native, strict=True))
    assert controller.report()[0].execution == "simulated: this device has nothing"


@pytest.mark.parametrize(
    ("layer", "shape", "reason"),
    [
        (nn.Conv2d(4, 4, 3, groups=2), (2, 4, 5, 5), "a grouped convolution"),
        (nn.Conv2d(4, 4, 3, groups=4), (2, 4, 5, 5), "a grouped convolution"),
        (nn.Conv2d(4, 4, 3, dilation=2), (2, 4, 5, 5), "a dilated convolution"),
        (nn.Conv2d(4, 4, 3, padding="same"), (2, 4, 5, 5), "padding that is named or not with zeros"),
        (nn.Conv2d(4, 4, 3), (4, 5, 5), "images without a batch"),
        (nn.Conv1d(4, 4, 3), (2, 4, 5), "Conv1d has no integer kernel"),
        (nn.Linear(4, 4), (0, 4), "an empty batch"),
        (nn.Linear(4, 4).double(), (3, 4), "other numbers than float32, or autocast"),
    ],
)
def test_fallback_is_right_and_reported(layer: nn.Module, shape: tuple[int, ...], reason: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=next(layer.parameters()).dtype)
    simulated, _ = computed(layer, x, 8, 8, "simulated")
    native, controller = computed(layer, x, 8, 8, "native")
    assert all(torch.equal(a, b) for a, b in zip(simulated, native, strict=True))
    assert controller.report()[0].execution == f"simulated: {reason}"


def test_numbers_that_are_not_finite() -> None:
    layer, x = layers()["linear, relu"]
    model = quantize_(copy.deepcopy(layer))
    controller = PrecisionController(model, static(8), execution="native")
    y = model(x)
    g = torch.ones_like(y)
    g[0, 0] = float("inf")
    y.backward(g)
    assert not torch.isfinite(model.weight.grad[0]).any()  # pyrefly: ignore[bad-index, unsupported-operation]
    assert torch.isfinite(model.weight.grad[1:]).all()  # pyrefly: ignore[bad-index, unsupported-operation]
    x[0, 0] = float("nan")
    assert model(x).isnan().sum() == 16
    report = controller.report()[0]
    assert (report.non_finite_inputs, report.non_finite_gradients) == (1, 1)


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(72, 4),
    )


def trained(execution: str, schedule: Any, steps: int, seed: int = 0) -> tuple[list[float], PrecisionController]:
    model = quantize_(net(), everything)
    controller = PrecisionController(model, schedule, execution=execution, seed=seed)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 1, 8, 8, generator=generator)
    y = (x.mean((1, 2, 3)) > 0).long() + 2 * (x[:, 0, 0].sum(1) > 0).long()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        controller.step()
        losses.append(float(loss.detach()))
    return losses, controller


def test_two_hundred_steps_like_simulated() -> None:
    """Native departs from simulated execution no further than simulated with other random numbers does, times four."""
    cut = snap(PrecisionSchedule.named("CR", q_min=8, q_max=32, num_cycles=2, total_steps=200), (8, 16, 32))
    simulated, other, native = (
        torch.tensor(trained(execution, cut, 200, seed)[0])
        for execution, seed in (("simulated", 0), ("simulated", 1), ("native", 0))
    )
    assert native[-1] < 0.5 * native[0]
    noise, gap = (simulated - other).abs().mean(), (simulated - native).abs().mean()
    assert gap < 4 * noise + 0.01


def test_ladder_shows_formats_and_seconds() -> None:
    ladder = snap(PrecisionSchedule.named("CR", q_min=8, q_max=32, num_cycles=2, total_steps=16), (8, 16, 32))
    model = quantize_(nn.Linear(16, 16))
    controller = PrecisionController(model, ladder, execution="native")
    seen = set()
    for _ in range(16):
        bits = controller.bits
        model(torch.randn(8, 16)).sum().backward()
        seen.add((bits, controller.report()[0].execution.split(" ")[0]))
        controller.step()
    assert seen == {(8, "int8"), (16, "bf16" if support_of(CPU).bf16 else "simulated:"), (32, "simulated")}
    assert set(controller.seconds) == {8, 16, 32}
    assert sum(level.steps for level in controller.seconds.values()) == 15


def test_nothing_grows_over_level_changes() -> None:
    model = quantize_(nn.Linear(8, 8))
    controller = PrecisionController(model, static(8), execution="auto")
    x = torch.randn(4, 8)

    def change(times: int) -> tuple[int, int]:
        for i in range(times):
            controller._state.base.set_training(((8, 12, 32)[i % 3],) * 2 + (8,))
            model(x).sum().backward()
            model.zero_grad()
        gc.collect()
        return len(choice.chosen()), sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    few, many = change(30), change(1000)
    assert many[0] == few[0]
    assert many[1] <= few[1]  # what other tests left behind may go meanwhile; a leak would leave hundreds more


def test_kept_for_backward_is_one_byte_an_element() -> None:
    kept: list[torch.Tensor] = []
    model = quantize_(nn.Linear(64, 32))
    PrecisionController(model, static(8), execution="native")
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        model(torch.randn(10, 64)).sum()
    assert sorted(t.nbytes for t in kept) == [10 * 64, 32 * 64]


def test_resume_is_exact_and_takes_choices_over() -> None:
    schedule = PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=6)
    _, controller = trained("auto", schedule, 3)
    state = controller.state_dict()
    assert state["choices"]
    model = quantize_(net(), everything)
    with pytest.raises(ValueError, match="belongs to `execution='auto'`"):
        PrecisionController(model, schedule).load_state_dict(state)
    again = PrecisionController(model, schedule, execution="auto")
    again.load_state_dict(state)
    assert again.bits == controller.bits
    assert {k: v for k, v in again.state_dict().items() if k != "choices"}.keys() == state.keys() - {"choices"}


def test_auto_takes_the_faster_and_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"int8": 3.0, "bf16": 1.0, "fp32": 2.0}
    asked: list[str] = []
    monkeypatch.setattr(choice, "_seconds", lambda kernel, compute: asked.append(kernel) or times[kernel])
    monkeypatch.setattr(choice, "_CHOSEN", {})
    kernels = ("int8", "bf16", "fp32")
    assert [choice.choose("k", kernels, lambda name: torch.zeros(1)) for _ in range(2)] == ["bf16", "bf16"]
    assert asked == list(kernels)
    times["bf16"] = 2.9  # not clearly faster
    assert choice.choose("other", kernels[:2], lambda name: torch.zeros(1)) == "int8"


def test_attention_projections_run_natively() -> None:
    model = quantize_(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), everything)
    controller = PrecisionController(model, static(8), execution="native")
    model(torch.randn(2, 5, 16, requires_grad=True)).sum().backward()
    found = {layer.name: layer.execution for layer in controller.report()}
    assert found["self_attn:in_proj"] == found["linear1"] == "int8 · int8 · int8"


def test_evaluation_is_native_too() -> None:
    layer, x = layers()["linear, relu"]
    model = quantize_(copy.deepcopy(layer))
    controller = PrecisionController(model, static(7), execution="native")
    model(x)
    with torch.no_grad(), controller.at(7):
        y = model(3 * x)  # beyond the running range
        controller._state.execution = "simulated"
        assert distance(model(3 * x), y) < 1e-5


def test_matrix_kernels_of_cuda_need_sizes() -> None:
    kernels = MatrixProducts().kernels("forward", ("int8", "bf16"), torch.Size((8, 5)), torch.Size((7, 5)), CPU)
    assert kernels == ["int8", "bf16"]


def test_configuration() -> None:
    assert PrecisionConfig(schedule="static", bits=8, execution="auto").execution == "auto"
    for wrong in ({"execution": "naive"}, {"execution": "native", "quantizer": "published"}):
        with pytest.raises(ValueError, match="execution"):
            PrecisionConfig(schedule="static", bits=8, **wrong)
    with pytest.raises(ValueError, match="choose a schedule"):
        PrecisionConfig(execution="native")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda() -> None:
    device = torch.device("cuda")
    assert support_of(device).matmul
    torch.manual_seed(0)
    cases = ((nn.Linear(64, 32), torch.randn(48, 64)), (nn.Conv2d(16, 32, 3, padding=1), torch.randn(4, 16, 8, 8)))
    for layer, x in cases:
        for bits in (3, 8, 16):
            simulated, _ = computed(layer.to(device), x.to(device), bits, 8, "simulated")
            native, controller = computed(layer.to(device), x.to(device), bits, 8, "native")
            assert all(distance(a, b) < 0.02 for a, b in zip(simulated, native, strict=True))
            assert "simulated" not in controller.report()[0].execution


def test_sites_say_what_ran() -> None:
    model = quantize_(nn.Linear(8, 8))
    PrecisionController(model, static(8), execution="native")
    model(torch.randn(2, 8)).sum().backward()
    assert quantized_sites(model)[0].executed == dict.fromkeys(("forward", "weight"), "int8")


@pytest.mark.parametrize("bits", [4, 8])
def test_lstm_like_simulated(bits: int) -> None:
    torch.manual_seed(0)
    model = nn.LSTM(12, 20, 2, bidirectional=True)
    x, start = torch.randn(6, 5, 12), torch.zeros(4, 5, 20)
    found: list[list[torch.Tensor]] = []
    for execution in ("simulated", "native", "full"):
        copied = quantize_(copy.deepcopy(model))
        schedule = static(32 if execution == "full" else bits)
        grad_bits = 32 if execution == "full" else 8
        controller = PrecisionController(
            copied, schedule, grad_bits, execution="native" if execution == "native" else "simulated"
        )
        inputs, h, c = (t.clone().requires_grad_() for t in (x, start, start))
        y, (last, cell) = copied(inputs, (h, c))
        ((y * torch.linspace(0, 9, y.numel()).view(y.shape).sin()).sum() + (last - cell).sum()).backward()
        grads = [t.grad for t in (inputs, h, c, *copied.parameters())]
        found.append([y.detach(), last.detach(), cell.detach(), *(g for g in grads if g is not None)])
        if execution == "native":
            names = {site.name: site.execution for site in controller.report()}
            assert names["hh_l0" if "hh_l0" in names else next(n for n in names if n.endswith("hh_l0"))] == (
                "int8 · int8 · bf16"
            )
    for simulated, native, full in zip(*found, strict=True):
        assert distance(simulated, native) < max(1.5 * distance(full, simulated), 0.006)
    calls = [layer.calls for layer in controller.report() if "hh" in layer.name]
    assert calls == [1] * 4 or calls == [6] * 4
