"""Running statistics of batch norms, measured again for the parameters a model has now.

A GHN predicts parameters, not running means and variances, and those of a fresh module (0 and 1) do not fit predicted
weights: evaluated with them, a good prediction looks like chance. `recalibrate_bn` passes a few batches through the
model and sets each running statistic to its plain average over these batches.

Formula: with batch means m_i and unbiased variances v_i of n batches, running mean = Σ m_i / n and running
variance = Σ v_i / n, which is what torch keeps with `momentum=None` (torch.nn.BatchNorm2d).

Not covered: statistics pooled over batches of unequal size (every batch counts the same), several processes (each
would measure its own batches; synchronise before, or calibrate on one).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

if TYPE_CHECKING:
    from collections.abc import Generator

Batch = Tensor | Sequence[Any] | Mapping[str, Any]


def recalibrate_bn(model: nn.Module, batches: Iterable[Batch], *, max_batches: int = 0) -> int:
    """Measure the running statistics of every batch norm of `model` anew, in place.

    Parameters, training flags, `momentum` and gradients are left as they are; only `running_mean`, `running_var` and
    `num_batches_tracked` of norms that track statistics change. Other layers run as they would in training without
    randomness: dropout is off. No gradient is kept.

    Args:
        model: Any module.
        batches: Such as a data loader: each batch a tensor, a tuple or list whose first element is the input (labels
            after it are ignored, as `torch.optim.swa_utils.update_bn` does), or a mapping of keyword arguments.
        max_batches: Stop after so many; 0 uses all.

    Returns:
        Number of batches used; 0, without touching anything, if the model has no batch norm that tracks statistics.

    Raises:
        ValueError: There was no batch, or the statistics came out not finite; the model is as it was.
        TypeError: A batch is of another kind.

    Examples:
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
        >>> recalibrate_bn(model, [torch.randn(8, 1, 5, 5), torch.randn(8, 1, 5, 5)])
        2
    """
    if max_batches < 0:
        raise ValueError(f"`max_batches={max_batches}` must be ≥ 0; 0 uses all")
    norms = [module for module in model.modules() if isinstance(module, _NormBase) and module.running_mean is not None]
    if not norms:
        return 0
    used = 0
    with ExitStack() as stack, torch.no_grad():
        keep = stack.enter_context(_restored_on_error(norms))
        stack.enter_context(_measuring(model, norms))
        for batch in batches:
            _forward(model, batch)
            used += 1
            if used == max_batches:
                break
        if used == 0:
            raise ValueError("`batches` is empty; give at least one batch of inputs to measure batch norms with")
        bad = [name for name, module in model.named_modules() if module in keep and not _is_finite(module)]
        if bad:
            raise ValueError(
                f"the statistics of {bad[0]!r} ({len(bad)} of {len(norms)} batch norms) are not finite on these "
                "batches; look for infinite inputs or exploding predicted parameters; nothing was changed"
            )
    return used


def _forward(model: nn.Module, batch: Batch) -> None:
    if isinstance(batch, Tensor):
        model(batch)
    elif isinstance(batch, Mapping):
        model(**batch)
    elif isinstance(batch, Sequence) and batch and not isinstance(batch, str):
        model(batch[0])
    else:
        raise TypeError(
            f"a batch is {'an empty ' if not batch else 'a '}{type(batch).__name__}; give a tensor, "
            "`(inputs, labels)`, or a mapping of keyword arguments"
        )


def _is_finite(module: nn.Module) -> bool:
    statistics = (module.running_mean, module.running_var)
    return all(bool(torch.isfinite(value).all()) for value in statistics if isinstance(value, Tensor))


@contextmanager
def _measuring(model: nn.Module, norms: list[_NormBase]) -> Generator[None]:
    """Norms in training mode with plain averages, everything else in evaluation mode; put back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    momenta = [norm.momentum for norm in norms]
    try:
        for module, _ in flags:
            module.training = False
        for norm in norms:
            norm.training, norm.momentum = True, None
            norm.reset_running_stats()
        yield
    finally:
        for module, flag in flags:
            module.training = flag
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


@contextmanager
def _restored_on_error(norms: list[_NormBase]) -> Generator[set[nn.Module]]:
    """Put every statistic back if the block raises."""
    names = ("running_mean", "running_var", "num_batches_tracked")
    kept = [(getattr(norm, name), getattr(norm, name).clone()) for norm in norms for name in names]
    try:
        yield set(norms)
    except BaseException:
        for live, value in kept:
            live.copy_(value)
        raise
