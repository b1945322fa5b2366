"""Noise on purpose: the indeterminacy of other hardware, on any machine, as a level of a factor.

A study that finds no effect of rounding noise of a known size says what "larger than rounding can explain" means; one
that finds a benefit would say that indeterminate arithmetic helps. All kinds but `race` are functions of the seed and
the step: a run that was killed goes on with the same noise.

Not covered: several processes; each would need a seed of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from trivet.audit.noise_config import NoiseConfig
from trivet.core.seeding import derive

PARTS = 3
"""Summands that a racing gradient is cut into; their sum depends on their order."""


class Noise:
    """A `Stepper` that disturbs the training of a module.

    Args:
        module: What is trained.
        config: How it is disturbed.
        seed: Of the noise.

    Examples:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> noise = Noise(layer, NoiseConfig(kind="rounding", bits=4), seed=0)
        >>> layer(torch.ones(1, 2)).sum().backward()
        >>> 0 < (layer.weight.grad - 1).abs().max() < 2**-4
        tensor(True)
    """

    def __init__(self, module: nn.Module, config: NoiseConfig, seed: int) -> None:
        self.step_number = 0
        self._module, self._config, self._seed = module, config, seed
        self._places: Tensor | None = None
        self._trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if config.kind in ("rounding", "race") and config.target == "gradients":
            for number, parameter in enumerate(self._trained):
                parameter.register_post_accumulate_grad_hook(self._hook(number))
        if config.kind == "order":
            module.register_forward_pre_hook(self._shuffle, with_kwargs=True)
            module.register_forward_hook(self._restore)
        if config.kind == "ulp" and config.start == 0:
            self._nudge()

    def step(self) -> None:
        """After the update of a step."""
        config = self._config
        if config.kind == "rounding" and config.target == "weights" and config.disturbs(self.step_number):
            with torch.no_grad():
                for number, parameter in enumerate(self._trained):
                    parameter.copy_(self._rounded(parameter, number))
        self.step_number += 1
        if config.kind == "ulp" and self.step_number == config.start:
            self._nudge()

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs."""
        return {"step": self.step_number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.step_number = state["step"]

    def _hook(self, number: int) -> Any:
        def disturb(parameter: Tensor) -> None:
            if parameter.grad is None or not self._config.disturbs(self.step_number):
                return
            with torch.no_grad():
                if self._config.kind == "race":
                    parameter.grad.copy_(raced(parameter.grad))
                else:
                    parameter.grad.copy_(self._rounded(parameter.grad, number))

        return disturb

    def _rounded(self, values: Tensor, number: int) -> Tensor:
        generator = torch.Generator(values.device)
        generator.manual_seed(derive(self._seed, "noise", str(self.step_number), str(number)))
        noise = torch.rand(values.shape, generator=generator, device=values.device, dtype=values.dtype)
        return values * (1 + (2 * noise - 1) * 2.0**-self._config.bits)

    def _shuffle(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._places = None
        if not module.training or not self._config.disturbs(self.step_number):
            return None
        leaves = tree_leaves((arguments, named))
        sizes = {leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()}
        if len(sizes) != 1:
            return None
        generator = torch.Generator().manual_seed(derive(self._seed, "order", str(self.step_number)))
        self._places = torch.randperm(sizes.pop(), generator=generator)
        return _in_order(arguments, self._places), _in_order(named, self._places)

    def _restore(self, module: nn.Module, arguments: Any, output: Any) -> Any:
        return output if self._places is None else _in_order(output, torch.argsort(self._places))

    @torch.no_grad()
    def _nudge(self) -> None:
        """Move the largest number of the largest parameter: one that surely counts."""
        largest = max(self._trained, key=Tensor.numel)
        place = int(largest.abs().argmax())
        where = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), largest.shape))
        value = largest[where]
        largest[where] = torch.nextafter(value, torch.full_like(value, torch.inf))


def raced(values: Tensor) -> Tensor:
    """The same numbers as sums of parts that several threads add up at once, each in the order in which it comes.

    Equal bits every time with one thread; with more, sums of more than 32,768 terms race.
    """
    flat = values.flatten()
    weights = [1.0 / 3.0, 0.21, 1.0 - 1.0 / 3.0 - 0.21]
    parts = torch.cat([flat * weight for weight in weights[:PARTS]])
    index = torch.arange(flat.numel(), device=flat.device).repeat(PARTS)
    return torch.zeros_like(flat).index_put_((index,), parts, accumulate=True).view_as(values)


def _in_order(value: Any, places: Tensor) -> Any:
    """The same structure with the first dimension of every tensor in another order."""

    def ordered(tensor: Tensor) -> Tensor:
        return tensor.index_select(0, places.to(tensor.device)) if tensor.dim() else tensor

    return tree_map_only(Tensor, ordered, value)
