"""One sweep of a gated graph network over its nodes, level by level, with a gradient written out by hand.

A node v is updated once, after everything it listens to, by a GRU cell that reads the sum of messages:

    m_v = Σ_{u → v} f(h_u) + Σ_{u: 1 ≤ s(u,v) ≤ reach} g(h_u) / s(u,v),        h_v ← GRU(m_v, h_v)

(equations 3 and 4 of Knyazev et al., 2021; f and g are two-layer perceptrons with ReLU after both layers). Since a
node's state is final once it is visited, each message is computed once a node instead of once an edge, and all nodes
of equal depth are updated together, in all graphs of a batch. Every row of the buffers is written exactly once, so the
backward pass walks the levels the other way with the same few operations, and each weight's gradient is one product
over all nodes at the end.

Not covered: gradients of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Bags:
    """For each level: which rows are summed into each of its nodes, with which weight (CSR, cut by level)."""

    rows: tuple[Tensor, ...]
    """Row numbers, int32 [terms of the level]."""
    weights: tuple[Tensor, ...]
    """Factors, float32 [terms of the level]."""
    starts: tuple[Tensor, ...]
    """Where each bag begins in `rows`, int32 [bags of the level]."""

    def sum(self, level: int, values: Tensor) -> Tensor:
        """Weighted sums of rows of `values`, one a bag of the level."""
        rows, weights, starts = self.rows[level], self.weights[level], self.starts[level]
        return torch.embedding_bag(values, rows, starts, False, 0, False, weights.to(values.dtype))[0]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Order of a sweep and who listens to whom; rows are nodes in the order of their visit."""

    order: Tensor
    """Node of each row, int64 [nodes]."""
    back: Tensor
    """Row of each node, int64 [nodes]."""
    sizes: tuple[int, ...]
    """Nodes of each level."""
    heard: Bags
    """For each node the messages it sums: message k of row r is row `messages · r + k` of the message buffer."""
    spoken: Bags
    """For each message the rows that sum it, the transpose of `heard`."""


def sweep(h: Tensor, plan: SweepPlan, weights: Sequence[Tensor]) -> Tensor:
    """Update every node's state once.

    Args:
        h: States [nodes, d], by node.
        plan: Order and messages.
        weights: w1 [k·a, d], b1 of the first layers of the k message functions, w2 [k·d, k·a] (blocks on the
            diagonal), b2 of the second ones, and the GRU cell's w_ih [3d, d], w_hh, b_ih, b_hh (reset, update, new).

    Returns:
        New states [nodes, d], by node.
    """
    rows = h.index_select(0, plan.order)
    result = _Sweep.apply(rows, plan, *weights) if torch.is_grad_enabled() else _forward(rows, plan, *weights)[0]
    return result.index_select(0, plan.back)


@dataclass(slots=True)
class _Saved:
    """Buffers of a forward sweep, by row."""

    gates: Tensor
    """r, z and n after their non-linearities [nodes, 3d]."""
    old_new: Tensor
    """w_hn·h + b_hn [nodes, d]."""
    summed: Tensor
    hidden: Tensor
    messages: Tensor


def _forward(
    h: Tensor, plan: SweepPlan, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor,
    w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor,
) -> tuple[Tensor, _Saved]:  # fmt: skip
    count, d = h.shape
    old = torch.addmm(b_hh, h, w_hh.t())
    out, gates = torch.empty_like(h), h.new_empty(count, 3 * d)
    hidden, messages = h.new_empty(count, w1.shape[0]), h.new_empty(count, w2.shape[0])
    bank = messages.view(-1, d)
    w1t, w2t, w_int = w1.t(), w2.t(), w_ih.t()
    split = [buffer.split(plan.sizes) for buffer in (h, out, gates, hidden, messages)]
    old_rz, old_n = old[:, : 2 * d].split(plan.sizes), old[:, 2 * d :].split(plan.sizes)
    rz, n = gates[:, : 2 * d].split(plan.sizes), gates[:, 2 * d :].split(plan.sizes)
    r, z = gates[:, :d].split(plan.sizes), gates[:, d : 2 * d].split(plan.sizes)
    sums = []
    for level, (h_l, out_l, gates_l, hidden_l, message_l) in enumerate(zip(*split, strict=True)):
        total = plan.heard.sum(level, bank)
        sums.append(total)
        torch.addmm(b_ih, total, w_int, out=gates_l)
        rz[level].add_(old_rz[level]).sigmoid_()
        new = n[level].addcmul_(r[level], old_n[level]).tanh_()
        torch.lerp(new, h_l, z[level], out=out_l)
        torch.addmm(b1, out_l, w1t, out=hidden_l).relu_()
        torch.addmm(b2, hidden_l, w2t, out=message_l).relu_()
    return out, _Saved(gates, old[:, 2 * d :], torch.cat(sums), hidden, messages)


class _Sweep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, plan: SweepPlan, *weights: Tensor) -> Tensor:  # pyrefly: ignore[bad-override]
        out, saved = _forward(h, plan, *weights)
        ctx.plan = plan
        buffers = (saved.gates, saved.old_new, saved.summed, saved.hidden, saved.messages)
        ctx.save_for_backward(h, out, *buffers, *weights)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore[bad-override]
        h, out, gates, old_new, summed, hidden, messages, w1, _, w2, _, w_ih, w_hh, _, _ = ctx.saved_tensors
        d = h.shape[1]
        r, z, n = gates.split(d, 1)
        # What one unit of dL/dh' becomes before each of the three non-linearities.
        to_new = (1 - z) * (1 - n * n)
        factors = torch.stack((to_new * old_new * r * (1 - r), (h - n) * z * (1 - z), to_new), 1)
        d_out, d_gates = torch.empty_like(h), torch.empty_like(factors)
        d_summed = torch.empty_like(h)
        d_hidden, d_messages = torch.empty_like(hidden), torch.empty_like(messages)
        alive_1, alive_2 = (hidden > 0).to(h.dtype), (messages > 0).to(h.dtype)
        sizes = ctx.plan.sizes
        buffers = (grad, d_out, d_gates, factors, d_summed, d_hidden, d_messages, alive_1, alive_2)
        levels = list(zip(*(buffer.split(sizes) for buffer in buffers), strict=True))
        for level in range(len(sizes) - 1, -1, -1):
            grad_l, out_l, gates_l, factors_l, sum_l, hidden_l, message_l, alive_1_l, alive_2_l = levels[level]
            spoken = ctx.plan.spoken.sum(level, d_summed).view_as(message_l)
            torch.mul(spoken, alive_2_l, out=message_l)
            torch.mm(message_l, w2, out=hidden_l).mul_(alive_1_l)
            torch.addmm(grad_l, hidden_l, w1, out=out_l)
            torch.mul(out_l.unsqueeze(1), factors_l, out=gates_l)
            torch.mm(gates_l.view(-1, 3 * d), w_ih, out=sum_l)
        d_old = d_gates.clone()
        d_old[:, 2] *= r
        d_in, d_old = d_gates.view(-1, 3 * d), d_old.view(-1, 3 * d)
        d_h = torch.addmm(d_out * z, d_old, w_hh)
        return (
            d_h, None, d_hidden.t() @ out, d_hidden.sum(0), d_messages.t() @ hidden, d_messages.sum(0),
            d_in.t() @ summed, d_old.t() @ h, d_in.sum(0), d_old.sum(0),
        )  # fmt: skip
