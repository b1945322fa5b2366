"""The recurrence of an LSTM in int8: one weight, coded once a sequence, and a product of codes at every time step.

    z = gates_t + ĥ_{t−1} ŵᵀ + b,   i, f, o = σ(z_i, z_f, z_o),   g = tanh(z_g)
    c_t = f c_{t−1} + i g,   h_t = o tanh(c_t)

Rounding is that of the step-by-step simulation: the state with one range a step, the output gradient of the product
with random numbers of its own each step. The gradient of the weight is one bf16 product over all steps instead of one a
step, since the steps have scales of their own; that alone saves a pass over the weight at every step.

Not covered (the step-by-step path does them): projections, packed sequences of different lengths, more than 8 bits, the
other recurrent layers, devices other than the CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from trivet.precision.codes import Operand, common_scale, encode, encode_weight
from trivet.precision.formats import support_of
from trivet.precision.matproducts import column_sums, int_matmul, scaled
from trivet.precision.native import CODE_BITS, obstacle
from trivet.precision.noise import noise_like
from trivet.precision.plain import plain_grid, plain_range
from trivet.precision.sites import Pass, Site


def native_recurrence(
    site: Site,
    gates: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: tuple[torch.Tensor, ...],
    kind: Pass,
    *,
    reverse: bool,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] | None:
    """All time steps of one direction of one layer; None where they have to be simulated.

    Args:
        site: Of the product with the state.
        gates: [steps, batch, 4 hidden], the product with the input.
        weight: [4 hidden, hidden].
        bias: [4 hidden].
        state: First hidden and cell state, [batch, hidden].
        kind: Of this pass.
        reverse: Whether to start at the last step.

    Returns:
        Hidden states [steps, batch, hidden], and the last hidden and cell state.
    """
    dials = site.dials
    forward = (
        (dials.weight, dials.activation) if kind.scheduled else (dials.weight_evaluation, dials.activation_evaluation)
    )
    fits = all(dial.bits <= CODE_BITS for dial in forward) and (not kind.marked or dials.gradient.bits <= CODE_BITS)
    ready = fits and site.state.execution != "simulated" and gates.device.type == "cpu"
    if not ready or site.quantizer is None or torch.compiler.is_compiling():
        return None
    if obstacle(None, gates, weight, site) or not support_of(gates.device).matmul:
        return None
    if not kind.marked and torch.is_grad_enabled():
        return None  # gradients in evaluation mode, which are not rounded
    with torch.no_grad():
        w = encode_weight(weight.detach(), forward[0].bits)
        if w is None or common_scale(w) is None or not all(torch.isfinite(part).all() for part in (gates, *state)):
            return None
        if kind.recorded and site._unsampled("weight", dials.weight):
            site.note_error("weight", forward[0].bits, weight.detach(), w.values())
    run = _Run(site, kind, w, float(2 ** forward[1].bits - 1), reverse)
    outputs, h, c = _Recurrence.apply(gates, weight, bias, *state, run)
    site.executed = {"forward": "int8", "input": "int8", "weight": "bf16"}
    return outputs, (h, c)


class _Run:
    """What forward and backward pass share."""

    def __init__(self, site: Site, kind: Pass, w: Operand, levels: float, reverse: bool) -> None:
        self.site, self.kind, self.w, self.levels, self.reverse = site, kind, w, levels, reverse
        self.offsets: list[Any] = []

    def order(self, steps: int) -> list[int]:
        return list(reversed(range(steps))) if self.reverse else list(range(steps))

    def encode_state(self, h: torch.Tensor) -> Operand:
        site = self.site
        low, high = plain_range(h) or (0.0, 0.0)  # an output gate times a hyperbolic tangent is finite
        low, high = site.range_of(0).in_mode_plain(low, high, self.kind.mode)
        operand = encode(h, plain_grid(low, high, self.levels, within=self.kind.mode != "running"))
        if self.kind.recorded:
            if site._unsampled("activation", site.dials.activation):
                site.note_error("activation", site.dials.activation.bits, h, operand.values())
            site.count(h.shape[0] * self.w.data.numel(), h.device)
        if self.kind.marked:
            self.offsets.append(site._noise_offset(h.device, advance=self.kind.recorded))
        return operand

    def encode_gradient(self, grad: torch.Tensor, step: int) -> Operand | None:
        found = plain_range(grad)
        if found is None:
            return None
        dial = self.site.dials.gradient
        grid = plain_grid(*found, float(2**dial.bits - 1), stochastic=True)
        operand = encode(grad, grid, noise_like(grad, self.offsets[step]))
        if self.kind.recorded and self.site._unsampled("gradient", dial):
            self.site.note_error("gradient", dial.bits, grad, operand.values())
        return operand


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any,
        gates: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        h: torch.Tensor,
        c: torch.Tensor,
        run: _Run,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        steps, batch, width = gates.shape
        outputs = gates.new_empty(steps, batch, width // 4)
        opened, cells, states = torch.empty_like(gates), torch.empty_like(outputs), torch.empty_like(outputs)
        before = c
        across = run.w.data.t()
        sums = column_sums(across)
        for t in run.order(steps):
            x = run.encode_state(h.contiguous())
            states[t] = x.values()
            z = _product(x, run.w, across, sums, bias).add_(gates[t])
            i, f, g, o = z.chunk(4, -1)
            for part in (i, f, o):
                part.sigmoid_()
            g.tanh_()
            c = torch.addcmul(f * c, i, g)
            h = o * torch.tanh(c)
            outputs[t], cells[t], opened[t] = h, c, z
        ctx.save_for_backward(opened, cells, states.to(torch.bfloat16), before)
        ctx.run, ctx.bias = run, bias is not None
        return outputs, h.clone(), c.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:  # pyrefly: ignore[bad-override]
        opened, cells, states, before = ctx.saved_tensors
        run: _Run = ctx.run
        d_outputs, dh, dc = grads
        steps, _, width = opened.shape
        d_gates, rounded = torch.empty_like(opened), torch.empty(opened.shape, dtype=torch.bfloat16)
        again = common_scale(run.w)
        columns = None if again is None else column_sums(again.data)
        sums = torch.zeros(width)
        order = run.order(steps)
        for place in reversed(range(steps)):
            t = order[place]
            i, f, g, o = opened[t].chunk(4, -1)
            previous = cells[order[place - 1]] if place else before
            dh = dh + d_outputs[t]
            tanh = torch.tanh(cells[t])
            dc = dc + dh * o * (1 - tanh * tanh)
            d = d_gates[t]
            torch.cat(
                (dc * g * (i - i * i), dc * previous * (f - f * f), dc * i * (1 - g * g), dh * tanh * (o - o * o)),
                -1,
                out=d,
            )
            code = run.encode_gradient(d, place)
            if code is None or again is None or columns is None:  # not finite: nothing is hidden
                values = d
                dh = d @ run.w.values()
            else:
                values = code.values()
                dh = _product(code, again, again.data, columns, None)
            rounded[t] = values
            sums += values.sum(0)
            dc = dc * f
        d_weight = (rounded.view(-1, width).t() @ states.view(-1, width // 4)).float()
        return d_gates, d_weight, sums if ctx.bias else None, dh, dc, None


def _product(x: Operand, w: Operand, data: torch.Tensor, sums: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """A product of codes [rows, k] with those of the weight, laid out as `data` [k, n], whose column sums are known."""
    factor = w.scale * x.scale
    row = bias
    if x.shifted:
        row = sums * -x.zero * factor
        row = row if bias is None else row + bias
    return scaled(int_matmul(x.data, data), factor, row)
