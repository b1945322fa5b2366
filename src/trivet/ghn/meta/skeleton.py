"""A network without parameters of its own, for parameters that someone else predicts.

Building a network takes longer than predicting its parameters, and thousands of predictions are made for the same
network, so it is built once: parameters on the meta device, batch normalisation that takes the statistics of the batch
at hand and keeps none. `torch.func.functional_call` runs it with any parameters, differentiably.

Not covered: networks whose buffers hold state that a forward pass changes, other than those of batch normalisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


class Skeleton:
    """The shell of a network.

    Args:
        module: A network; it is taken over and changed: give one that nothing else uses.
        device: Where it will run; buffers go there.
        dropout: Keep dropout layers active; without them a forward pass is a pure function.
        unused: Parameters that the network does not compute with, and that need not be given.

    Examples:
        >>> skeleton = Skeleton(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
        >>> skeleton.shapes["0.weight"], skeleton.has_batch_norm
        ((2, 1, 3, 3), True)
        >>> weights = {name: torch.ones(shape) for name, shape in skeleton.shapes.items()}
        >>> skeleton(weights, torch.rand(4, 1, 5, 5)).shape
        torch.Size([4, 2, 3, 3])
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        device: torch.device | str = "cpu",
        dropout: bool = False,
        unused: Iterable[str] = (),
    ) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {
            name: tuple(parameter.shape) for name, parameter in module.named_parameters()
        }
        """Shape of every parameter, tied ones once."""
        self._needed = self.shapes.keys() - set(unused)
        self.has_batch_norm = any(isinstance(part, _BatchNorm) for part in module.modules())
        """Whether it has a batch normalisation."""
        self.channels_last = _runs_channels_last(module)
        """Whether images may be stored with their channels innermost; see `trivet.training.layout`."""
        module.requires_grad_(False)
        module.train()
        _forget_statistics(module)
        if not dropout:
            _without_dropout(module)
        _to_meta(module, torch.device(device))
        self.has_dropout = any(part.p > 0 for part in _dropouts(module))
        """Whether a forward pass draws random numbers."""
        self.module = module

    def __call__(self, parameters: Mapping[str, Tensor], images: Tensor) -> Any:
        """What the network with these parameters makes of the images; parameters it does not use may be left out.

        Raises:
            ValueError: A parameter is missing.
        """
        lacking = self._needed - parameters.keys()
        if lacking:  # torch would compute with memory that nobody wrote
            raise ValueError(f"parameters are missing: {', '.join(sorted(lacking)[:10])}")
        return torch.func.functional_call(self.module, dict(parameters), (images,))


def _forget_statistics(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None


def _without_dropout(module: nn.Module) -> None:
    for part in _dropouts(module):
        part.p = 0.0


def _dropouts(module: nn.Module) -> list[_DropoutNd]:
    return [part for part in module.modules() if isinstance(part, _DropoutNd)]


def _to_meta(module: nn.Module, device: torch.device) -> None:
    """Parameters to the meta device, tied ones to the same tensor; buffers to the device."""
    moved: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                if parameter not in moved:
                    moved[parameter] = nn.Parameter(parameter.to("meta"), requires_grad=False)
                part._parameters[name] = moved[parameter]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = buffer.to(device)


def _runs_channels_last(module: nn.Module) -> bool:
    """False where torch's CPU kernel for 1 × 1 convolutions over 2 to 7 channels would corrupt memory."""
    convolutions = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    return bool(convolutions) and not any(
        set(part.kernel_size) == {1} and 1 < part.in_channels < 8 for part in convolutions
    )
