"""Between a model in parts and a model in one piece, so that a checkpoint is the same file for 1 and for N processes.

A checkpoint holds whole tensors. Saving gathers the parts (every process must call it); loading cuts each whole tensor
as the parameter it belongs to is cut. Models that are not sharded pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def in_one_piece(value: Any) -> Any:
    """Plain values and containers of them with every part replaced by the whole tensor."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, Mapping):
        return {key: in_one_piece(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(in_one_piece(item) for item in value)
    return value


def load_model(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Take over a whole state_dict.

    Raises:
        RuntimeError: It does not fit the model.
    """
    own = model.state_dict()
    model.load_state_dict({name: _cut(tensor, own.get(name)) for name, tensor in state.items()})


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Take over the whole state of an optimiser over the same parameters.

    Raises:
        ValueError: It belongs to other parameters.
        RuntimeError: A tensor does not fit its parameter.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    cut = {
        number: {
            name: _cut(value, parameters[number]) if _fits(value, parameters[number]) else value
            for name, value in inner.items()
        }
        for number, inner in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": cut})


def _fits(value: Any, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape


def _cut(tensor: Tensor, like: Tensor | None) -> Tensor:
    if not isinstance(like, DTensor):
        return tensor
    # Every process has read the whole tensor: each takes its part of its own, in whatever order they come.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
