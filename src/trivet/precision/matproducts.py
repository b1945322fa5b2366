"""The three products of a Linear layer in the number format that the caller names.

    forward  y  = x wᵀ + bias        [rows, inputs] × [inputs, outputs]
    input    dx = g w                [rows, outputs] × [outputs, inputs]
    weight   dw = gᵀ x               [outputs, rows] × [rows, inputs]

Operands are codes or numbers (`codes.py`). int8 products give whole numbers, exactly; where a zero has another code
than 0, sums of the other operand's codes correct for it:

    Σ (a − a₀)(b − b₀) = Σ a b − b₀ Σ a − a₀ Σ b + k a₀ b₀

Not covered: sums longer than 131,071 in one kernel call; they are taken in parts.
"""

from __future__ import annotations

import torch

from trivet.precision.codes import Operand, common_scale

LONGEST_SUM = 2**17 - 1
"""Products of two int8 codes whose sum surely fits into 32 bits."""

_PIECE = 2**17
FLOATS = {"bf16": torch.bfloat16, "fp32": torch.float32}


def int_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """int8 [m, k] × int8 [k, n] → int32 [m, n], or float32 where the sum is taken in parts.

    Either may be transposed in memory.

    Examples:
        >>> ones = torch.ones(2, 3, dtype=torch.int8)
        >>> int_matmul(ones, ones.t()).tolist()
        [[3, 3], [3, 3]]
    """
    if a.shape[1] > LONGEST_SUM:
        parts = zip(a.split(LONGEST_SUM, 1), b.split(LONGEST_SUM, 0), strict=True)
        return torch.stack([int_matmul(one, other).float() for one, other in parts]).sum(0)
    return torch._int_mm(_kernel_ready(a), _kernel_ready(b))


def _kernel_ready(x: torch.Tensor) -> torch.Tensor:
    """A matrix whose strides say what its layout is: the kernel misreads those of dimensions of size 1."""
    if x.stride() in ((x.shape[1], 1), (1, x.shape[0])) and min(x.shape) > 1:
        return x
    return torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)


