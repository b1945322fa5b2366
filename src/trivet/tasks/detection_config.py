"""Options of the task detection. Torch-free."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from trivet.core.errors import MissingDataError, MissingExtraError, Problem, TrivetError
from trivet.models.names import (
    PYTHON,
    SMALL_BACKBONE,
    TORCHVISION,
    check_model_name,
    check_torch_file,
    unknown_backbone,
)
from trivet.tasks.task_config import TaskConfig, said

if TYPE_CHECKING:
    from trivet.tasks.config import RunConfig
    from trivet.tasks.data.detection_data import DetectionData

MAX_SIDE = 4096
MAX_CHANNELS = 4096
"""Largest sizes; more is a slip of the pen, or more memory than a machine has."""
STRIDES = (4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectionConfig(TaskConfig):
    """The `task` section of a run that finds objects in pictures.

    Examples:
        >>> DetectionConfig(data="bccd", height=120, width=160).backbone
        'small'
    """

    reported: ClassVar[tuple[str, ...]] = ("test_map50", "test_map", "test_map75", "train_loss")

    name: Literal["", "detection"] = ""
    """detection."""
    data: str = ""
    """`shapes` (also when empty), made-up pictures inside the package; path of a folder as Pascal VOC lays it out, or
    of one with COCO's json files. A relative one is looked for here and then in the data roots."""
    train_part: str = ""
    """Part that is learned from; empty for the only one whose name begins with `train`."""
    test_part: str = ""
    """Part for the test; empty for the only one whose name begins with `test`, or else `val`."""
    classes: tuple[str, ...] = ()
    """Names of the classes; empty for all in the training part."""
    height: int = 64
    """Pixels of the pictures; others are scaled to fit, keeping their proportions."""
    width: int = 80
    """The same across."""
    backbone: str = SMALL_BACKBONE
    """Network below the pyramid: `small`, `torchvision:NAME` or `python:pkg.module:function`."""
    backbone_width: int = 16
    """Channels of the first convolution of `small`; other backbones ignore it."""
    pretrained: str = ""
    """File with torchvision's parameters of the backbone; empty for random ones."""
    freeze_norm: bool = False
    """Whether the batch norms of the backbone stay as they are, as is usual with `pretrained` and small batches."""
    strides: tuple[int, ...] = (8, 16, 32)
    """Pixels of the picture to one place of each level; published: 8, 16, 32, 64, 128."""
    anchors: tuple[float, ...] = ()
    """Side of the smallest square anchor of each level in pixels; empty for four times its stride."""
    channels: int = 64
    """Of the pyramid and the heads; 256 is the published number."""
    head_norm: Literal["none", "group"] = "group"
    """`group`: a group norm behind every convolution of the heads, needed with random parameters; published: none."""
    flip: Literal["none", "horizontal", "both"] = "none"
    """Mirror training pictures left to right half of the time, or `both` that and upside down."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "detection")
        object.__setattr__(self, "data", self.data or "shapes")
        _within("height", self.height, 16, MAX_SIDE, "120 will do for large objects")
        _within("width", self.width, 16, MAX_SIDE, "160 will do for large objects")
        _within("backbone_width", self.backbone_width, 1, MAX_CHANNELS, "16 is usual for small pictures")
        _within("channels", self.channels, 1, MAX_CHANNELS, "256 is the published number")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"`classes={list(self.classes)}` names one twice; remove it")
        _check_strides(self.strides)
        if self.anchors and len(self.anchors) != len(self.strides):
            raise ValueError(
                f"`anchors={list(self.anchors)}` must name one size for each of the {len(self.strides)} `strides`"
            )
        if any(not 1 <= size <= MAX_SIDE for size in self.anchors) or list(self.anchors) != sorted(self.anchors):
            raise ValueError(f"`anchors={list(self.anchors)}` must be growing sizes in pixels, such as [32, 64, 128]")
        if self.pretrained and not self.backbone.startswith(TORCHVISION):
            raise ValueError(
                f"`pretrained={self.pretrained}` has no effect with `backbone: {self.backbone}`; remove it"
            )

    @property
    def model(self) -> str:
        """The backbone, by the name that other tasks have for their model."""
        return self.backbone

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Unknown backbones; annotations and pictures that cannot be used, all of which are looked at.

        See `TaskConfig.problems`.
        """
        from trivet.tasks.data.detection import check_detection

        for package, extra in (("torchvision", "vision"), ("PIL", "vision"), ("pycocotools", "detection")):
            if importlib.util.find_spec(package) is None:
                raise MissingExtraError({"PIL": "pillow"}.get(package, package), extra)
        found = self._backbone_problems(file)
        try:
            parts = {"train_part": self.train_part, "test_part": self.test_part}
            available = check_detection(self.data, classes=self.classes, **parts)
        except (MissingDataError, MissingExtraError):
            raise
        except TrivetError as error:
            return [*found, said(file, "task.data", repr(self.data), error)]
        batch = run.training.batch_size if run.training else 1
        if batch > available:
            allowed = f"at most {available}, the training pictures of {self.data}"
            found.append(Problem(file, "training.batch_size", str(batch), allowed, "lower it; 8 is usual"))
        return found

    def data_problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Pictures that cannot be decoded; see `TaskConfig.data_problems`."""
        from trivet.tasks.data.detection import check_pixels

        del run
        try:
            check_pixels(self.data, train_part=self.train_part, test_part=self.test_part, classes=self.classes)
        except TrivetError as error:
            return [said(file, "task.data", repr(self.data), error)]
        return []

    def _backbone_problems(self, file: str) -> list[Problem]:
        found: list[Problem] = []
        if self.backbone != SMALL_BACKBONE:
            try:
                if not self.backbone.startswith((TORCHVISION, PYTHON)):
                    raise ValueError(unknown_backbone(self.backbone))
                check_model_name(self.backbone)
            except ValueError as error:
                found.append(said(file, "task.backbone", repr(self.backbone), error))
        if self.pretrained and not Path(self.pretrained).expanduser().is_file():
            allowed = "a file with torchvision's parameters of the backbone, such as resnet18-f37072fd.pth"
            found.append(Problem(file, "task.pretrained", repr(self.pretrained), allowed, "there is no such file"))
        elif self.pretrained:
            try:
                check_torch_file(Path(self.pretrained).expanduser())
            except ValueError as error:
                found.append(said(file, "task.pretrained", repr(self.pretrained), error))
        return found

    def load(self) -> DetectionData:
        """Read the pictures; see `trivet.tasks.data.detection.load_detection` for the errors."""
        from trivet.tasks.data.detection import load_detection

        return load_detection(
            self.data,
            height=self.height,
            width=self.width,
            train_part=self.train_part,
            test_part=self.test_part,
            classes=self.classes,
        )


def _check_strides(strides: tuple[int, ...]) -> None:
    """Refuse levels that a pyramid cannot have."""
    begin = STRIDES.index(strides[0]) if strides and strides[0] in STRIDES else len(STRIDES)
    if not strides or strides != STRIDES[begin : begin + len(strides)] or strides[0] > 32 or strides[-1] == 64:
        raise ValueError(
            f"`strides={list(strides)}` must follow one another in {list(STRIDES)}, begin at 32 or below, and hold "
            "both or none of 64 and 128; such as [8, 16, 32]"
        )


def _within(name: str, value: int, least: int, most: int, advice: str) -> None:
    if not least <= value <= most:
        raise ValueError(f"`{name}={value}` must lie in [{least}, {most}]; {advice}")
