"""A torch module whose forward and backward pass are computed by JAX.

Parameters, loss, optimizer, checkpoints and evaluation stay torch's; between the weights and their gradients everything
is JAX's, so that one and the same training can be done by two libraries.

Values are copied in both directions. JAX may keep a numpy array that it is given as it is, torch changes its parameters
in place, and a gradient that is computed later would then be that of other weights: the fault that `trivet.audit.alias`
looks for. Needs the extra `jax`. Not covered: devices other than the CPU, buffers such as running statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Function = Callable[[Mapping[str, Any], Sequence[Any]], tuple[Any, ...]]
"""Parameters by name and inputs → outputs, in JAX."""


class JaxForward:
    """Called like the module.

    Examples:
        >>> net = nn.Linear(3, 2)
        >>> again = JaxForward(net, lambda p, x: (x[0] @ p["weight"].T + p["bias"],), lambda x: [x], lambda y: y[0])
        >>> x = torch.ones(4, 3)
        >>> torch.allclose(again(x), net(x))
        True
        >>> again(x).sum().backward()
        >>> net.bias.grad
        tensor([4., 4.])
    """

    def __init__(
        self,
        module: nn.Module,
        function: Function,
        pack: Callable[..., list[Tensor]],
        unpack: Callable[[Sequence[Tensor]], Any],
    ) -> None:
        """Args: module: holds the parameters; function: computes it; pack, unpack: of its arguments and results."""
        import jax

        self.module, self.pack, self.unpack = module, pack, unpack
        self.names = [name for name, _ in module.named_parameters()]

        def forward(parameters: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
            return jax.vjp(function, parameters, inputs)

        def backward(pull: Any, cotangents: tuple[Any, ...]) -> Any:
            return pull(cotangents)

        self.forward: Any = jax.jit(forward)
        self.backward: Any = jax.jit(backward)

    def __call__(self, *arguments: Any) -> Any:
        """What the module would return."""
        inputs = self.pack(*arguments)
        outputs = _Call.apply(self, *(dict(self.module.named_parameters())[name] for name in self.names), *inputs)
        return self.unpack(outputs)


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, owner: JaxForward, *tensors: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        arrays = [_to_jax(tensor) for tensor in tensors]
        count = len(owner.names)
        parameters = dict(zip(owner.names, arrays[:count], strict=True))
        outputs, ctx.pull = owner.forward(parameters, arrays[count:])
        ctx.owner = owner
        return tuple(_to_torch(output) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        of_parameters, of_inputs = ctx.owner.backward(ctx.pull, tuple(_to_jax(gradient) for gradient in gradients))
        found = [*(of_parameters[name] for name in ctx.owner.names), *of_inputs]
        return None, *(_to_torch(gradient) for gradient in found)


def _to_jax(tensor: Tensor) -> Any:
    import jax.numpy as jnp

    return jnp.array(tensor.detach().numpy(), copy=True)


def _to_torch(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array))
