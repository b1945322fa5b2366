"""Precision schedules: train any model at few bits, on a schedule, and count what it costs.

Three names do the work: `quantize_` makes the layers of a model compute at few bits, a `PrecisionSchedule` says how
many bits at which step, and a `PrecisionController` moves the one along the other. Schedules, configuration and cost
formulas load without torch; torch is imported by the first name that needs it.

Not covered: number formats that run faster. Precision is simulated in float32, so BitOPs are saved on paper, not time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.precision.bitops import LayerCost, bitops_per_mac, training_bitops
    from trivet.precision.config import PrecisionConfig
    from trivet.precision.controller import PrecisionController
    from trivet.precision.cost import layer_macs
    from trivet.precision.deficit import Deficit
    from trivet.precision.inject import dequantize_, quantize_
    from trivet.precision.layerreport import LayerReport
    from trivet.precision.schedules import PrecisionSchedule

__all__ = [
    "Deficit",
    "LayerCost",
    "LayerReport",
    "PrecisionConfig",
    "PrecisionController",
    "PrecisionSchedule",
    "bitops_per_mac",
    "dequantize_",
    "layer_macs",
    "quantize_",
    "training_bitops",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "Deficit": ".deficit",
        "LayerCost": ".bitops",
        "LayerReport": ".layerreport",
        "PrecisionConfig": ".config",
        "PrecisionController": ".controller",
        "PrecisionSchedule": ".schedules",
        "bitops_per_mac": ".bitops",
        "dequantize_": ".inject",
        "layer_macs": ".cost",
        "quantize_": ".inject",
        "training_bitops": ".bitops",
    },
)
