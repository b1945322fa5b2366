"""Tasks: data + model + loss + metrics, and the process that trains one run. Importing the package loads no torch.

One run is one command line, `python -m trivet.tasks RUN_DIR`: it reads `RUN_DIR/config.yaml` and fills the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.tasks.config import AugmentConfig, RunConfig, TaskConfig
    from trivet.tasks.run import run_task

__all__ = ["AugmentConfig", "RunConfig", "TaskConfig", "run_task"]

__getattr__, __dir__ = attach(
    __name__, {"AugmentConfig": ".config", "RunConfig": ".config", "TaskConfig": ".config", "run_task": ".run"}
)
