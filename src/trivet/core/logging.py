"""One place that decides how log lines look. Library code only calls `logging.getLogger(__name__)`."""

from __future__ import annotations

import logging


def setup_logging(level: int = logging.INFO) -> None:
    """Send trivet's log lines to standard error, each with its time; calling it again changes the level only.

    Examples:
        >>> setup_logging(logging.WARNING)
    """
    logger = logging.getLogger("trivet")
    logger.setLevel(level)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
        logger.propagate = False
