"""Detection: a RetinaNet learns to draw boxes around objects and to name them.

Pictures stay uint8 on the device; a batch becomes float on the fly: minus the mean of the training pictures and over
their standard deviation, a channel at a time (with a pretrained backbone: those of ImageNet). Loss: focal loss of the
scores plus L1 loss of the boxes. Metrics on the test pictures, at the precision that the configuration declares, as
COCO's own tools count them with 100 boxes a picture: `test_map50` (mean over the classes of the average precision; a
box is right when it overlaps a true one by half of their union), `test_map75`, `test_map` (mean over ten thresholds
from 0.50 to 0.95), and for each class `test_ap50_NAME`. A class without a box in the test has none.

At few bits all layers are quantized, the last ones of the heads too, as published; losses, the matching of boxes and
the suppression of doubles stay in full precision.

Not covered: data larger than memory, random crops and scales, several sizes of pictures in a batch.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.core.errors import ConfigError, MissingExtraError, Problem
from trivet.core.seeding import derive, seed_everything
from trivet.models.backbones import build_backbone
from trivet.models.detector import BACKBONE_STRIDES, Detector, freeze_norms_
from trivet.tasks.config import RunConfig
from trivet.tasks.data.detection_data import DetectionData, Part
from trivet.tasks.detection_config import DetectionConfig
from trivet.tasks.image_batches import channel_statistics
from trivet.tasks.initialize import initialize
from trivet.tasks.precision import RunPrecision
from trivet.tasks.task_config import options_of
from trivet.training.batches import BatchOrder, keyed_generator
from trivet.training.config import TrainingConfig
from trivet.training.job import Job
from trivet.training.ranks import own_part

logger = logging.getLogger(__name__)

EVALUATION_BATCH = 8
"""Pictures evaluated at a time; at few bits a range spans the batch, so it is fixed."""
IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
"""Mean and standard deviation of pixels that torchvision's pretrained networks expect."""


def build_job(run: RunConfig, device: torch.device) -> Job:
    """Read the pictures, build the network, and say how to train and evaluate it.

    Args:
        run: A run of the task detection.
        device: Where it trains.

    Raises:
        ConfigError: The batch is larger than the data, or the backbone has no map of a stride.
        MissingDataError: The data are not on this machine.
        UnusableDataError: They cannot be used.
        MissingExtraError: torchvision or pycocotools are not installed.
    """
    task, training = options_of(run, DetectionConfig), run.training
    if training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    data = task.load()
    logger.info("pictures %s", data.describe())
    pictures = _Pictures(data, task, training, run.seed, device)
    seed_everything(derive(run.seed, "init"))
    model, example = _model(task, len(data.classes), device)
    head = model.net.head  # its last layers begin with a bias that makes every score small; without it, losses explode
    last = (head.classification_head.cls_logits, head.regression_head.bbox_reg)
    initial = initialize(run, model, example, heads=last)
    precision = RunPrecision(run, model, example, quantizes)
    seed_everything(derive(run.seed, "training"))

    def loss(forward: nn.Module, step: int) -> Tensor:
        images, targets = pictures.batch(step)
        return model.loss(forward(images), targets)

    def evaluate() -> Mapping[str, float]:
        with precision.evaluation():
            found = [
                {name: value.cpu().numpy() for name, value in one.items()}
                for images in pictures.test_images.split(EVALUATION_BATCH)
                for one in model.detections(model(pictures.normalize(images)))
            ]
        return {f"test_{name}": value for name, value in average_precision(found, data.test, data.classes).items()}

    return Job(
        model=model, loss=loss, evaluate=evaluate, observe=precision.observe, steppers=precision.steppers, extra=initial
    )


def quantizes(module: nn.Module, name: str) -> bool:
    """Which layers compute at few bits: all that multiply, as published."""
    return True


def counted(run: RunConfig) -> tuple[nn.Module, Any]:
    """The model of a run and one example of its input, for counting multiply-accumulates."""
    task = options_of(run, DetectionConfig)
    return _model(task, len(task.load().classes), torch.device("cpu"))


