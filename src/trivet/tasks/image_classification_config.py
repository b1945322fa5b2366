"""Options of the task image-classification. Torch-free.

Not covered: whether a user's own `python:` model can be built, which only running his code can tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from trivet.core.config import UNSET_IS_LEFT_OUT
from trivet.core.errors import Problem, TrivetError
from trivet.tasks.task_config import TaskConfig, said

if TYPE_CHECKING:
    from trivet.tasks.config import RunConfig

MAX_WIDTH = 4096
"""Most channels of a first stage; more is a slip of the pen, or more memory than a machine has."""

MAX_WORKERS = 256
"""Most threads that decode."""
IMAGE_FOLDER = "image-folder:"
"""How data that are pictures in a folder begin."""
MAX_SHIFT = 1024
"""Most pixels that an image is moved by, as many as the largest image has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentConfig:
    """Random changes of training images; see `trivet.training.batches.augment`.

    Examples:
        >>> AugmentConfig(shift=2).flip
        False
    """

    shift: int = 0
    """Largest movement in pixels, in both directions; 0 for none."""
    flip: bool = False
    """Mirror left to right half of the time."""
    crop: tuple[float, float] | None = field(default=None, metadata=UNSET_IS_LEFT_OUT)
    """Least and largest share of a picture's area that is cut out and resized, such as [0.08, 1]: the random resized
    crop of Szegedy et al. 2015, aspects from 3/4 to 4/3. Pictures in a folder alone, which are then streamed."""

    def __post_init__(self) -> None:
        if not 0 <= self.shift <= MAX_SHIFT:
            raise ValueError(f"`shift={self.shift}` must lie in [0, {MAX_SHIFT}]; it counts pixels, 0 is none")
        if self.crop is not None and not 0 < self.crop[0] <= self.crop[1] <= 1:
            raise ValueError(
                f"`crop={list(self.crop)}` must be two shares of the area, 0 < least ≤ largest ≤ 1, such as [0.08, 1]"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageClassificationConfig(TaskConfig):
    """The `task` section of a run that classifies images.

    Examples:
        >>> ImageClassificationConfig(model="resnet20").data
        'fashion-mnist'
    """

    reported: ClassVar[tuple[str, ...]] = ("test_accuracy", "test_loss", "train_loss")

    name: Literal["", "image-classification"] = ""
    """image-classification, the task of a section without a name."""
    data: str = ""
    """Data set; empty means `fashion-mnist`."""
    model: str = ""
    """Model: `resnet20`, `mobilenet_v2`, `torchvision:NAME` or `python:pkg.module:function`."""
    width: int = 16
    """Channels of the first stage of `resnet…`; other models ignore it."""
    train_examples: int = 0
    """Training examples used, the same ones for every seed; 0 uses all."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    """Random changes of training images."""
    stream: bool | None = field(default=None, metadata=UNSET_IS_LEFT_OUT)
    """Decode the pictures of a folder when a step needs them, in place of once into memory. Unset: where they would
    take more than 4 GiB, or `augment.crop` is asked for."""
    workers: int = field(default=0, metadata=UNSET_IS_LEFT_OUT)
    """Threads that decode streamed pictures ahead; they change no batch. 0: as many as the machine has cores, at most
    8."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "image-classification")
        if not self.model:
            raise ValueError("`model` is missing; give one, such as `model: resnet20`, or a `command`")
        object.__setattr__(self, "data", self.data or "fashion-mnist")
        if not 1 <= self.width <= MAX_WIDTH:
            raise ValueError(f"`width={self.width}` must lie in [1, {MAX_WIDTH}]; it counts channels, 16 is usual")
        if self.train_examples < 0:
            raise ValueError(f"`train_examples={self.train_examples}` must be ≥ 0; 0 uses all")
        if not 0 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"`workers={self.workers}` must lie in [0, {MAX_WORKERS}]; 0 chooses for this machine")
        if not self.data.startswith(IMAGE_FOLDER):
            for key, given in (("stream", self.stream), ("augment.crop", self.augment.crop), ("workers", self.workers)):
                if given:
                    raise ValueError(f"`{key}` is for pictures in a folder, data: {IMAGE_FOLDER}PATH; remove it")
        elif self.augment.crop and self.stream is False:
            raise ValueError(
                "`augment.crop` cuts pictures out of their files, so `stream: false` cannot be; remove one"
            )

    @property
    def num_classes(self) -> int:
        """Classes of the data; 0 for unknown data, and where that shows only on reading them."""
        from trivet.tasks.data.sources import find_source

        try:
            return find_source(self.data).info.num_classes
        except ValueError:
            return 0

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Unknown models and data, more examples than there are; see `TaskConfig.problems`."""
        from trivet.models import check_model_name
        from trivet.tasks.data import check_images
        from trivet.tasks.data.sources import find_source

        batch = run.training.batch_size if run.training else 0
        found: list[Problem] = []
        try:
            check_model_name(self.model, width=self.width)
        except ValueError as error:
            found.append(said(file, "task.model", repr(self.model), error))
        try:
            check_images(self.data)
        except ValueError as error:
            found.append(said(file, "task.data", repr(self.data), error))
            return [*found, *self._size_problems(file, 0, batch)]
        return [*found, *self._size_problems(file, find_source(self.data).info.num_train, batch)]

    def data_problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Damaged files, and sizes that show only on reading; see `TaskConfig.data_problems`."""
        from trivet.tasks.data.sources import check_content

        try:
            available = check_content(self.data)
        except TrivetError as error:
            return [said(file, "task.data", repr(self.data), error)]
        return self._size_problems(file, available, run.training.batch_size if run.training else 0)

    def _size_problems(self, file: str, available: int, batch: int) -> list[Problem]:
        """Refuse more examples than there are; 0 are available where their number shows only on reading."""
        examples = self.train_examples
        problems: list[Problem] = []
        data = f"the training images of {self.data}"
        if 0 < available < examples:
            allowed = f"at most {available} ({data}); 0 uses all"
            problems.append(Problem(file, "task.train_examples", str(examples), allowed, "lower it"))
        if 0 < examples < batch:
            allowed = f"at most task.train_examples={examples}"
            problems.append(Problem(file, "training.batch_size", str(batch), allowed, "lower it, or raise the other"))
        elif 0 < available < batch:
            allowed = f"at most {available} ({data})"
            problems.append(Problem(file, "training.batch_size", str(batch), allowed, "lower it; 128 is common"))
        return problems
