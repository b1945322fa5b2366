"""Video prediction: PredNet learns, frame by frame, to predict the next frame of a video.

A step is a window of consecutive frames. The training part of the video is cut into `batch_size` stretches of equal
length that are read side by side; a window that carries its state on starts from zero at every pass over the video.
Frames that fill no window are left out. The pass repeats as often as the steps need.

Metrics, all mean squared errors of pixels in [0, 1], first those of the retracted study (arXiv:2109.01451):

    last_frame_mse   of the last frame of each window, before the step's update; mean of the last 50 windows
    all_frames_mse   of all frames of the same windows
    copy_mse         what copying the frame before would have scored on them: a network above it has learned nothing yet
    test_mse, test_copy_mse    the same two on the held-out end of the video, by the trained network
    dead             1 when the network's output is constant on the held-out part, over all pixels and frames: nothing
                     comes through its last rectifier, in no colour
    stuck            1 when that holds for some colours and not for all

A constant output gets no gradient, so such a run does not recover by itself; it stays in every mean, and the two flags
let the analysis be made again without it.

At few bits all convolutions are quantized. Not covered: several videos, predictions several frames ahead.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.errors import ConfigError
from trivet.core.seeding import derive, seed_everything
from trivet.models.prednet import PredNet, PredNetState
from trivet.tasks.buffers import feeder
from trivet.tasks.config import RunConfig
from trivet.tasks.initialize import initialize
from trivet.tasks.pictures import write_strip
from trivet.tasks.precision import RunPrecision
from trivet.tasks.task_config import options_of
from trivet.tasks.video_prediction_config import VideoPredictionConfig
from trivet.training.batches import BatchOrder
from trivet.training.job import Job

REDUCED = 50
"""Windows at the end of training whose errors are averaged, as in the study."""

EVALUATION_STREAMS = 10
"""Stretches of the held-out part that are read side by side; changes the figures a little, so it is fixed."""

SHOWN = 6
"""Frames whose predictions are kept as a picture."""


def build_job(run: RunConfig, device: torch.device) -> Job:
    """Read the video, build the model, and say how to train and evaluate it.

    Args:
        run: A run of the task video-prediction.
        device: Where it trains.

    Raises:
        ConfigError: A step takes more frames than the video has.
        MissingDataError: The video is not on this machine.
        UnusableDataError: It cannot be read.
    """
    task, training = options_of(run, VideoPredictionConfig), run.training
    if training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    frames = task.load().frames
    problems = task.size_problems(len(frames), training.batch_size, "")
    if problems:
        raise ConfigError(problems)
    windows = Windows(frames[: task.split(len(frames))], task, training.batch_size, run.seed)
    test = _test_sequences(frames[task.split(len(frames)) :], task, device)
    seed_everything(derive(run.seed, "init"))
    model, example = _model(task, device)
    initial = initialize(run, model, example)
    precision = RunPrecision(run, model, example, quantizes)
    seed_everything(derive(run.seed, "training"))
    feed = feeder(task.buffer, device)
    memory = Memory(windows, device)

    def loss(forward: nn.Module, step: int) -> Tensor:
        state = memory.state if task.carry and not windows.begins(step) else None
        total, scores, state = window_loss(forward, map(feed, windows.frames(step)), state, task.loss)
        memory.keep(state, scores)
        return total

    def evaluate() -> Mapping[str, float]:
        with precision.evaluation():
            return {**memory.figures(), **_evaluated(model, test)}

    def keep(folder: Path) -> None:
        with precision.evaluation(), torch.no_grad():
            predictions = model.eval()(test[:1]).predictions[0, -SHOWN:]
        write_strip(folder / "1 shown.png", _bytes(test[0, -SHOWN:]))
        write_strip(folder / "2 predicted.png", _bytes(predictions))

    steppers = {**precision.steppers, "memory": memory}
    return Job(
        model=model,
        loss=loss,
        evaluate=evaluate,
        observe=precision.observe,
        steppers=steppers,
        keep=keep,
        extra=initial,
    )


def quantizes(module: nn.Module, name: str) -> bool:
    """Which layers compute at few bits: all that multiply."""
    return True


def counted(run: RunConfig) -> tuple[nn.Module, Any]:
    """The model of a run and one example of its input, a window, for counting multiply-accumulates."""
    return _model(options_of(run, VideoPredictionConfig), torch.device("cpu"))


def _model(task: VideoPredictionConfig, device: torch.device) -> tuple[PredNet, Tensor]:
    model = PredNet(
        task.channels,
        gates="hard" if task.gates == "hard" else "plain",
        peephole=(task.height, task.width) if task.peepholes else None,
    )
    _draw(model, task.initial)
    example = torch.zeros(1, task.window, task.channels[0], task.height, task.width, device=device)
    return model.to(device), example


@torch.no_grad()
def _draw(model: nn.Module, kind: str) -> None:
    """Draw the weights of every convolution, and set its biases to zero."""
    if kind == "torch":
        return
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.bias is not None:
            inputs, outputs = module.weight[0].numel(), module.weight[:, 0].numel()
            if kind == "lecun":
                module.weight.normal_(0, inputs**-0.5)
            else:
                bound = (6 / (inputs + outputs)) ** 0.5
                module.weight.uniform_(-bound, bound)
            module.bias.zero_()


def window_loss(
    forward: nn.Module, frames: Iterator[Tensor], state: PredNetState | None, kind: str
) -> tuple[Tensor, Tensor, PredNetState]:
    """Loss of one window, squared error of each of its frames (without gradient) and the state after it.

    The frames are taken one at a time, each when it is needed, as a camera or a reader gives them.

    Args:
        forward: A `PredNet`.
        frames: Each [N, C, H, W].
        state: Before the window; None for zeros.
        kind: `mse`, `l0` or `lall`, see `VideoPredictionConfig.loss`.

    Examples:
        >>> net = PredNet((1, 2))
        >>> loss, scores, _ = window_loss(net, iter(torch.rand(3, 1, 1, 4, 4)), None, "mse")
        >>> bool(torch.isclose(loss, scores.sum()))
        True
    """
    squares: list[Tensor] = []
    errors: list[Tensor] = []
    for frame in frames:
        out = forward(frame[:, None], state)
        state = out.state
        squares.append(F.mse_loss(out.predictions[:, 0], frame))
        errors.append(out.errors[:, 0])
    if state is None:
        raise ValueError("a window holds no frame; give at least one")
    scores = torch.stack(squares)
    if kind == "mse":
        return sum(squares[1:], squares[0]), scores.detach(), state
    weights = scores.new_full((errors[0].shape[1],), 0.1 if kind == "lall" else 0.0)
    weights[0] = 1.0
    return (torch.stack(errors[1:], 1).to(weights) @ weights).mean(), scores.detach(), state


class Windows:
    """The training part of a video, cut into windows.

    Examples:
        >>> task = VideoPredictionConfig(window=2, channels=(1,), height=1, width=1)
        >>> windows = Windows(np.arange(9, dtype=np.uint8).reshape(9, 1, 1, 1), task, 2, seed=0)
        >>> windows.per_pass, [frame.ravel().tolist() for frame in windows.frames(1)], windows.begins(2)
        (2, [[2, 6], [3, 7]], True)
    """

    def __init__(self, frames: np.ndarray, task: VideoPredictionConfig, streams: int, seed: int) -> None:
        """Args: frames: uint8 [N, C, H, W]; task: how they are cut; streams: side by side; seed: of the order."""
        self.window = task.window
        self.per_pass = len(frames) // (streams * task.window)
        self.cut = frames[: streams * self.per_pass * task.window].reshape(streams, -1, *frames.shape[1:])
        self.order: BatchOrder | None = None
        if task.shuffle:
            self.order = BatchOrder(num_examples=self.per_pass, batch_size=1, seed=derive(seed, "batches"))

    def begins(self, step: int) -> bool:
        """Whether a step begins a pass over the video."""
        return step % self.per_pass == 0

    def frames(self, step: int) -> Iterator[np.ndarray]:
        """The frames of a step, each uint8 [streams, C, H, W]."""
        first = self._first(step)
        return (self.cut[:, index] for index in range(first, first + self.window))

    def copied(self, step: int) -> tuple[float, int]:
        """Sum of squared errors of copying the frame before over the frames of a step, and of how many numbers."""
        first = self._first(step)
        part = self.cut[:, max(first - 1, 0) : first + self.window].astype(np.int64)
        changes = part[:, 1:] - part[:, :-1]
        return float((changes * changes).sum()) / 255**2, changes.size

    def _first(self, step: int) -> int:
        place = int(self.order.indices(step).item()) if self.order else step % self.per_pass
        return place * self.window


class Memory:
    """What a step leaves to the next one: the state, and the errors of the last windows. Part of every checkpoint."""

    def __init__(self, windows: Windows, device: torch.device) -> None:
        self.state: PredNetState | None = None
        self.windows, self.device = windows, device
        self.steps = 0
        self._scores: deque[Tensor] = deque(maxlen=REDUCED)

    def keep(self, state: PredNetState, scores: Tensor) -> None:
        """Keep a state without its gradient, and the squared errors of a window's frames."""
        self.state = state.detached()
        self._scores.append(scores)

    def step(self) -> None:
        """One more window is done."""
        self.steps += 1

    def figures(self) -> dict[str, float]:
        """The study's reduction, and what copying would have scored on the same windows; nothing before a step."""
        if not self._scores:
            return {}
        scores = torch.stack(list(self._scores)).double()
        copied = [self.windows.copied(step) for step in range(self.steps - len(scores), self.steps)]
        return {
            "last_frame_mse": scores[:, -1].mean().item(),
            "all_frames_mse": scores.mean().item(),
            "copy_mse": sum(total for total, _ in copied) / sum(size for _, size in copied),
        }

    def state_dict(self) -> dict[str, Any]:
        """Every tensor of the state, or None, and the errors."""
        state = self.state
        parts = None if state is None else [list(part) for part in (state.representations, state.cells, state.errors)]
        return {"state": parts, "scores": list(self._scores), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take back what `state_dict` gave."""
        found = state["state"]
        self.state = None if found is None else PredNetState(*(tuple(map(self._here, part)) for part in found))
        self.steps = state["steps"]
        self._scores = deque(map(self._here, state["scores"]), maxlen=REDUCED)

    def _here(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device)


def _test_sequences(frames: np.ndarray, task: VideoPredictionConfig, device: torch.device) -> Tensor:
    """Held-out frames as sequences of equal length, float32 [sequences, T, C, H, W]; the first of each is not scored.

    A network that carries its state reads long stretches, one that starts anew reads windows, as it has learned to.
    """
    length = max(len(frames) // EVALUATION_STREAMS, min(task.window, len(frames)))
    length = length if task.carry else min(task.window, len(frames))
    cut = frames[: len(frames) // length * length]
    return feeder("copy", device)(cut).view(-1, length, *frames.shape[1:])


def _evaluated(model: nn.Module, test: Tensor) -> dict[str, float]:
    """Errors on the held-out part, and whether the output is constant."""
    squares, copied, count = 0.0, 0.0, 0
    low = test.new_full((test.shape[2],), math.inf)
    high = -low
    for part in test.split(EVALUATION_STREAMS):
        state: PredNetState | None = None
        for index, frame in enumerate(part.unbind(1)):
            out = model(frame[:, None], state)
            prediction, state = out.predictions[:, 0].float(), out.state
            if index:
                squares += F.mse_loss(prediction, frame, reduction="sum").item()
                copied += F.mse_loss(part[:, index - 1], frame, reduction="sum").item()
                count += frame.numel()
                low = torch.minimum(low, prediction.amin((0, 2, 3)))
                high = torch.maximum(high, prediction.amax((0, 2, 3)))
    constant = (high == low).float().mean().item()
    flags = {"dead": float(constant == 1.0), "stuck": float(0.0 < constant < 1.0)}
    return {"test_mse": squares / count, "test_copy_mse": copied / count, **flags}


def _bytes(frames: Tensor) -> np.ndarray:
    return (frames.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
