"""Initial parameters of a run of any task, as its `init` section asks for them.

The model comes with its own random parameters, drawn from the run's seed; a hypernetwork then writes over those that
it predicts. What it cannot predict stays random, and the log says which.

Not covered: running statistics of batch norms; training measures them.
"""

from __future__ import annotations

import logging
from typing import Any

from torch import nn

from trivet.tasks.config import RunConfig

logger = logging.getLogger(__name__)


def initialize(run: RunConfig, model: nn.Module, example: Any) -> None:
    """Write the initial parameters that a run asks for into its model; nothing happens where it asks for none.

    Args:
        run: The run.
        model: Its model, with random parameters.
        example: One example as the model takes it.

    Raises:
        ValueError: The hypernetwork is not there or damaged, or does not fit the model.
    """
    if run.init.is_random:
        return
    from trivet.ghn import init_

    report = init_(model, run.init.ghn, example, head=run.init.head)
    logger.info("init: %s", report)
