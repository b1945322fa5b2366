"""Meta-training: a hypernetwork learns to predict parameters that work, over many architectures.

`meta_train` knows a hypernetwork, networks to predict for and images, and nothing of files but a checkpoint folder and
a log. Which networks and images a step takes is a pure function of the seed and the step, so a run that was killed goes
on with the same bits. A step whose loss or gradient is not finite changes nothing, is counted, and too many end the
run as "diverged".

Not covered: networks that need more than one forward pass a step.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from trivet.core.seeding import derive
from trivet.ghn.meta.clock import Clock
from trivet.ghn.meta.config import MetaTrainingConfig
from trivet.ghn.meta.group import Group
from trivet.ghn.meta.state import MetaState
from trivet.ghn.meta.step import Batch, Network, StepConfig, StepResult, meta_step
from trivet.training.batches import BatchOrder
from trivet.training.checkpoint import Checkpoints
from trivet.training.metrics import MetricsLog

logger = logging.getLogger(__name__)

Predictor = Callable[[nn.Module, Sequence[Any]], Sequence[dict[str, Tensor]]]
"""Hypernetwork and networks → the parameters of each network, attached to the hypernetwork's graph."""

Evaluate = Callable[[nn.Module], Mapping[str, float]]
"""Hypernetwork → metrics by name."""


class Networks(Protocol):
    """Networks by number: a list, or something that builds them when asked."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Network: ...


@runtime_checkable
class AheadOfTime(Protocol):
    """Networks that can be made before they are needed."""

    def ahead(self, numbers: Iterable[int], /) -> None:
        """Begin to make them."""
        ...


class Examples(Protocol):
    """What networks are trained on: `Images`, or `Tasks`."""

    def batch(self, *, step: int, place: int, size: int, places: int) -> tuple[Tensor, Tensor]:
        """Images and labels for the network at a place of a step that takes `places` different batches."""
        ...


@runtime_checkable
class Conditions(Protocol):
    """Examples that a prediction is told of."""

    def given(self, network: Any, /, *, step: int, place: int, places: int) -> Any:
        """The network with what is told of the batch of the same step and place."""
        ...


AHEAD = 8
"""Steps whose networks are asked for ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaFit:
    """How meta-training ended."""

    outcome: Literal["finished", "diverged", "stopped"]
    """`stopped`: asked to, a checkpoint is written, call again to go on."""
    step: int
    """Steps done, skipped ones included."""
    skipped: int
    """Steps that changed nothing because a loss or gradient was not finite."""
    cpu_seconds: float
    """Processor seconds of training steps, this process, all attempts."""
    seconds: float
    """Seconds of training steps by the clock, all attempts."""
    module: nn.Module
    """The hypernetwork to keep: with the running mean of its parameters, if one is kept."""


