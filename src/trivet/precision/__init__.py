"""Precision schedules: train any model at few bits, on a schedule, and count what it costs.

Three names do the work: `quantize_` makes the layers of a model compute at few bits, a `PrecisionSchedule` says how
many bits at which step, and a `PrecisionController` moves the one along the other. Schedules, configuration and cost
formulas load without torch; torch is imported by the first name that needs it.

Precision is simulated in float32 by default, which saves BitOPs on paper and no time; `execution="native"` or "auto"
computes in number formats of the device that are faster. Not covered: formats below 8 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.precision.adviser import Advice, advise
    from trivet.precision.base import Schedule
    from trivet.precision.bitops import LayerBitops, LayerCost, bitops_per_mac, layer_bitops, training_bitops
    from trivet.precision.combine import clip, join, offset, overlay, scale, schedule_from_dict, snap
    from trivet.precision.config import PrecisionConfig
    from trivet.precision.controller import PrecisionController
    from trivet.precision.cost import layer_macs
    from trivet.precision.deficit import Deficit
    from trivet.precision.evidence import StudyArm
    from trivet.precision.inject import dequantize_, quantize_
    from trivet.precision.layerreport import LayerReport
    from trivet.precision.rangeresult import RangeTestResult
    from trivet.precision.rangetest import RangeTestConfig, range_test
    from trivet.precision.roles import RoleSchedules
    from trivet.precision.schedules import PrecisionSchedule

__all__ = [
    "Advice",
    "Deficit",
    "LayerBitops",
    "LayerCost",
    "LayerReport",
    "PrecisionConfig",
    "PrecisionController",
    "PrecisionSchedule",
    "RangeTestConfig",
    "RangeTestResult",
    "RoleSchedules",
    "Schedule",
    "StudyArm",
    "advise",
    "bitops_per_mac",
    "clip",
    "dequantize_",
    "join",
    "layer_bitops",
    "layer_macs",
    "offset",
    "overlay",
    "quantize_",
    "range_test",
    "scale",
    "schedule_from_dict",
    "snap",
    "training_bitops",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "Advice": ".adviser",
        "Deficit": ".deficit",
        "LayerBitops": ".bitops",
        "LayerCost": ".bitops",
        "LayerReport": ".layerreport",
        "PrecisionConfig": ".config",
        "PrecisionController": ".controller",
        "PrecisionSchedule": ".schedules",
        "RangeTestConfig": ".rangetest",
        "RangeTestResult": ".rangeresult",
        "RoleSchedules": ".roles",
        "Schedule": ".base",
        "StudyArm": ".evidence",
        "advise": ".adviser",
        "bitops_per_mac": ".bitops",
        "clip": ".combine",
        "dequantize_": ".inject",
        "join": ".combine",
        "layer_bitops": ".bitops",
        "layer_macs": ".cost",
        "offset": ".combine",
        "overlay": ".combine",
        "quantize_": ".inject",
        "range_test": ".rangetest",
        "scale": ".combine",
        "schedule_from_dict": ".combine",
        "snap": ".combine",
        "training_bitops": ".bitops",
    },
)
