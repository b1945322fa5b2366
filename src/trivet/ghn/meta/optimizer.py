"""The hypernetwork's optimiser: AdamW, or Muon for its matrices, and the learning rate over a run.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) replaces the momentum M of a matrix by the nearest
orthogonal matrix, U Vᵀ of M = U S Vᵀ, so that rare directions move as far as common ones. A Newton-Schulz iteration,
X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, comes close enough in five rounds. The step is scaled by √max(1, rows / columns).

Not covered: several learning rates within AdamW.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from trivet.ghn.meta.config import MetaTrainingConfig

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalized(matrix: Tensor, rounds: int = 5) -> Tensor:
    """A matrix with the singular vectors of the given one and singular values near 1 (0.7 to 1.2).

    Examples:
        >>> orthogonalized(torch.tensor([[3.0, 0.0], [0.0, 0.1]])).diagonal().min() > 0.5
        tensor(True)
    """
    a, b, c = _COEFFICIENTS
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (torch.linalg.matrix_norm(wide) + 1e-7)
    for _ in range(rounds):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrix else x.T


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum, for parameters of two or more dimensions; later ones count as columns.

    Args:
        parameters: What is trained.
        lr: Learning rate, about the relative size of a step.
        momentum: Decay of the momentum.
        weight_decay: Decoupled.

    Examples:
        >>> w = torch.nn.Parameter(torch.zeros(2, 2))
        >>> optimizer = Muon([w], lr=0.1)
        >>> (w.sum() + w[0, 1]).backward(); optimizer.step()
        >>> bool(w.abs().max() > 0)
        True
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do one step."""
        loss = closure() if closure else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(momentum, group["momentum"]).flatten(1)
        scale = math.sqrt(max(1.0, direction.shape[0] / direction.shape[1]))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(orthogonalized(direction).view_as(parameter), alpha=-group["lr"] * scale)


class MetaOptimizer:
    """One or two optimisers, with a common schedule.

    Args:
        module: The hypernetwork.
        config: Names and rates.

    Examples:
        >>> optimizer = MetaOptimizer(nn.Linear(2, 2), MetaTrainingConfig(steps=10, warmup_steps=0, optimizer="muon"))
        >>> optimizer.set_progress(0, 0.0)
        0.002
    """

    def __init__(self, module: nn.Module, config: MetaTrainingConfig) -> None:
        tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        matrices: list[nn.Parameter] = []
        if config.optimizer == "muon":
            matrices = [parameter for parameter in trained if parameter.ndim > 1 and id(parameter) not in tables]
        of_muon = {id(parameter) for parameter in matrices}
        rest = [parameter for parameter in trained if id(parameter) not in of_muon]
        self._config = config
        self._optimizers: list[torch.optim.Optimizer] = []
        if rest:
            self._optimizers.append(
                torch.optim.AdamW(rest, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay)
            )
        if matrices:
            self._optimizers.append(Muon(matrices, lr=config.muon_lr, weight_decay=config.weight_decay))
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["peak"] = group["lr"]

    def set_progress(self, step: int, done: float) -> float:
        """Set the rates of the step; returns AdamW's.

        With w warm-up steps: peak · min(1, (step + 1) / w) · (1 + cos(π · done)) / 2.

        Args:
            step: Steps done.
            done: Share of the run that is done, in [0, 1].
        """
        warm = min(1.0, (step + 1) / self._config.warmup_steps) if self._config.warmup_steps else 1.0
        factor = warm * (1 + math.cos(math.pi * min(max(done, 0.0), 1.0))) / 2
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
        return self._config.lr * factor

    def step(self) -> None:
        """Do one step."""
        for optimizer in self._optimizers:
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs."""
        return {str(number): optimizer.state_dict() for number, optimizer in enumerate(self._optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        for number, optimizer in enumerate(self._optimizers):
            optimizer.load_state_dict(state[str(number)])
