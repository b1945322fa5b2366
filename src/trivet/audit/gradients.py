r"""The gradient of one window against the same window in float64 on copied inputs.

For each parameter, and for all of them as one vector, the error is $\lVert g - g_{64} \rVert_2 / \lVert g_{64}
\rVert_2$. Rounding gives 1e-7 to 1e-5, a tensor that changed between forward and backward 1e-2 and more, from the
first window on; the default threshold of 1e-4 lies between. The window is computed a third time in its own precision
on copies: where the given one differs from that by more than the threshold, the tensors are at fault and not the
rounding, which alone is a finding only at a hundred times the threshold. In float16 and bfloat16 this comparison
decides by itself, because rounding is as large as a fault.

A parameter counts when its own error is above the threshold and not itself rounding: at least a tenth of the threshold
times the norm of the whole gradient. (The gradient of a bias in front of a batch norm is zero but for rounding.)

Not covered: parameters that share memory with something else (all three runs use copies of the model), models that keep
tensors with a history between windows, operations that exist in one precision only.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from trivet.audit.finding import Finding
from trivet.audit.reference import Copied
from trivet.core.errors import TrivetError
from trivet.core.seeding import seed_everything
from trivet.training.checkpoint import rng_state, set_rng_state

THRESHOLD = 1e-4
"""Largest relative error that counts as rounding of float32."""
LENIENCE = 100
"""By how much rounding may exceed the threshold where copied inputs give the same gradient: deep networks do."""

B = TypeVar("B")
Gradients = dict[str, Tensor]


class WindowError(TrivetError):
    """The window cannot be computed as the audit needs it; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterError:
    """How far the gradient of one parameter is from float64."""

    name: str
    """Its name in the model."""
    relative: float
    """Norm of the difference over the norm of the parameter's gradient in float64; infinite when that is 0."""
    share: float
    """Norm of the difference over the norm of the whole gradient in float64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientAudit:
    """What `gradient` found."""

    relative: float
    """Relative L2 error of all parameters as one vector."""
    copied: float
    """The same for the window on copies, in its own precision: what rounding alone does."""
    changed: float
    """The given window against the one on copies, both in their own precision: 0 where nothing shares memory."""
    parameters: tuple[ParameterError, ...]
    """Every parameter against float64, the largest error of its own first."""
    threshold: float
    """Errors above it are findings, unless they are rounding (see the module)."""
    loss: float
    """Of the window as given."""
    loss64: float
    """Of the window in float64."""
    notes: tuple[str, ...]
    """What limits the audit, such as low precision."""
    findings: tuple[Finding, ...]
    """Empty when the gradient is right to rounding."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return asdict(self)

    def __str__(self) -> str:
        head = (
            f"gradient: relative L2 {self.relative:.1e} against float64 over {len(self.parameters)} parameters "
            f"(rounding alone {self.copied:.1e}, threshold {self.threshold:.0e})"
        )
        return "\n".join([head, *(f"  note: {note}" for note in self.notes), *map(str, self.findings)])


def gradient(
    model: nn.Module,
    loss_fn: Callable[[nn.Module, B], Tensor],
    batch: B | Callable[[], B],
    *,
    threshold: float = THRESHOLD,
    seed: int = 0,
) -> GradientAudit:
    """Compare the gradient of one window with float64 on copied inputs.

    Args:
        model: Computed on copies of it; it is not changed, and neither are the global random states.
        loss_fn: `loss_fn(model, batch)` → scalar: the window's forward pass, with whatever fills its buffers.
        batch: What `loss_fn` is given; or a function without arguments that gives it anew for each run, such as a
            generator function that yields frames in a reused buffer.
        threshold: Largest relative error that counts as rounding.
        seed: Of the random numbers of every run: dropout masks agree.

    Raises:
        WindowError: The model cannot be copied or computed in float64, or the loss is no scalar that depends on it.

    Examples:
        >>> import numpy as np
        >>> from trivet import audit
        >>> def window(model, frames):
        ...     return sum(model(torch.from_numpy(frame)).square().sum() for frame in frames)
        >>> def fresh():
        ...     yield from np.eye(4, 3, dtype=np.float32)
        >>> def reused():
        ...     buffer = np.empty(3, np.float32)
        ...     for frame in fresh():
        ...         buffer[:] = frame
        ...         yield buffer
        >>> model = nn.Linear(3, 2)
        >>> audit.gradient(model, window, fresh).relative < 1e-6
        True
        >>> found = audit.gradient(model, window, reused)
        >>> found.relative > 0.1, found.findings[0].where.startswith("largest at weight")
        (True, True)
    """
    if not (math.isfinite(threshold) and threshold > 0):
        raise ValueError(f"`threshold={threshold}` must be > 0; 1e-4 lies between rounding and a fault")
    state = rng_state()
    originals = None if callable(batch) else [_copied(batch, "the batch") for _ in range(2)]

    def run(number: int, mode: Any, narrow: bool) -> tuple[float, Gradients]:
        given: Any = batch if originals is None or number == 0 else originals[number - 1]
        seed_everything(seed)
        mine = _copied(model, "the model")
        if not narrow:
            mine = mine.double()
        with mode:
            return _window(mine, loss_fn, given, originals is None, narrow)

    watch = _Watch()
    try:
        loss, mine = run(0, watch, True)
        _, copied = run(1, Copied(double=False), True)
        loss64, reference = run(2, Copied(double=True), False)
    finally:
        set_rng_state(state)
    relative, parameters = _errors(mine, reference)
    rounding, _ = _errors(copied, reference)
    changed, by_copies = _errors(mine, copied)
    judged = (changed, by_copies) if watch.low else (relative, parameters)
    same = changed <= threshold and not watch.low
    limit = threshold * LENIENCE if same else threshold
    size = f"relative L2 {relative:.2g} against float64, {changed:.2g} against copied inputs; threshold {threshold:.0e}"
    return GradientAudit(
        relative=relative,
        copied=rounding,
        changed=changed,
        parameters=parameters,
        threshold=threshold,
        loss=loss,
        loss64=loss64,
        notes=_notes(model, watch, relative if same and threshold < relative <= limit else 0.0),
        findings=_findings(*judged, changed=changed, limit=limit, size=size),
    )


