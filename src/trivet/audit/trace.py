"""Checksums of a training's bits: of all weights after each step, and of every tensor inside one step.

A weight checksum reads each parameter and buffer once, which is little beside a step that multiplies with them many
times (`benchmarks/audit_cost.py`). Inside one step, hooks see the input of the model, the output of each module in the
order of the computation, the gradients of these outputs in the order of the backward pass, the gradient of each
parameter, and the parameters after the update.

Not covered: operations between modules; the next module's output shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trivet.audit.checksum import BLOCK, Unreadable, checksum


def weight_checksum(module: nn.Module) -> str:
    """Checksum of all parameters and buffers, 16 hex digits; the same for every layout of their memory.

    Examples:
        >>> layer = nn.Linear(2, 2)
        >>> before = weight_checksum(layer)
        >>> with torch.no_grad(): _ = layer.weight.mul_(1 + 1e-7)
        >>> weight_checksum(layer) == before
        False
    """
    return tensors_checksum((*module.parameters(), *module.buffers()))


def tensors_checksum(tensors: Iterable[Tensor]) -> str:
    """Checksum of some tensors in their order, 16 hex digits; see `checksum` for what it can miss.

    Small tensors of one type are read together, as reading one costs as much as some thousand words.

    Examples:
        >>> tensors_checksum([torch.ones(2), torch.zeros(2)]) == tensors_checksum([torch.zeros(2), torch.ones(2)])
        False
    """
    total = 0
    for part in _joined(tensors):
        total = (total * 0x9E3779B97F4A7C15 + checksum(part)) & (1 << 64) - 1
    return f"{total:016x}"


def _joined(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Large tensors one by one, then the small ones of each type and device as one; all in logical order."""
    small: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        plain = tensor.detach()
        if plain.layout == torch.strided:
            plain = plain.contiguous()  # itself, unless it is stored in another order
        if type(plain) is Tensor and plain.layout == torch.strided and plain.numel() < BLOCK and not plain.is_quantized:
            small.setdefault((plain.dtype, plain.device), []).append(plain.view(-1))
        else:
            yield plain
    yield from (torch.cat(parts) for parts in small.values())


def flat_weights(module: nn.Module) -> Tensor:
    """All floating-point parameters as one float32 vector on the CPU."""
    parts = [parameter.detach().float().flatten().cpu() for parameter in module.parameters()]
    return torch.cat(parts) if parts else torch.zeros(0)


class WeightTrace:
    """A `Stepper` that writes down the checksum of the weights after each step.

    Args:
        module: Whose weights.
        keep: Steps after which the weights themselves are kept, counted from 1.

    Examples:
        >>> layer = nn.Linear(2, 2)
        >>> trace = WeightTrace(layer, keep=[2])
        >>> trace.step(); trace.step()
        >>> trace.checksums[0] == trace.checksums[1], sorted(trace.weights)
        (True, [2])
    """

    def __init__(self, module: nn.Module, keep: Sequence[int] = ()) -> None:
        self._module = module
        self._keep = frozenset(keep)
        self.start = weight_checksum(module)
        """Before the first step."""
        self.checksums: list[str] = []
        """After each step."""
        self.weights: dict[int, Tensor] = {}
        """Step → weights, of the steps that are kept."""

    def step(self) -> None:
        """Read the weights."""
        self.checksums.append(weight_checksum(self._module))
        if len(self.checksums) in self._keep:
            self.weights[len(self.checksums)] = flat_weights(self._module).clone()

    def state_dict(self) -> dict[str, Any]:
        """Nothing: a trace is not resumed."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""


class StepLog:
    """Checksum of every tensor of one step; `begin` before its forward pass, `end` after its update.

    Args:
        module: The model.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> log = StepLog(model)
        >>> log.begin()
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> log.end()
        >>> [(row["kind"], row["name"]) for row in log.rows][:4]
        [('input', 'argument 0'), ('forward', '0'), ('forward', '1'), ('forward', 'the model')]
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._handles: list[Any] = []
        self.rows: list[dict[str, Any]] = []
        """What was seen, in order: `kind`, `name`, `shape`, `checksum`."""

    def begin(self) -> None:
        """Listen."""
        self._handles.append(self._module.register_forward_pre_hook(self._on_input, with_kwargs=True))
        for path, part in self._module.named_modules():
            hook = self._forward_hook(path or "the model")
            self._handles.append(part.register_forward_hook(hook))

    def end(self) -> None:
        """Read gradients and parameters, and stop listening."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for name, parameter in self._module.named_parameters():
            if parameter.grad is not None:
                self._add("gradient", name, parameter.grad)
        for name, parameter in self._module.named_parameters():
            self._add("weight", name, parameter.detach())

    def _on_input(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        for name, value in [*((f"argument {i}", v) for i, v in enumerate(arguments)), *named.items()]:
            for tensor in _tensors(value):
                self._add("input", name, tensor.detach())

    def _forward_hook(self, path: str) -> Any:
        def backward(gradient: Tensor) -> None:
            self._add("backward", path, gradient)

        def forward(module: nn.Module, arguments: Any, output: Any) -> None:
            for tensor in _tensors(output):
                self._add("forward", path, tensor.detach())
                if tensor.requires_grad:
                    tensor.register_hook(backward)

        return forward

    def _add(self, kind: str, name: str, tensor: Tensor) -> None:
        try:
            value = f"{checksum(tensor.detach()):016x}"
        except Unreadable as reason:
            value = f"unread: {reason}"
        self.rows.append({"kind": kind, "name": name, "shape": list(tensor.shape), "checksum": value})


def _tensors(value: Any) -> list[Tensor]:
    """Tensors in nested containers, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
