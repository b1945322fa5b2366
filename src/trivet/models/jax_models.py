"""The small CNN and PredNet a second time, in JAX: the same computation by another library.

A difference between hardware that is in truth a fault of one library disappears when another library computes the same
thing from the same weights and batches; that is how the study of arXiv:2109.01451 came to be retracted. So these
functions share nothing with torch but the names and values of the parameters. Ties are resolved as torch does: the
gradient of a clamp passes at its limits, that of a ReLU is 0 at 0, and a maximum sends it to its first place.

Needs the extra `jax`. Not covered: other models, quantization.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from trivet.core.errors import MissingExtraError
from trivet.models.prednet import PredNet, PredNetOutput, PredNetState
from trivet.models.small_cnn import SmallCNN

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:  # pragma: no cover - the extra is a part of `dev`
    raise MissingExtraError("jax", "jax") from error

Array = Any
"""A JAX array."""
Parameters = Mapping[str, Array]
"""Name → value, as in `named_parameters`."""


@dataclass(frozen=True)
class JaxModel:
    """A model in JAX, and how torch's arguments and results become lists of tensors and back."""

    function: Callable[[Parameters, Sequence[Array]], tuple[Array, ...]]
    """Parameters and inputs → outputs; pure."""
    pack: Callable[..., list[Tensor]]
    """Arguments of the torch module's call → inputs."""
    unpack: Callable[[Sequence[Tensor]], Any]
    """Outputs → what the torch module returns."""


def jax_model(model: nn.Module) -> JaxModel:
    """The second implementation of a module.

    Raises:
        ValueError: There is none.

    Examples:
        >>> import numpy as np
        >>> net = SmallCNN(2, 1, (4, 4), width=1)
        >>> again = jax_model(net)
        >>> values = {name: value.detach().numpy() for name, value in net.named_parameters()}
        >>> again.function(values, [np.zeros((3, 1, 4, 4), np.float32)])[0].shape
        (3, 2)
    """
    if isinstance(model, SmallCNN):
        return JaxModel(lambda p, inputs: (_small_cnn(p, inputs[0]),), _listed, lambda outputs: outputs[0])
    if isinstance(model, PredNet):
        return _prednet_model(model)
    raise ValueError(
        f"a {type(model).__name__} has no second implementation in JAX; allowed: SmallCNN (`small_cnn`), PredNet"
    )


def _listed(x: Tensor) -> list[Tensor]:
    return [x]


def _small_cnn(p: Parameters, x: Array) -> Array:
    for name in ("conv1", "conv2"):
        x = _halved(jax.nn.relu(_conv(p, name, x)))
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ p["hidden.weight"].T + p["hidden.bias"])
    return x @ p["out.weight"].T + p["out.bias"]


def _prednet_model(net: PredNet) -> JaxModel:
    depth = len(net.channels)
    hard = bool(net.cells[0].hard)

    def pack(frames: Tensor, state: PredNetState | None = None) -> list[Tensor]:
        state = state or net.start(frames)
        return [frames, *state.representations, *state.cells, *state.errors]

    def unpack(outputs: Sequence[Tensor]) -> PredNetOutput:
        parts = [tuple(outputs[2 + part * depth : 2 + (part + 1) * depth]) for part in range(3)]
        return PredNetOutput(outputs[0], outputs[1], PredNetState(*parts))

    def function(p: Parameters, inputs: Sequence[Array]) -> tuple[Array, ...]:
        frames, *flat = inputs
        state = [list(flat[part * depth : (part + 1) * depth]) for part in range(3)]
        predictions: list[Array] = []
        errors: list[Array] = []
        for index in range(frames.shape[1]):
            prediction, state = _prednet_step(p, frames[:, index], state, hard=hard)
            predictions.append(prediction)
            errors.append(jnp.stack([error.mean((1, 2, 3)) for error in state[2]], 1))
        return jnp.stack(predictions, 1), jnp.stack(errors, 1), *state[0], *state[1], *state[2]

    return JaxModel(function, pack, unpack)


def _prednet_step(
    p: Parameters, frame: Array, state: list[list[Array]], *, hard: bool
) -> tuple[Array, list[list[Array]]]:
    """One frame: its prediction and the new representations, cells and errors (Lotter et al. 2017)."""
    old, cells, errors = state
    depth = len(old)
    gate = _hard_sigmoid if hard else jax.nn.sigmoid
    new: list[Array] = [None] * depth
    new_cells: list[Array] = [None] * depth
    for layer in reversed(range(depth)):
        seen = [old[layer], errors[layer]]
        if layer + 1 < depth:
            seen.append(new[layer + 1].repeat(2, axis=2).repeat(2, axis=3))
        i, f, o, fresh = jnp.split(_conv(p, f"cells.{layer}.conv", jnp.concatenate(seen, 1)), 4, axis=1)
        peephole = p.get(f"cells.{layer}.peephole")
        if peephole is not None:
            i, f, o = (part + cells[layer] * weight for part, weight in zip((i, f, o), peephole, strict=True))
        new_cells[layer] = gate(f) * cells[layer] + gate(i) * jnp.tanh(fresh)
        new[layer] = gate(o) * jnp.tanh(new_cells[layer])
    target, first = frame, None
    new_errors: list[Array] = []
    for layer in range(depth):
        prediction = jax.nn.relu(_conv(p, f"predict.{layer}", new[layer]))
        if layer == 0:
            prediction = first = jnp.where(prediction > 1.0, 1.0, prediction)
        difference = prediction - target
        new_errors.append(jnp.concatenate((jax.nn.relu(difference), jax.nn.relu(-difference)), 1))
        if layer + 1 < depth:
            target = _halved(jax.nn.relu(_conv(p, f"target.{layer}", new_errors[layer])))
    return first, [new, new_cells, new_errors]


def _conv(p: Parameters, name: str, x: Array) -> Array:
    """A 3 × 3 convolution that keeps the size."""
    out = jax.lax.conv_general_dilated(
        x, p[f"{name}.weight"], (1, 1), [(1, 1), (1, 1)], dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return out + p[f"{name}.bias"][:, None, None]


def _halved(x: Array) -> Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def _hard_sigmoid(x: Array) -> Array:
    value = 0.2 * x + 0.5
    return jnp.where(value < 0.0, 0.0, jnp.where(value > 1.0, 1.0, value))
