"""Rules for attention: both products, scores = q kᵀ and output = p v, at few bits.

`scaled_dot_product_attention` is one kernel, so it is taken apart here:

    scores = scale × q̂ k̂ᵀ + mask,   p = softmax(scores),   output = dropout(p)^ v̂

and the output gradients of both products are rounded. The softmax stays in full precision, in float32 where the inputs
are narrower. `multi_head_attention_forward`, the body of `nn.MultiheadAttention`, runs as it is, with its projections
and products watched one by one.

Taking the kernel apart costs memory: the scores are stored, [batch, heads, queries, keys]. At 32 bits, and where
nothing is quantized, the kernel runs as it is. Multiply-accumulates count whole score matrices, also under a causal
mask.

Not covered: flash-attention packages and flex attention, whose kernels cannot be taken apart; nested tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from trivet.precision.sites import Pass, Site

if TYPE_CHECKING:
    from trivet.precision.scope import ScopedForward


def scaled_dot_product_attention(
    scope: ScopedForward, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Attention with both products rounded."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    query, key, value = given["query"], given["key"], given["value"]
    scores_site, values_site = scope.site("qk", weighted=False), scope.site("pv", weighted=False)
    kind = scope.current_pass()
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    if _is_exact(scores_site, kind) and _is_exact(values_site, kind):
        y = func(*args, **kwargs)
        if kind.recorded:
            scores_site.count(pairs * query.shape[-1], y.device)
            values_site.count(pairs * value.shape[-1], y.device)
        return y
    if given.get("enable_gqa", False):
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    rows = (-1,) if scores_site.published else None
    query_rounded = scores_site.round_input(query, kind, 0, rows)
    key_rounded = scores_site.round_input(key, kind, 1, rows)
    scores = query_rounded @ key_rounded.transpose(-2, -1)
    scores = scores_site.finish(scores, pairs * query.shape[-1], kind, by_position=True)
    scale = given.get("scale")
    scores = scores * (1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = _masked(scores, given.get("attn_mask"), causal=given.get("is_causal", False))
    p = _softmax(scores).to(value.dtype)
    if given.get("dropout_p", 0.0) > 0.0:
        p = functional.dropout(p, given["dropout_p"])
    y = values_site.round_input(p, kind, 0, rows) @ values_site.round_input(value, kind, 1, rows)
    return values_site.finish(y, pairs * value.shape[-1], kind, by_position=True)


def multi_head_attention(
    scope: ScopedForward, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The body of multi-head attention, with its products watched."""
    scope.state.scope = scope
    with scope.watch():
        return _BODY(*args, **kwargs)


def _undispatched(func: Any) -> Any:
    """The function without the check that hands it to a torch function mode, which would call it for ever."""
    names = {**func.__globals__, "has_torch_function": _never}
    copy = FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _never(_: object) -> bool:
    return False


_BODY = _undispatched(functional.multi_head_attention_forward)


def _is_exact(site: Site, kind: Pass) -> bool:
    """Whether a pass rounds nothing at a site of activations."""
    if site.quantizer is None:
        return True
    dials = site.dials
    if kind.scheduled:
        return dials.activation.exact and (dials.gradient.exact or not kind.marked)
    return dials.activation_evaluation.exact


def _masked(scores: torch.Tensor, mask: torch.Tensor | None, *, causal: bool) -> torch.Tensor:
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    """Softmax whose rows that are masked throughout are zero, as the kernel has it."""
    p = torch.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return torch.where((scores == -math.inf).all(-1, keepdim=True), 0.0, p)
