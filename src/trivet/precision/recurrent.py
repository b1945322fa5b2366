"""Rules for recurrent layers and cells: the products of LSTM, GRU and RNN at few bits.

torch runs a recurrent layer as one kernel, so it is written out here, layer by layer and direction by direction. The
product with the input (`ih`) is one matrix multiplication for all time steps; the product with the state (`hh`) is one
a step, with the weight rounded once and the state rounded each time. Gates, cell state and dropout stay in full
precision. Projections (`proj_size`) and packed sequences of different lengths are covered.

At 32 bits, and where nothing is quantized, torch's kernel runs. Multiply-accumulates are those of all products.

Not covered: the published code rounds the input step by step, here it is rounded for all steps together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn import functional

from trivet.precision.native import native_product
from trivet.precision.nativelstm import native_recurrence
from trivet.precision.sites import Pass, Site

if TYPE_CHECKING:
    from trivet.precision.scope import ScopedForward

Tensors = tuple[torch.Tensor, ...]

LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CELLS = {f"{name}_cell": name for name in LAYERS}
"""Kernels of cells, and those of the layers that repeat them."""


class _Weights(NamedTuple):
    """Weights of one direction of one layer."""

    ih: torch.Tensor
    """[gates × hidden, input]."""
    hh: torch.Tensor
    """[gates × hidden, state]."""
    b_ih: torch.Tensor | None
    b_hh: torch.Tensor | None
    hr: torch.Tensor | None
    """[projection, hidden]."""


class _Step(NamedTuple):
    """What one direction needs at each time step."""

    kind: str
    hh_site: Site
    hr_site: Site | None
    weights: _Weights
    """With hh and hr rounded."""
    this_pass: Pass


def layers(scope: ScopedForward, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`lstm`, `gru`, `rnn_tanh` or `rnn_relu` over a sequence, or over a packed batch of sequences."""
    packed = isinstance(args[1], torch.Tensor) and isinstance(args[3], (list, tuple))
    if packed:
        data, sizes, hx, flat, biases, count, dropout, training, both = args[:9]
        lengths = sizes.tolist()
        batch_first = False
    else:
        data, hx, flat, biases, count, dropout, training, both, batch_first = args[:9]
        if batch_first:
            data = data.transpose(0, 1)
        lengths = [data.shape[1]] * data.shape[0]
    hidden: Tensors = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    directions = 2 if both else 1
    weights = _unflatten(flat, biases, projected=len(hidden) > 1 and hidden[0].shape[-1] != hidden[1].shape[-1])
    kind = scope.current_pass()
    sites = [_sites(scope, i // directions, w, reverse=bool(i % directions)) for i, w in enumerate(weights)]
    if all(_is_exact(site, kind) for group in sites for site in group):
        if kind.recorded:
            for group, w in zip(sites, weights, strict=True):
                _count(group, w, sum(lengths), data.device)
        return func(*args, **kwargs)
    x = data if packed else data.reshape(-1, data.shape[-1])
    last: list[Tensors] = []
    for layer in range(count):
        outputs = []
        for direction in range(directions):
            i = layer * directions + direction
            start = tuple(h[i] for h in hidden)
            y, end = _run(name, sites[i], weights[i], x, start, lengths, kind, reverse=direction == 1)
            outputs.append(y)
            last.append(end)
        x = torch.cat(outputs, -1) if both else outputs[0]
        if dropout > 0 and training and layer < count - 1:
            x = functional.dropout(x, dropout)
    if not packed:
        x = x.reshape(data.shape[0], data.shape[1], x.shape[-1])
        if batch_first:
            x = x.transpose(0, 1)
    return (x, *(torch.stack(parts) for parts in zip(*last, strict=True)))


def cell(scope: ScopedForward, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """One step of a cell."""
    x, hx, w_ih, w_hh, b_ih, b_hh = (*args, None, None)[:6]
    state = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    weights = _Weights(w_ih, w_hh, b_ih, b_hh, None)
    ih, hh = scope.site("ih"), scope.site("hh")
    kind = scope.current_pass()
    if _is_exact(ih, kind) and _is_exact(hh, kind):
        if kind.recorded:
            _count((ih, hh), weights, math.prod(x.shape[:-1]), x.device)
        return func(*args, **kwargs)
    gates = _input_product(ih, weights, x, kind)
    step = _prepare(CELLS[name], (ih, hh), weights, kind)
    y = _STEPS[step.kind](step, gates, state)
    return y if len(y) > 1 else y[0]


def _unflatten(flat: Sequence[torch.Tensor], biases: bool, *, projected: bool) -> list[_Weights]:
    """The flat list of weights by layer and direction."""
    width = 2 + (2 if biases else 0) + (1 if projected else 0)
    found = []
    for i in range(0, len(flat), width):
        part = list(flat[i : i + width])
        hr = part.pop() if projected else None
        found.append(_Weights(part[0], part[1], part[2] if biases else None, part[3] if biases else None, hr))
    return found


def _sites(scope: ScopedForward, layer: int, weights: _Weights, *, reverse: bool) -> tuple[Site, ...]:
    end = f"_l{layer}{'_reverse' if reverse else ''}"
    names = ("ih", "hh", "hr") if weights.hr is not None else ("ih", "hh")
    return tuple(scope.site(name + end) for name in names)


def _is_exact(site: Site, kind: Pass) -> bool:
    if site.quantizer is None:
        return True
    dials = site.dials
    if kind.scheduled:
        return dials.weight.exact and dials.activation.exact and (dials.gradient.exact or not kind.marked)
    return dials.weight_evaluation.exact and dials.activation_evaluation.exact


def _count(sites: tuple[Site, ...], weights: _Weights, rows: int, device: torch.device) -> None:
    for site, weight in zip(sites, (weights.ih, weights.hh, weights.hr), strict=False):
        if weight is not None:
            site.count(rows * math.prod(weight.shape), device)


def _prepare(kind: str, sites: tuple[Site, ...], weights: _Weights, this_pass: Pass) -> _Step:
    """What the steps need."""
    hr_site = sites[2] if weights.hr is not None else None
    rounded = weights._replace(
        hh=sites[1].round_weight(weights.hh, (1,), this_pass),
        b_hh=sites[1].round_bias(weights.b_hh, this_pass),
        hr=None if hr_site is None or weights.hr is None else hr_site.round_weight(weights.hr, (1,), this_pass),
    )
    return _Step(kind, sites[1], hr_site, rounded, this_pass)


def _input_product(ih: Site, weights: _Weights, x: torch.Tensor, this_pass: Pass, steps: int = 1) -> torch.Tensor:
    """The product with the input for all rows."""
    if ih.state.execution != "simulated" and not torch.compiler.is_compiling():
        found = native_product(None, ih, x, weights.ih, weights.b_ih, this_pass)
        if found is not None:
            return found
    weight = ih.round_weight(weights.ih, (1,), this_pass)
    gates = functional.linear(ih.round_input(x, this_pass), weight, ih.round_bias(weights.b_ih, this_pass))
    return ih.finish(gates, math.prod(gates.shape) * weight.shape[1], this_pass, blocks=steps)


def _run(
    name: str,
    sites: tuple[Site, ...],
    weights: _Weights,
    x: torch.Tensor,
    start: Tensors,
    lengths: list[int],
    this_pass: Pass,
    *,
    reverse: bool,
) -> tuple[torch.Tensor, Tensors]:
    """One direction of one layer.

    Args:
        name: Of the kernel.
        sites: Of its products.
        weights: Of this direction and layer.
        x: [rows, input], the rows of time step t being `lengths[t]` many, one a sequence that is still running.
        start: First state of all sequences.
        lengths: Sequences running at each step, never more than at the step before.
        this_pass: Kind of pass.
        reverse: Whether to start at the end.

    Returns:
        Outputs [rows, state], and the last state of all sequences.
    """
    even = len(set(lengths)) == 1
    gates = _input_product(sites[0], weights, x, this_pass, len(lengths) if even else 1)
    if name == "lstm" and even and weights.hr is None and sites[1].state.execution != "simulated":
        by_step = gates.view(len(lengths), lengths[0], -1)
        found = native_recurrence(sites[1], by_step, weights.hh, weights.b_hh, start, this_pass, reverse=reverse)
        if found is not None:
            return found[0].flatten(0, 1), found[1]
    step = _prepare(name, sites, weights, this_pass)
    parts = gates.split(lengths)
    outputs: list[torch.Tensor] = [gates] * len(lengths)
    ended: list[Tensors] = []
    running = lengths[-1] if reverse else lengths[0]
    state = tuple(h[:running] for h in start)
    for t in reversed(range(len(lengths))) if reverse else range(len(lengths)):
        now = lengths[t]
        if now < running:
            ended.append(tuple(h[now:] for h in state))
            state = tuple(h[:now] for h in state)
        elif now > running:
            state = tuple(torch.cat((h, first[running:now])) for h, first in zip(state, start, strict=True))
        running = now
        state = _STEPS[name](step, parts[t], state)
        outputs[t] = state[0]
    if ended:
        state = tuple(torch.cat(pieces) for pieces in zip(state, *reversed(ended), strict=True))
    return torch.cat(outputs), state


def _recurrent_product(step: _Step, h: torch.Tensor) -> torch.Tensor:
    """The product with the state."""
    site, weights = step.hh_site, step.weights
    y = functional.linear(site.round_input(h, step.this_pass), weights.hh, weights.b_hh)
    return site.finish(y, math.prod(y.shape) * h.shape[-1], step.this_pass)


def _lstm(step: _Step, gates: torch.Tensor, state: Tensors) -> Tensors:
    h, c = state
    i, f, g, o = (gates + _recurrent_product(step, h)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    if step.hr_site is not None and step.weights.hr is not None:
        y = functional.linear(step.hr_site.round_input(h, step.this_pass), step.weights.hr)
        h = step.hr_site.finish(y, math.prod(y.shape) * h.shape[-1], step.this_pass)
    return h, c


def _gru(step: _Step, gates: torch.Tensor, state: Tensors) -> Tensors:
    (h,) = state
    r, z, n = gates.chunk(3, -1)
    r_state, z_state, n_state = _recurrent_product(step, h).chunk(3, -1)
    z = torch.sigmoid(z + z_state)
    n = torch.tanh(n + torch.sigmoid(r + r_state) * n_state)
    return (n + z * (h - n),)


def _rnn_tanh(step: _Step, gates: torch.Tensor, state: Tensors) -> Tensors:
    return (torch.tanh(gates + _recurrent_product(step, state[0])),)


def _rnn_relu(step: _Step, gates: torch.Tensor, state: Tensors) -> Tensors:
    return (torch.relu(gates + _recurrent_product(step, state[0])),)


_STEPS: dict[str, Callable[[_Step, torch.Tensor, Tensors], Tensors]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn_tanh,
    "rnn_relu": _rnn_relu,
}
