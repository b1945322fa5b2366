"""Number formats that a device executes, and which of them holds a given number of bits.

The ladder, cheapest first; a product runs in the first format that the device has and that holds both operands:

| format | holds | why |
|---|---|---|
| fp8 (e4m3) | 4 bits | whole numbers up to 16 are exact; CUDA devices of compute capability 8.9 and later |
| int8 | 8 bits | codes themselves |
| bf16 | 16 bits | the format has 16 bits, of which 8 are significant: a rung of the ladder, not a grid of 2¹⁶ values |
| fp32 | 32 bits | nothing is rounded |

Whole numbers up to 256 are exact in bf16 and in fp32, so the wider formats execute fewer bits faithfully too.

Integer kernels are tried before they are trusted (`support_of`): some processors without VNNI saturate the sum of two
products at 16 bits, without a word. Not covered: formats below 8 bits, which no supported device multiplies faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

LADDER: tuple[tuple[str, int], ...] = (("fp8", 4), ("int8", 8), ("bf16", 16), ("fp32", 32))
"""Formats and the bits they hold, cheapest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Support:
    """What a device executes."""

    matmul: bool
    """int8 × int8 → int32 matrix products that are right."""
    conv: bool
    """uint8 × int8 convolutions that are right (oneDNN)."""
    bf16: bool
    """bf16 instructions; False where they would be emulated."""
    fp8: bool
    """fp8 matrix products."""
    note: str
    """What is missing, in words; empty when nothing is."""

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats of the ladder that the device has, cheapest first."""
        have = {"fp8": self.fp8, "int8": self.matmul, "bf16": self.bf16, "fp32": True}
        return tuple(name for name, _ in LADDER if have[name])


def cheapest(bits: int, formats: tuple[str, ...]) -> str:
    """The first format of a device that holds so many bits.

    Examples:
        >>> [cheapest(bits, ("int8", "bf16", "fp32")) for bits in (3, 8, 9, 16, 17)]
        ['int8', 'int8', 'bf16', 'bf16', 'fp32']
    """
    return next(name for name, held in LADDER if name in formats and held >= bits)


def executable(bits: int, formats: tuple[str, ...]) -> tuple[str, ...]:
    """Every format of a device that holds so many bits, cheapest first.

    Examples:
        >>> executable(8, ("int8", "bf16", "fp32"))
        ('int8', 'bf16', 'fp32')
    """
    return tuple(name for name, held in LADDER if name in formats and held >= bits)


@lru_cache(maxsize=16)
def support_of(device: torch.device) -> Support:
    """What a device executes, found by trying: products of extreme codes against whole-number arithmetic.

    Examples:
        >>> support_of(torch.device("cpu")).formats[-1]
        'fp32'
    """
    with torch.inference_mode(False), torch.no_grad():
        matmul, conv = _tried(_matmul_is_right, device), device.type == "cpu" and _tried(_conv_is_right, device)
    fp8 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)
    fp8 = fp8 and _tried(_fp8_is_right, device)
    bf16 = _has_bf16(device)
    missing = [
        name
        for name, there in (("int8 matrix products", matmul), ("int8 convolutions", conv), ("bf16", bf16))
        if not there
    ]
    note = f"this device does not execute {', '.join(missing)} (or not correctly)" if missing else ""
    return Support(matmul=matmul, conv=conv, bf16=bf16, fp8=fp8, note=note)


def _tried(test: object, device: torch.device) -> bool:
    try:
        return bool(test(device))  # pyrefly: ignore[not-callable]
    except (RuntimeError, AttributeError):
        return False


def _extremes(rows: int, columns: int, device: torch.device, low: int, high: int) -> torch.Tensor:
    """The largest codes in the first row, the smallest in the second, then all kinds."""
    codes = torch.arange(rows * columns, device=device).mul_(97).remainder_(high - low + 1).add_(low)
    codes = codes.view(rows, columns)
    codes[0], codes[1] = high, low
    return codes


def _matmul_is_right(device: torch.device) -> bool:
    a, b = _extremes(32, 64, device, -128, 127), _extremes(40, 64, device, -128, 127)
    expected = (a.double() @ b.double().t()).long()
    found = [
        torch._int_mm(a.to(torch.int8), b.to(torch.int8).t()),
        torch._int_mm(a.to(torch.int8).t().contiguous().t(), b.to(torch.int8).t().contiguous()),
    ]
    return all(torch.equal(one.long(), expected) for one in found)


def _conv_is_right(device: torch.device) -> bool:
    from trivet.precision.convproducts import quantized_conv

    x, w = _extremes(2, 16 * 25, device, 0, 255).view(2, 16, 5, 5), _extremes(16, 144, device, -127, 127)
    w = w.view(16, 16, 3, 3)
    expected = torch.nn.functional.conv2d(x.double() - 7, w.double(), None, 1, 1)
    layout = torch.channels_last
    x, w = x.to(torch.uint8).contiguous(memory_format=layout), w.to(torch.int8)
    found = quantized_conv(x, 1.0, 7, w, torch.ones(16), None, (1, 1), (1, 1))
    return bool((found.double() - expected).abs().max() <= 1e-6 * expected.abs().max())


def _fp8_is_right(device: torch.device) -> bool:
    from trivet.precision.matproducts import fp8_matmul

    a, b = _extremes(32, 64, device, -15, 15).to(torch.int8), _extremes(48, 64, device, -15, 15).to(torch.int8)
    return torch.equal(fp8_matmul(a, b.t()).double(), a.double() @ b.double().t())


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    found = getattr(torch.cpu, "get_capabilities", dict)()
    return any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))
