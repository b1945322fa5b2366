"""Options of the task video-prediction. Torch-free.

Two variants of PredNet are there, and each of the ways in which they differ can be changed on its own:

    key           study                                   published
    gates         plain (the logistic function)           hard, clip(0.2 x + 0.5, 0, 1)
    peepholes     true, one weight an element             false
    carry         true, the state goes on over windows    false, zero before each window
    loss          mse, sum over the window's frames       l0, mean E_0 of all frames but the first
    shuffle       false                                   true, windows in an order drawn from the seed
    initial       lecun, normal with variance 1/inputs    glorot, uniform with variance 2/(inputs + outputs)

Biases and peepholes begin at zero in both, as in the libraries that they were written for (Chainer and Keras). torch's
own initialization has random biases: a colour whose bias is negative then often never gets through the last rectifier.

`published` is Lotter, Kreiman and Cox, arXiv:1605.08104; `study` is the network of the retracted comparison of CPUs and
GPUs, arXiv:2109.01451, as its public code defines it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from trivet.core.errors import MissingDataError, MissingExtraError, Problem, TrivetError
from trivet.tasks.task_config import TaskConfig, said

if TYPE_CHECKING:
    from trivet.tasks.config import RunConfig
    from trivet.tasks.data.video import VideoData

MAX_SIDE = 2048
MAX_CHANNELS = 4096
MAX_WINDOW = 10_000
"""Largest sizes; more is a slip of the pen, or more memory than a machine has."""

VARIANTS: dict[str, dict[str, str | bool]] = {
    "study": {"gates": "plain", "peepholes": True, "carry": True, "loss": "mse", "shuffle": False, "initial": "lecun"},
    "published": {
        "gates": "hard",
        "peepholes": False,
        "carry": False,
        "loss": "l0",
        "shuffle": True,
        "initial": "glorot",
    },
}

MAX_FRAMES = 1_000_000
"""Longest video; nine hours at 30 frames a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoPredictionConfig(TaskConfig):
    """The `task` section of a run that learns to predict the next frame of a video.

    Examples:
        >>> task = VideoPredictionConfig(data="egomotion", variant="published", carry=True, shuffle=False)
        >>> task.gates, task.loss, task.carry
        ('hard', 'l0', True)
    """

    reported: ClassVar[tuple[str, ...]] = (
        "last_frame_mse",
        "all_frames_mse",
        "copy_mse",
        "test_mse",
        "test_copy_mse",
        "dead",
        "stuck",
        "train_loss",
    )

    name: Literal["", "video-prediction"] = ""
    """video-prediction."""
    data: str = "egomotion"
    """`egomotion`, a video that is generated, or the path of a video file, of a folder of pictures, or of an .npz or
    .npy array; a relative one is looked for here and then in the data roots."""
    model: Literal["prednet"] = "prednet"
    """prednet, see `trivet.models.PredNet`."""
    variant: Literal["study", "published"] = "study"
    """Which values the six keys `gates` to `initial` have where they are left out; see the module."""
    gates: Literal["", "plain", "hard"] = ""
    """Which sigmoid."""
    peepholes: bool | None = None
    """Whether the gates read the cell, with a weight of their own for each element."""
    carry: bool | None = None
    """Whether a window goes on with the state that the one before it left."""
    loss: Literal["", "mse", "l0", "lall"] = ""
    """`mse`: sum over the frames of the mean squared error of the pixels. `l0` and `lall`: mean errors E of the lowest
    layer, or those of the others too, a tenth each; the first frame of a window does not count."""
    shuffle: bool | None = None
    """Whether windows come in an order drawn from the seed."""
    initial: Literal["", "lecun", "glorot", "torch"] = ""
    """Random initial weights; `torch` takes those of its layers, with random biases."""
    height: int = 24
    """Of the frames; others are resized."""
    width: int = 32
    """Of the frames; others are resized."""
    channels: tuple[int, ...] = (3, 16, 32, 64)
    """Of the frames (3, or 1 for grey), then of each further layer."""
    window: int = 20
    """Frames over which a step back-propagates."""
    frames: int = 0
    """Read at most so many frames of the video; 0 reads all (6,250 of `egomotion`)."""
    held_out: float = 0.2
    """Share of the video, its end, that is not trained on."""
    buffer: Literal["copy", "reuse"] = "copy"
    """`copy`: every frame has memory of its own. `reuse`: one host buffer takes each frame in turn, and torch is given
    that buffer without a copy; on a CPU, backward then finds the last frame of a window where the others were."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "video-prediction")
        if not self.data:
            raise ValueError("`data` is empty; give the path of a video, or leave it out for `egomotion`")
        for key, value in VARIANTS[self.variant].items():
            if getattr(self, key) in ("", None):
                object.__setattr__(self, key, value)
        if self.carry and self.shuffle:
            raise ValueError("`carry=true` needs the windows in order; set `shuffle: false`, or `carry: false`")
        if not self.channels or self.channels[0] not in (1, 3):
            raise ValueError(f"`channels={list(self.channels)}` must begin with 3, the colours, or 1 for grey")
        for count in self.channels:
            _within("channels", count, 1, MAX_CHANNELS, "48 in the second layer is the published number")
        _within("height", self.height, 1, MAX_SIDE, "120 is that of the study")
        _within("width", self.width, 1, MAX_SIDE, "160 is that of the study")
        factor = 1 << (len(self.channels) - 1)
        if self.height % factor or self.width % factor:
            raise ValueError(
                f"`height={self.height}` and `width={self.width}` are halved {len(self.channels) - 1} times; they must "
                f"be multiples of {factor}"
            )
        _within("window", self.window, 2, MAX_WINDOW, "20 is that of the study")
        if self.frames and not 2 <= self.frames <= MAX_FRAMES:
            raise ValueError(
                f"`frames={self.frames}` must lie in [2, {MAX_FRAMES}], or 0 for all; one frame predicts nothing"
            )
        if not 0.01 <= self.held_out <= 0.5:
            raise ValueError(f"`held_out={self.held_out}` must lie in [0.01, 0.5]; 0.2 is usual")

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Video that is missing, damaged or too short; it is read for it. See `TaskConfig.problems`."""
        try:
            video = self.load()
        except (MissingDataError, MissingExtraError):
            raise
        except TrivetError as error:
            return [said(file, "task.data", repr(self.data), error)]
        return self.size_problems(len(video.frames), run.training.batch_size if run.training else 1, file)

    def size_problems(self, frames: int, streams: int, file: str) -> list[Problem]:
        """A problem when a video of so many frames is too short for one step, or for its test part."""
        trained, needed = self.split(frames), streams * self.window
        if frames - trained < 2:
            found = f"{self.data!r}, of {frames} frames, of which {frames - trained} are held out"
            allowed = "a video of which at least 2 frames can be held out, as the first one cannot be predicted"
            return [Problem(file, "task.data", found, allowed, "give a longer video, or raise `task.held_out`")]
        if trained >= needed:
            return []
        found = f"training.batch_size={streams} × task.window={self.window} = {needed:,} frames a step"
        allowed = f"at most the {trained:,} frames of the training part"
        return [Problem(file, "task.window", found, allowed, "lower one of the two, or give a longer video")]

    def split(self, frames: int) -> int:
        """How many of a video's frames are trained on: the first ones.

        Examples:
            >>> VideoPredictionConfig().split(6250)
            5000
        """
        return frames - max(round(frames * self.held_out), 1)

    def load(self) -> VideoData:
        """Read the video; see `trivet.tasks.data.video.load_video` for the errors."""
        from trivet.tasks.data.video import load_video

        return load_video(
            self.data, height=self.height, width=self.width, channels=self.channels[0], frames=self.frames
        )


def _within(name: str, value: int, least: int, most: int, advice: str) -> None:
    if not least <= value <= most:
        raise ValueError(f"`{name}={value}` must lie in [{least}, {most}]; {advice}")
