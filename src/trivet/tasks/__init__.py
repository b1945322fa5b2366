"""Tasks: data + model + loss + metrics, and the process that trains one run. Importing the package loads no torch.

One run is one command line, `python -m trivet.tasks RUN_DIR`: it reads `RUN_DIR/config.yaml` and fills the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.tasks.autoencoding_config import AutoencodingConfig
    from trivet.tasks.command_config import CommandConfig
    from trivet.tasks.config import RunConfig, TaskConfig
    from trivet.tasks.detection_config import DetectionConfig
    from trivet.tasks.image_classification_config import AugmentConfig, ImageClassificationConfig
    from trivet.tasks.language_model_config import LanguageModelConfig
    from trivet.tasks.node_classification_config import NodeClassificationConfig
    from trivet.tasks.run import run_task
    from trivet.tasks.text_classification_config import TextClassificationConfig
    from trivet.tasks.video_prediction_config import VideoPredictionConfig

__all__ = [
    "AugmentConfig",
    "AutoencodingConfig",
    "CommandConfig",
    "DetectionConfig",
    "ImageClassificationConfig",
    "LanguageModelConfig",
    "NodeClassificationConfig",
    "RunConfig",
    "TaskConfig",
    "TextClassificationConfig",
    "VideoPredictionConfig",
    "run_task",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "AugmentConfig": ".image_classification_config",
        "AutoencodingConfig": ".autoencoding_config",
        "CommandConfig": ".command_config",
        "DetectionConfig": ".detection_config",
        "ImageClassificationConfig": ".image_classification_config",
        "LanguageModelConfig": ".language_model_config",
        "NodeClassificationConfig": ".node_classification_config",
        "RunConfig": ".config",
        "TaskConfig": ".config",
        "TextClassificationConfig": ".text_classification_config",
        "VideoPredictionConfig": ".video_prediction_config",
        "run_task": ".run",
    },
)