def fp8_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Codes of at most 4 bits, int8 [m, k] × [k, n] → float32, through fp8 kernels."""
    one = torch.ones((), device=a.device)
    left = a.to(torch.float8_e4m3fn).contiguous()
    right = b.to(torch.float8_e4m3fn).t().contiguous().t()
    return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.float32)


def fits_kernel(m: int, k: int, n: int, device: torch.device) -> bool:
    """Whether the integer kernel of a device takes these sizes.

    Examples:
        >>> fits_kernel(3, 5, 7, torch.device("cpu"))
        True
    """
    if device.type != "cuda":
        return min(m, k, n) > 0
    return m > 16 and k % 8 == 0 and n % 8 == 0


def column_sums(codes: torch.Tensor) -> torch.Tensor:
    """Sums of int8 [m, n] over m, float32 [n].

    Examples:
        >>> column_sums(torch.ones(3, 2, dtype=torch.int8)).tolist()
        [3.0, 3.0]
    """
    if codes.device.type != "cpu":
        return codes.sum(0, dtype=torch.int32).float()
    # A product with ones is several times faster than a sum of bytes.
    return int_matmul(torch.ones(1, codes.shape[0], dtype=torch.int8), codes)[0].float()


def scaled(
    y: torch.Tensor, factor: float | torch.Tensor, row: torch.Tensor | None, column: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute y × factor + row + column in float32, in the memory of y where its numbers have that size.

    Args:
        y: int32, float32 or bf16 [m, n], owned by the caller.
        factor: A number, or one per column.
        row: [n], added to every row.
        column: [m], added to every column.

    Examples:
        >>> scaled(torch.tensor([[2, 4]], dtype=torch.int32), 0.5, torch.tensor([1.0, 0.0])).tolist()
        [[2.0, 2.0]]
    """
    if y.element_size() == 4 and y.is_contiguous():
        out = torch.empty(0, device=y.device).set_(y.untyped_storage(), y.storage_offset(), y.shape, y.stride())
    else:
        out = torch.empty(y.shape, device=y.device)
    per_column = isinstance(factor, torch.Tensor) and factor.dim() > 0
    step = max(1, _PIECE // max(1, y.shape[1])) if y.device.type == "cpu" else max(1, y.shape[0])
    for at in range(0, y.shape[0], step):
        source, target = y[at : at + step], out[at : at + step]
        if source.dtype != torch.float32 or source.data_ptr() != target.data_ptr():
            target.copy_(source)
        if row is None:
            target.mul_(factor)
        elif per_column:
            torch.addcmul(row, target, factor, out=target)  # pyrefly: ignore[no-matching-overload]
        elif isinstance(factor, torch.Tensor):
            target.mul_(factor).add_(row)
        else:
            torch.add(row, target, alpha=factor, out=target)
        if column is not None:
            target.add_(column[at : at + step, None])
    return out


def corrections(
    a: Operand, a_sums: torch.Tensor | None, b: Operand, b_sums: torch.Tensor | None, length: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """What has to be added to Σ a b along b's free dimension and along a's, for zeros that have other codes than 0."""
    along_b = None if b_sums is None else b_sums * -a.zero
    along_a = None if a_sums is None else a_sums * -b.zero
    if along_b is not None and along_a is not None:
        along_b = along_b + length * a.zero * b.zero
    return along_b, along_a


class MatrixProducts:
    """The products of a Linear layer; inputs and outputs may have any number of leading dimensions."""

    unsigned = False
    """Which codes the forward kernel takes."""

    def kernels(
        self, product: str, formats: tuple[str, ...], a: torch.Size, w: torch.Size, device: torch.device
    ) -> list[str]:
        """Kernels that can compute a product, in the order of preference.

        Args:
            product: forward, input or weight.
            formats: That hold both operands, cheapest first.
            a: Shape of the first operand, x or g.
            w: Shape of the weight.
            device: Of both.
        """
        rows, (outputs, inputs) = a[:-1].numel(), w
        sizes = {"forward": (rows, inputs, outputs), "input": (rows, outputs, inputs)}
        size = sizes.get(product, (outputs, rows, inputs))
        fits = fits_kernel(*size, device) and (device.type != "cuda" or all(n % 16 == 0 for n in size[1:]))
        return [name for name in formats if name in FLOATS or fits]

    def forward(self, kernel: str, x: Operand, w: Operand, bias: torch.Tensor | None) -> torch.Tensor:
        """The output, float32."""
        shape = (*x.data.shape[:-1], w.data.shape[0])
        factor = w.scale * x.scale
        if kernel in FLOATS:
            dtype = FLOATS[kernel]
            y = _flat(x.numbers(dtype)) @ w.numbers(dtype).t()
            return scaled(y, factor, bias).view(shape)
        x = x.signed()
        y = _whole(kernel, _flat(x.data), w.data.t())
        row = bias
        if x.shifted:
            row = column_sums(w.data.t()) * -x.zero * factor
            row = row if bias is None else row + bias
        return scaled(y, factor, row).view(shape)

    def input(self, kernel: str, g: Operand, w: Operand, like: torch.Size) -> torch.Tensor:
        """The input gradient, float32."""
        if kernel in FLOATS:
            dtype = FLOATS[kernel]
            return scaled(_flat(g.numbers(dtype)) @ weight_numbers(w, dtype), g.scale, None).view(like)
        again = common_scale(w)
        if again is None:
            return self.input("bf16", g, w, like)
        g = g.signed()
        y = _whole(kernel, _flat(g.data), again.data)
        factor = g.scale * again.scale
        row = column_sums(again.data) * -g.zero * factor if g.shifted else None
        return scaled(y, factor, row).view(like)

    def weight(self, kernel: str, g: Operand, x: Operand, like: torch.Size) -> torch.Tensor:
        """The weight gradient, float32."""
        factor = g.scale * x.scale
        if kernel in FLOATS:
            dtype = FLOATS[kernel]
            return scaled(_flat(g.numbers(dtype)).t() @ _flat(x.numbers(dtype)), factor, None)
        g, x = g.signed(), x.signed()
        left, right = _flat(g.data), _flat(x.data)
        row, column = corrections(
            g, column_sums(left) if x.shifted else None, x, column_sums(right) if g.shifted else None, left.shape[0]
        )
        row, column = (None if part is None else part * factor for part in (row, column))
        return scaled(_whole(kernel, left.t(), right), factor, row, column)

    def bias(self, g: Operand) -> torch.Tensor:
        """Sum of g over everything but the outputs."""
        return summed(_flat(g.data), g)


def summed(rows: torch.Tensor, g: Operand) -> torch.Tensor:
    """Sum of a gradient [rows, outputs], given as data of an operand, over its rows."""
    if not g.coded:
        return rows.float().sum(0) * g.scale
    codes = g._replace(data=rows).signed()
    return (column_sums(codes.data) - codes.zero * rows.shape[0]) * g.scale


def weight_numbers(w: Operand, dtype: torch.dtype) -> torch.Tensor:
    """The values of a weight in a floating-point format, with the scales of its channels."""
    return w.values().to(dtype) if w.coded else w.data.to(dtype)


def _whole(kernel: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return fp8_matmul(a, b) if kernel == "fp8" else int_matmul(a, b)


def _flat(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1])
