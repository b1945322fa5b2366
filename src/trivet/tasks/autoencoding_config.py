"""Options of the task autoencoding. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from trivet.core.errors import Problem, TrivetError
from trivet.tasks.task_config import TaskConfig, said

if TYPE_CHECKING:
    from trivet.tasks.config import RunConfig

MAX_WIDTH = 65_536
"""Most numbers in a layer; more is a slip of the pen, or more memory than a machine has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoencodingConfig(TaskConfig):
    """The `task` section of a run that learns to draw pictures from a short code.

    Examples:
        >>> AutoencodingConfig().data
        'fashion-mnist'
    """

    reported: ClassVar[tuple[str, ...]] = ("test_mse", "mean_mse", "dead", "train_loss")

    name: Literal["", "autoencoding"] = ""
    """autoencoding."""
    data: str = "fashion-mnist"
    """Data set by name, or `image-folder:PATH`; labels are not used."""
    model: Literal["autoencoder"] = "autoencoder"
    """autoencoder, see `trivet.models.Autoencoder`."""
    hidden: tuple[int, ...] = (128,)
    """Widths of the layers before the code; the same ones follow it, in reverse."""
    code: int = 32
    """Numbers in the code."""
    train_examples: int = 0
    """Training pictures used, the same ones for every seed; 0 uses all."""
    buffer: Literal["copy", "reuse"] = "copy"
    """`copy`: every batch has memory of its own. `reuse`: one host buffer takes each batch in turn, and torch is given
    that buffer without a copy; as backward follows at once, this changes nothing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "autoencoding")
        for key, values in (("hidden", self.hidden), ("code", (self.code,))):
            if any(not 1 <= value <= MAX_WIDTH for value in values):
                given = list(values) if key == "hidden" else values[0]
                raise ValueError(f"`{key}={given}` must lie in [1, {MAX_WIDTH}]; it counts numbers of a layer")
        if self.train_examples < 0:
            raise ValueError(f"`train_examples={self.train_examples}` must be ≥ 0; 0 uses all")

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Unknown data, more examples than there are; see `TaskConfig.problems`."""
        from trivet.tasks.data import check_images
        from trivet.tasks.data.sources import find_source

        try:
            check_images(self.data)
        except ValueError as error:
            return [said(file, "task.data", repr(self.data), error)]
        return self._size_problems(find_source(self.data).info.num_train, run, file)

    def data_problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Damaged files, and sizes that show only on reading; see `TaskConfig.data_problems`."""
        from trivet.tasks.data.sources import check_content

        try:
            return self._size_problems(check_content(self.data), run, file)
        except TrivetError as error:
            return [said(file, "task.data", repr(self.data), error)]

    def _size_problems(self, available: int, run: RunConfig, file: str) -> list[Problem]:
        """Refuse more examples than there are; 0 are available where their number shows only on reading."""
        if 0 < available < self.train_examples:
            allowed = f"at most {available} (the training images of {self.data}); 0 uses all"
            return [Problem(file, "task.train_examples", str(self.train_examples), allowed, "lower it")]
        batch, most = run.training.batch_size if run.training else 0, self.train_examples or available
        if 0 < most < batch:
            allowed = f"at most {most}, the number of training examples"
            return [Problem(file, "training.batch_size", str(batch), allowed, "lower it; 128 is common")]
        return []