def import_libraries() -> None:
    """What the warm server calls before the first run of this task is forked."""
    import pycocotools.cocoeval  # noqa: F401
    import torchvision.models.detection  # noqa: F401


def _model(task: DetectionConfig, num_classes: int, device: torch.device) -> tuple[Detector, Tensor]:
    own = [stride for stride in task.strides if stride in BACKBONE_STRIDES]
    try:
        backbone = build_backbone(task.backbone, own, width=task.backbone_width, pretrained=task.pretrained)
    except ValueError as error:
        raise ConfigError(
            [Problem("", "task.backbone", repr(task.backbone), str(error), sentence=str(error))]
        ) from error
    if task.freeze_norm:
        freeze_norms_(backbone)
    model = Detector(
        backbone,
        num_classes,
        (task.height, task.width),
        strides=task.strides,
        anchor_sizes=task.anchors or None,
        channels=task.channels,
        head_norm=task.head_norm == "group",
    )
    return model.to(device), torch.zeros(1, 3, task.height, task.width, device=device)


class _Pictures:
    """Data on the device, and the batch of each step."""

    def __init__(
        self, data: DetectionData, task: DetectionConfig, training: TrainingConfig, seed: int, device: torch.device
    ) -> None:
        if training.batch_size > len(data.train.images):
            allowed = f"at most {len(data.train.images)}, the number of training pictures"
            raise ConfigError([Problem("", "training.batch_size", str(training.batch_size), allowed)])
        self.train_images = torch.from_numpy(data.train.images).to(device)
        self.test_images = torch.from_numpy(data.test.images).to(device)
        self.targets = [
            (torch.from_numpy(boxes[~ignored]).to(device), torch.from_numpy(labels[~ignored]).to(device))
            for boxes, labels, ignored in zip(data.train.boxes, data.train.labels, data.train.ignored, strict=True)
        ]
        if task.pretrained:
            mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in IMAGENET)
        else:
            mean, deviation = channel_statistics(data.train.images)
        self.mean, self.deviation = mean.to(device), deviation.to(device)
        self.layout = torch.channels_last if training.channels_last else torch.contiguous_format
        self.flip, self.seed = task.flip, seed
        self.order = BatchOrder(
            num_examples=len(data.train.images), batch_size=training.batch_size, seed=derive(seed, "batches")
        )

    def batch(self, step: int) -> tuple[Tensor, list[dict[str, Tensor]]]:
        chosen = self.order.indices(step)
        images = self.train_images[chosen.to(self.train_images.device)]
        found = [self.targets[index] for index in chosen.tolist()]
        if self.flip != "none":
            mirrored = torch.rand(2, len(chosen), generator=keyed_generator(self.seed, "augment", step)) < 0.5
            mirrored[1] &= self.flip == "both"
            images, boxes = flipped(images, [boxes for boxes, _ in found], mirrored)
            found = [(box, labels) for box, (_, labels) in zip(boxes, found, strict=True)]
        images, own = own_part(images, torch.arange(len(chosen)))
        found = [found[index] for index in own.tolist()]
        return self.normalize(images), [{"boxes": boxes, "labels": labels} for boxes, labels in found]

    def normalize(self, images: Tensor) -> Tensor:
        return ((images.float() - self.mean) / self.deviation).contiguous(memory_format=self.layout)