class _Watch(TorchFunctionMode):
    """Notices float16 and bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.low: str = ""

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dtype in (torch.float16, torch.bfloat16):
            self.low = str(out.dtype).removeprefix("torch.")
        return out


T = TypeVar("T")


def _copied(value: T, what: str) -> T:
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise WindowError(
            f"{what} cannot be copied ({error}); detach what it keeps from earlier windows, or audit it before training"
        ) from error


def _window(model: nn.Module, loss_fn: Any, batch: Any, anew: bool, narrow: bool) -> tuple[float, Gradients]:
    """Loss and gradients of one run."""
    model.zero_grad(set_to_none=True)
    try:
        with nullcontext() if torch.is_grad_enabled() else torch.enable_grad():
            loss = loss_fn(model, batch() if anew else batch)
        if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad:
            loss.backward()
    except (RuntimeError, TypeError, ValueError) as error:
        which = "as it is given" if narrow else "in float64"
        fix = "" if narrow else "; the audit needs operations that exist in float64"
        raise WindowError(f"the window cannot be computed {which}: {type(error).__name__}: {error}{fix}") from error
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise WindowError(f"`loss_fn` returned {_kind(loss)}; allowed: a tensor with one element, the loss")
    found = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    if not found:
        raise WindowError("no parameter has a gradient; `loss_fn` must compute with the model that it is given")
    return loss.item(), found


def _kind(value: object) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _norm(tensors: Iterable[Tensor]) -> float:
    return math.sqrt(sum(tensor.square().sum().item() for tensor in tensors))


def _errors(mine: Gradients, reference: Gradients) -> tuple[float, tuple[ParameterError, ...]]:
    whole = _norm(reference.values())
    zero = torch.zeros((), dtype=torch.float64)
    rows: list[ParameterError] = []
    for name in {**reference, **mine}:
        expected = reference.get(name, zero).to("cpu")
        wrong = _norm([mine.get(name, zero).to("cpu") - expected])
        rows.append(ParameterError(name=name, relative=_over(wrong, _norm([expected])), share=_over(wrong, whole)))
    total = math.sqrt(sum(row.share**2 for row in rows)) if whole else max(row.share for row in rows)
    return total, tuple(sorted(rows, key=lambda row: _last_if_nan(row.relative), reverse=True))


def _over(part: float, whole: float) -> float:
    return part / whole if whole else (math.inf if part else 0.0)


def _last_if_nan(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _findings(
    relative: float, parameters: tuple[ParameterError, ...], *, changed: float, limit: float, size: str
) -> tuple[Finding, ...]:
    wrong = [row for row in parameters if not (row.relative <= limit or row.share <= limit / 10)]
    if relative <= limit and not wrong:
        return ()
    row = wrong[0] if wrong else max(parameters, key=lambda row: row.share)
    where = f"largest at {row.name}, relative L2 {row.relative:.2g}; {len(wrong)} of {len(parameters)} parameters"
    if not math.isfinite(relative):
        what = "the gradient is not finite"
        advice = "find the first value that is not finite with torch.autograd.set_detect_anomaly(True)"
    elif changed > relative / 10:
        what = "the gradient is not that of the data: tensors of the window change before backward reads them"
        advice = (
            "run the window under audit.alias(), which names the tensor; copy each batch before the next is written"
        )
    else:
        what = "the gradient in the model's precision is far from float64, also on copied inputs"
        advice = (
            "run the window under audit.alias(): tensors may change through `.data`; if it finds nothing, the model "
            "is ill-conditioned here: compute the parts that lose digits in float64"
        )
    return (Finding(check="gradient", what=what, where=where, size=size, advice=advice),)


def _drops(module: nn.Module) -> bool:
    rate = getattr(module, "dropout", 0.0)
    return isinstance(rate, float) and rate > 0


def _notes(model: nn.Module, watch: _Watch, rounding: float) -> tuple[str, ...]:
    notes: list[str] = []
    if rounding:
        notes.append(f"rounding is large here, {rounding:.1e}, but copied inputs give the same gradient")
    if watch.low:
        notes.append(
            f"the window computes in {watch.low}, whose rounding is as large as a fault: it is judged against the same "
            "window on copied inputs, not against float64"
        )
    inside = {type(part).__name__ for part in model.modules() if part.training and _drops(part)}
    if inside and any(parameter.device.type != "cpu" for parameter in model.parameters()):
        drawing = ", ".join(sorted(inside))
        notes.append(f"{drawing}: dropout masks are drawn inside one operation, on a GPU others in float64")
    return tuple(notes)
