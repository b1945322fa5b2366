"""How a hypernetwork is trained: the file that `trivet ghn train` reads. Torch-free, so that it is checked at once.

Not covered: the hypernetwork's own architecture beyond what `GHNConfig` says, and losses other than cross-entropy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from trivet.core.config import UNSET_IS_LEFT_OUT
from trivet.core.environment import EnvironmentConfig
from trivet.ghn.config import GHNConfig
from trivet.ghn.meta.rules import PoolConfig
from trivet.ghn.meta.task_config import TasksConfig


def _at_least(name: str, value: float, least: float, advice: str) -> None:
    if not (math.isfinite(value) and value >= least):
        raise ValueError(f"`{name}={value}` must be ≥ {least:g}; {advice}")


_NOT_NEGATIVE = (
    "cpu_seconds",
    "seconds",
    "weight_decay",
    "clip_norm",
    "penalty",
    "start_std",
    "curriculum_steps",
    "workers",
    "max_skipped",
    "evaluate_every",
    "checkpoint_every",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaDataConfig:
    """Images of the task; part of the training images is held out for validation.

    Examples:
        >>> MetaDataConfig(name="fashion-mnist").validation_images
        5000
    """

    name: str = "fashion-mnist"
    """A data set as `trivet data` lists it, such as `fashion-mnist:full`."""
    image_size: int = 32
    """Smaller images are padded with zeros to this height and width."""
    channels: int = 3
    """Grey images are repeated to this many channels."""
    validation_images: int = 5000
    """The last training images are never trained on: choices are made on them. Those of a folder, which lie there class
    by class, are first put in an order of their own, and so are its test images."""
    shift: int = 0
    """Images move by up to this many pixels."""
    flip: bool = False
    """Half of the images are mirrored."""
    stream: bool | None = field(default=None, metadata=UNSET_IS_LEFT_OUT)
    """Decode the pictures of a folder (`image-folder:PATH`) when a step needs them, in place of once into memory.
    Unset: where they would take more than 4 GiB, or `crop` is asked for."""
    crop: tuple[float, float] | None = field(default=None, metadata=UNSET_IS_LEFT_OUT)
    """Least and largest share of a picture's area that is cut out and resized, such as [0.08, 1]; of a folder alone."""

    def __post_init__(self) -> None:
        for key, given in (("stream", self.stream), ("crop", self.crop)):
            if given and not self.name.startswith("image-folder:"):
                raise ValueError(f"`{key}` is for pictures in a folder, name: image-folder:PATH; remove it")
        if self.crop and not 0 < self.crop[0] <= self.crop[1] <= 1:
            raise ValueError(
                f"`crop={list(self.crop)}` must be two shares of the area, 0 < least ≤ largest ≤ 1, such as [0.08, 1]"
            )
        if self.crop and self.stream is False:
            raise ValueError("`crop` cuts pictures out of their files, so `stream: false` cannot be; remove one")
        _at_least("image_size", self.image_size, 8, "32 is usual")
        _at_least("channels", self.channels, 1, "3 is usual")
        _at_least("validation_images", self.validation_images, 1, "5000 is usual")
        _at_least("shift", self.shift, 0, "0 moves nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaTrainingConfig:
    """The `training` section: one step takes a meta-batch of architectures.

    Examples:
        >>> MetaTrainingConfig(steps=200).meta_batch
        4
        >>> MetaTrainingConfig(steps=100, warmup_steps=100)
        Traceback (most recent call last):
        ...
        ValueError: `warmup_steps=100` must be < steps=100; shorten the warm-up or train longer
    """

    steps: int
    """Optimiser steps of the hypernetwork; the schedule runs over them."""
    start_from: str = field(default="", metadata=UNSET_IS_LEFT_OUT)
    """A trained hypernetwork, by name or folder, whose parameters training starts with, as for networks of another kind
    or other images; `ghn` must be its configuration. Empty starts anew."""
    cpu_seconds: float = 0.0
    """Stop when training steps have computed for so long, with the schedule scaled to end then; 0 counts steps alone.
    Such a run depends on the machine's speed and is not bit-exact."""
    seconds: float = 0.0
    """The same by the clock on the wall."""
    meta_batch: int = 4
    """Architectures of a step, over all processes."""
    images: int = 32
    """Images each architecture sees in a step."""
    shared_images: bool = False
    """All architectures of a step see the same images, as published; else each sees its own."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon` orthogonalises the momentum of matrices and leaves vectors and tables to AdamW."""
    lr: float = 2e-3
    """Learning rate of AdamW after warm-up."""
    muon_lr: float = 2e-2
    """Learning rate of the matrices under `muon`."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of AdamW's running means."""
    weight_decay: float = 1e-2
    """Decoupled weight decay."""
    warmup_steps: int = 100
    """Steps over which the rate grows linearly; a half cosine to 0 follows."""
    clip_norm: float = 5.0
    """Largest 2-norm of the hypernetwork's gradient; 0 does not clip."""
    net_gradients: Literal["mean", "normalized"] = "mean"
    """`normalized` scales the gradient of each architecture to norm 1 before it enters the hypernetwork, so that no
    architecture with a steep loss outweighs the others."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes."""
    penalty: float = 0.0
    """Weight of the sum of the predicted tensors' 2-norms in the loss; 3e-5 for GHN-3."""
    ema: float = 0.99
    """Decay of the running mean of the parameters that is evaluated and saved; 0 takes the parameters themselves."""
    start_std: float = 0.0
    """Standard deviation that decoded weights have at the start, in units of √(2 / fan-in); 0 leaves the hypernetwork
    as it is, about 0.1 for GHN-2, with which networks without normalisation put out nothing but zeros."""
    curriculum_steps: int = 0
    """Steps over which the number of architectures grows from one meta-batch to the whole pool, by equal factors; 0
    trains on all of them at once. Too short a growth forgets what the first few were predicted by."""
    dropout: bool = True
    """Keep the sampled architectures' dropout layers while the hypernetwork trains."""
    autocast: Literal["none", "bf16"] = "none"
    """`bf16` runs the sampled architectures in bfloat16."""
    channels_last: bool = True
    """Images with channels innermost, where torch computes such architectures correctly."""
    max_skipped: int = 0
    """Steps that may be skipped because a loss or gradient is not finite; 0 allows one in fifty, at least 10."""
    workers: int = 0
    """Processes that make the graphs of the coming steps' networks; 0 makes each when it first occurs."""
    evaluate_every: int = 0
    """Steps between validations; 0 validates at the end alone."""
    log_every: int = 50
    """Steps between rows of metrics.jsonl."""
    checkpoint_every: int = 500
    """Steps between checkpoints; 0 writes one at the end and one when asked to stop."""

    def __post_init__(self) -> None:
        _at_least("steps", self.steps, 1, "give the number of steps")
        _at_least("meta_batch", self.meta_batch, 1, "4 is the default")
        _at_least("images", self.images, 2, "batch statistics need two images or more; 32 is the default")
        for name in ("lr", "muon_lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}={value}` must be > 0; the default is a good start")
        for name in _NOT_NEGATIVE:
            _at_least(name, getattr(self, name), 0, "0 leaves it out")
        _at_least("log_every", self.log_every, 1, "50 is the default")
        _at_least("warmup_steps", self.warmup_steps, 0, "use 0 for none")
        shares = [("ema", self.ema), ("label_smoothing", self.label_smoothing)]
        for name, value in [*shares, *(("betas", beta) for beta in self.betas)]:
            if not 0 <= value < 1:
                raise ValueError(f"`{name}` holds {value}; it must lie in [0, 1)")
        if self.start_from and self.start_std:
            raise ValueError(
                f"`start_std={self.start_std}` resizes what a new hypernetwork decodes, and `start_from` takes a "
                "trained one; leave one of them out"
            )
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"`warmup_steps={self.warmup_steps}` must be < steps={self.steps}; shorten the warm-up or train longer"
            )

    @property
    def skip_limit(self) -> int:
        """Most steps that may be skipped."""
        return self.max_skipped or max(10, self.steps // 50)


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaEvaluationConfig:
    """The `evaluation` section: unseen architectures, one prediction each.

    Examples:
        >>> MetaEvaluationConfig().networks
        50
    """

    networks: int = 50
    """Architectures of the split."""
    images: int = 2000
    """The first images of the split of the data."""
    batch_size: int = 64
    """Images of a batch: batch normalisation takes the statistics of each."""

    def __post_init__(self) -> None:
        _at_least("networks", self.networks, 2, "50 is the default")
        _at_least("images", self.images, 2, "2000 is the default")
        _at_least("batch_size", self.batch_size, 2, "64 is the published protocol")


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaConfig:
    """Everything that decides one meta-training run.

    Examples:
        >>> from trivet.core.config import build
        >>> config = build(MetaConfig, {"training": {"steps": 200}, "pool": {"size": 16}})
        >>> config.training.lr, config.pool.size
        (0.002, 16)
    """

    ghn: GHNConfig = field(default_factory=lambda: GHNConfig.named("ghn2", num_classes=10))
    """The hypernetwork."""
    pool: PoolConfig = field(default_factory=PoolConfig)
    """The architectures it is trained on; validation and test architectures obey the same rules."""
    data: MetaDataConfig = field(default_factory=MetaDataConfig)
    """The images."""
    tasks: TasksConfig | None = None
    """Train on many small tasks of these sources instead of on `data.name`; `ghn.task: set` tells the hypernetwork
    which one. Images become `data.image_size` squares of `data.channels`; a tenth of them is held out."""
    training: MetaTrainingConfig
    """The loop."""
    evaluation: MetaEvaluationConfig = field(default_factory=MetaEvaluationConfig)
    """What is measured at the end, and every `evaluate_every` steps."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    """Device and threads."""
    seed: int = 0
    """Initial parameters, order of architectures and images."""

    def __post_init__(self) -> None:
        if self.tasks is None and self.ghn.task == "set":
            raise ValueError("`ghn.task='set'` needs a section `tasks` that says which; give one, or leave it out")
        if self.tasks and self.ghn.task == "none" and self.ghn.num_classes != self.tasks.ways:
            raise ValueError(
                f"`ghn.num_classes={self.ghn.num_classes}` must be `tasks.ways={self.tasks.ways}` where `ghn.task` is "
                "'none', as such a hypernetwork predicts a fixed number of classes"
            )