def flipped(images: Tensor, boxes: Sequence[Tensor], mirrored: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Mirror some pictures and their boxes.

    Args:
        images: [N, C, H, W].
        boxes: One [M, 4] a picture: left, top, right, bottom.
        mirrored: bool [2, N]: which are mirrored left to right, and which upside down.

    Examples:
        >>> image, box = torch.arange(4.0).view(1, 1, 1, 4), torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        >>> image, boxes = flipped(image, [box], torch.tensor([[True], [False]]))
        >>> image.flatten().tolist(), boxes[0].tolist()
        ([3.0, 2.0, 1.0, 0.0], [[3.0, 0.0, 4.0, 1.0]])
    """
    height, width = images.shape[2:]
    for axis, chosen in ((3, mirrored[0]), (2, mirrored[1])):
        images = torch.where(chosen.to(images.device).view(-1, 1, 1, 1), images.flip(axis), images)
    found: list[Tensor] = []
    for box, across, down in zip(boxes, mirrored[0].tolist(), mirrored[1].tolist(), strict=True):
        left, top, right, bottom = box.unbind(1)
        if across:
            left, right = width - right, width - left
        if down:
            top, bottom = height - bottom, height - top
        found.append(torch.stack([left, top, right, bottom], 1))
    return images, found


def average_precision(
    found: Sequence[Mapping[str, np.ndarray]], truth: Part, classes: Sequence[str]
) -> dict[str, float]:
    """Average precision of detections, by COCO's own evaluation (pycocotools), over boxes of all sizes.

    Args:
        found: `boxes` [M, 4], `scores` [M] and `labels` [M] of each picture.
        truth: The pictures' boxes.
        classes: Names of the labels.

    Returns:
        `map50`, `map75`, `map`, and `ap50_NAME` of each class that the truth has a box of; signs in a name that are
        neither letters nor digits become `_`.

    Raises:
        MissingExtraError: pycocotools is not installed.

    Examples:
        >>> from trivet.tasks.data.shapes import shapes
        >>> truth = shapes(train=1, test=2).test
        >>> perfect = [
        ...     {"boxes": boxes, "labels": labels, "scores": np.ones(len(boxes))}
        ...     for boxes, labels in zip(truth.boxes, truth.labels)
        ... ]
        >>> average_precision(perfect, truth, ["disc", "square", "triangle"])["map"]
        1.0
    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise MissingExtraError("pycocotools", "detection") from error
    with contextlib.redirect_stdout(io.StringIO()):  # it prints as it goes
        known: Any = COCO()
        known.dataset = {
            "images": [{"id": number} for number in range(len(truth.boxes))],
            "categories": [{"id": label} for label in range(len(classes))],
            "annotations": _rows(truth.boxes, truth.labels, iscrowd=truth.ignored),
        }
        known.createIndex()
        guessed: Any = COCO()
        guessed.dataset = {
            **known.dataset,
            "annotations": _rows(
                [one["boxes"] for one in found],
                [one["labels"] for one in found],
                score=[one["scores"] for one in found],
            ),
        }
        guessed.createIndex()
        evaluation: Any = COCOeval(known, guessed, "bbox")
        evaluation.params.areaRng, evaluation.params.areaRngLbl = evaluation.params.areaRng[:1], ["all"]
        evaluation.params.maxDets = [100]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][:, :, :, 0, 0]  # [thresholds, recalls, classes]; -1 where there is none
    tested = [label for label in range(len(classes)) if (precision[:, :, label] > -1).all()]
    by_threshold = precision[:, :, tested].mean((1, 2)) if tested else np.zeros(len(precision))
    names = {label: re.sub(r"\W+", "_", classes[label]) for label in tested}
    return {
        "map50": float(by_threshold[0]),
        "map75": float(by_threshold[5]),
        "map": float(by_threshold.mean()),
        **{f"ap50_{names[label]}": float(precision[0, :, label].mean()) for label in tested},
    }


def _rows(
    boxes: Sequence[np.ndarray], labels: Sequence[np.ndarray], **more: Sequence[np.ndarray]
) -> list[dict[str, Any]]:
    """Boxes of all pictures in COCO's form, numbered from 1 (it takes 0 for none)."""
    rows: list[dict[str, Any]] = []
    for image, (some, kinds) in enumerate(zip(boxes, labels, strict=True)):
        for index, (box, label) in enumerate(zip(some.tolist(), kinds.tolist(), strict=True)):
            left, top, right, bottom = box
            row = {"id": len(rows) + 1, "image_id": image, "category_id": label, "iscrowd": 0}
            row |= {"bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}
            rows.append(row | {name: values[image][index].item() for name, values in more.items()})
    return rows