def meta_train(
    module: nn.Module,
    predict: Predictor,
    networks: Networks,
    images: Examples,
    config: MetaTrainingConfig,
    *,
    seed: int,
    log: MetricsLog,
    checkpoints: Checkpoints,
    evaluate: Evaluate = lambda module: {},
    group: Group | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> MetaFit:
    """Train a hypernetwork, resuming from the newest usable checkpoint.

    Args:
        module: The hypernetwork; trained in place.
        predict: Calls it for some networks.
        networks: What it is trained on.
        images: What the networks are trained on.
        config: How.
        seed: Decides the order of networks and images.
        log: Gets a row every `log_every` steps, at evaluations and at the end.
        checkpoints: Where to resume from and save to.
        evaluate: Called every `evaluate_every` steps and at the end, on the hypernetwork to keep.
        group: The processes that share the work.
        should_stop: Asked before every step; processes of a group must agree.

    Raises:
        ValueError: Fewer networks in a meta-batch than processes.
        RunFolderError: The checkpoint does not fit the hypernetwork.
    """
    group = group or Group()
    if config.meta_batch < group.size:
        raise ValueError(
            f"`meta_batch={config.meta_batch}` must be ≥ {group.size}, the number of processes; raise it or start fewer"
        )
    run = _Run(module, predict, networks, images, config, seed, log, checkpoints, evaluate, group)
    return run.go(should_stop)


class _Run:
    """One call of `meta_train`."""

    def __init__(
        self,
        module: nn.Module,
        predict: Predictor,
        networks: Networks,
        images: Examples,
        config: MetaTrainingConfig,
        seed: int,
        log: MetricsLog,
        checkpoints: Checkpoints,
        evaluate: Evaluate,
        group: Group,
    ) -> None:
        self.module, self.predict, self.networks, self.images = module, predict, networks, images
        self.config, self.seed, self.group, self.evaluate = config, seed, group, evaluate
        self.log, self.checkpoints = log, checkpoints
        self.state = MetaState(module, config)
        self.clock = Clock() if _device(module).type == "cpu" else Clock(_device_time)
        self.order = BatchOrder(num_examples=len(networks), batch_size=config.meta_batch, seed=derive(seed, "networks"))
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.options = StepConfig(
            meta_batch=config.meta_batch,
            net_gradients=config.net_gradients,
            label_smoothing=config.label_smoothing,
            penalty=config.penalty,
            bf16=config.autocast == "bf16",
            channels_last=config.channels_last,
        )
        self.saved = -1

    def go(self, should_stop: Callable[[], bool]) -> MetaFit:
        """Train to the end, or until asked to stop."""
        state = self.state
        if state.resume(self.checkpoints):
            self.saved = state.step
        if self.group.is_first:
            self.log.cut(state.step)
        self.module.train()
        state.start_clock()
        while state.done() < 1:
            if should_stop():
                self._save()
                return self._end("stopped")
            self._step()
            state.stop_clock()
            if state.skipped > self.config.skip_limit:
                return self._end("diverged")
            self._after_step()
            state.start_clock()
        return self._end("finished")

    def _step(self) -> None:
        state, config = self.state, self.config
        rate = state.optimizer.set_progress(state.step, state.done())
        for parameter in self.parameters:
            parameter.grad = None
        mine = self.group.share(self._chosen(state.step))
        with self.clock("batches"):
            if isinstance(self.networks, AheadOfTime):
                coming = range(state.step, min(state.step + AHEAD, config.steps))
                self.networks.ahead(number for step in coming for _, number in self.group.share(self._chosen(step)))
            networks = [self._network(place, number) for place, number in mine]
            batches = [self._batch(place) for place, _ in mine]
        result = meta_step(lambda nets: self.predict(self.module, nets), networks, batches, self.options, self.clock)
        with self.clock("optimizer"):
            norm, sums = self._gather(result)
            state.step += 1
            if math.isfinite(norm):
                if config.clip_norm:
                    torch.nn.utils.clip_grads_with_norm_(self.parameters, config.clip_norm, torch.tensor(norm))
                state.optimizer.step()
                state.average()
            else:
                state.skipped += 1
                logger.warning("step %d skipped: a loss or gradient is not finite", state.step)
                sums.clear()
        for name, value in {**sums, "lr": rate}.items():
            state.sums[name] = state.sums.get(name, 0.0) + value

    def _chosen(self, step: int) -> list[tuple[int, int]]:
        """Place in the meta-batch and number of each network of a step, over all processes."""
        return list(enumerate((self.order.indices(step) % self._available(step)).tolist()))

    def _available(self, step: int) -> int:
        """Networks that a step may choose from."""
        whole, least, over = len(self.networks), self.config.meta_batch, self.config.curriculum_steps
        if step >= over or whole <= least:
            return whole
        return round(least * (whole / least) ** (step / over))

    @property
    def _places(self) -> int:
        """Different batches of a step."""
        return 1 if self.config.shared_images else self.config.meta_batch

    def _network(self, place: int, number: int) -> Network:
        network = self.networks[number]
        if not isinstance(self.images, Conditions):
            return network
        return self.images.given(network, step=self.state.step, place=place % self._places, places=self._places)

    def _batch(self, place: int) -> Batch:
        config, step, places = self.config, self.state.step, self._places
        images, labels = self.images.batch(step=step, place=place % places, size=config.images, places=places)
        return Batch(images, labels, derive(self.seed, "dropout", step, place))

    def _gather(self, result: StepResult) -> tuple[float, dict[str, float]]:
        """Gradients summed over all processes; their norm, not finite when any process saw a bad loss; the sums."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        loss, accuracy, bad = self.group.total(
            sum(result.losses) / self.config.meta_batch,
            sum(result.accuracies) / self.config.meta_batch,
            float(not result.is_finite),
        )
        self.group.add_up(gradients)
        norm = math.nan if bad else torch.nn.utils.get_total_norm(gradients).item()
        sums = {"train_loss": loss, "train_accuracy": accuracy, "gradient_norm": norm, "counted": 1.0}
        return norm, sums

    def _after_step(self) -> None:
        state, config = self.state, self.config
        last = state.done() >= 1
        evaluates = last or _is_due(state.step, config.evaluate_every)
        if evaluates or _is_due(state.step, config.log_every):
            self._write_row(self._evaluated() if evaluates else {})
        if last or _is_due(state.step, config.checkpoint_every):
            self._save()

    def _evaluated(self) -> Mapping[str, float]:
        kept = self.state.averaged
        kept.eval()
        with torch.no_grad():
            found = self.evaluate(kept)
        kept.train()
        return found

    def _write_row(self, evaluation: Mapping[str, float]) -> None:
        state = self.state
        steps = state.step - state.last_row
        counted = max(state.sums.pop("counted", 0.0), 1.0)
        rate = state.sums.pop("lr", 0.0) / steps
        row = {name: value / counted for name, value in state.sums.items()}
        parts = {f"seconds_{name.replace(' ', '_')}": value / steps for name, value in self.clock.take().items()}
        state.sums.clear()
        state.last_row = state.step
        if not self.group.is_first:
            return
        row = {**row, **evaluation, "lr": rate, "skipped": float(state.skipped), **parts}
        times = {"cpu_seconds": round(state.cpu_seconds, 3), "seconds": round(state.seconds, 3)}
        self.log.write(state.step, {**row, **times})
        left = state.seconds * (1 / state.done() - 1)
        shown = {"train_loss", "train_accuracy", *evaluation}
        text = " ".join(f"{name}={value:.4g}" for name, value in row.items() if name in shown)
        logger.info("step %d (%.1f %%), about %s left: %s", state.step, 100 * state.done(), _clock_time(left), text)

    def _save(self) -> None:
        if self.group.is_first and self.saved != self.state.step:
            self.state.save(self.checkpoints)
        self.saved = self.state.step

    def _end(self, outcome: Literal["finished", "diverged", "stopped"]) -> MetaFit:
        state = self.state
        return MetaFit(
            outcome=outcome,
            step=state.step,
            skipped=state.skipped,
            cpu_seconds=state.cpu_seconds,
            seconds=state.seconds,
            module=state.averaged,
        )


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _device_time() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
