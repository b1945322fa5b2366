"""trivet: cheaper training of neural networks, and an honest answer to whether the result changed.

Three legs: *predict* parameters, *train* on a precision schedule, *trust* the comparison. Importing this package
loads nothing heavy; torch is imported by the first name that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.core.user_run import run
    from trivet.precision import PrecisionController, PrecisionSchedule, dequantize_, quantize_
    from trivet.stats import compare, decide
    from trivet.study import Study

__version__ = "0.1.0"

__all__ = [
    "PrecisionController",
    "PrecisionSchedule",
    "Study",
    "__version__",
    "compare",
    "decide",
    "dequantize_",
    "quantize_",
    "run",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "PrecisionController": "trivet.precision",
        "PrecisionSchedule": "trivet.precision",
        "Study": "trivet.study",
        "compare": "trivet.stats",
        "decide": "trivet.stats",
        "dequantize_": "trivet.precision",
        "quantize_": "trivet.precision",
        "run": "trivet.core.user_run",
    },
)
