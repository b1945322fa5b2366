"""`environment.backend: jax`: the same job with the forward and backward pass computed by JAX."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from trivet.core.errors import ConfigError, Problem
from trivet.training.job import Job


def with_jax(job: Job, device: str) -> Job:
    """The job whose training steps JAX computes; it is evaluated by torch, with the same parameters.

    Args:
        job: Any whose model has a second implementation.
        device: Type of the device the model is on.

    Raises:
        ConfigError: The model has none, or is not on the CPU.
        MissingExtraError: JAX is not installed.
    """
    from trivet.models.jax_models import jax_model
    from trivet.training.jax_forward import JaxForward

    if device != "cpu":
        raise ConfigError(
            [Problem("", "environment.backend", "'jax' on cuda", "jax on the cpu", "set environment.device: cpu")]
        )
    try:
        model = jax_model(job.model)
    except ValueError as error:
        raise ConfigError([Problem("", "environment.backend", "'jax'", "torch", str(error))]) from error
    forward = JaxForward(job.model, model.function, model.pack, model.unpack)
    computed = job.loss

    def loss(_: nn.Module, step: int) -> Tensor:
        return computed(forward, step)  # pyrefly: ignore[bad-argument-type]

    return replace(job, loss=loss)
