"""The `precision` section of a run: what it builds and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from trivet.core.config import build, to_plain
from trivet.core.errors import ConfigError
from trivet.precision import PrecisionConfig, PrecisionSchedule


def test_nothing_means_full_precision() -> None:
    config = build(PrecisionConfig, {})
    assert config.build(10) is None
    assert (config.forward_q_max, config.backward_bits, config.evaluation_bits) == (32, 32, 32)


@pytest.mark.parametrize("name", PrecisionSchedule.names())
def test_named_schedules(name: str) -> None:
    config = build(PrecisionConfig, {"schedule": name, "q_min": 4, "q_max": 6, "num_cycles": 2, "grad_bits": 8})
    assert config.build(100) == PrecisionSchedule.named(name, q_min=4, q_max=6, num_cycles=2, total_steps=100)
    assert (config.forward_q_max, config.backward_bits, config.evaluation_bits) == (6, 8, 6)


def test_defaults_of_a_named_schedule_are_the_published_setting() -> None:
    assert PrecisionConfig(schedule="RR").build(64) == PrecisionSchedule.named(
        "RR", q_min=3, q_max=8, num_cycles=8, total_steps=64
    )


def test_custom_static_and_deficit() -> None:
    custom = {"schedule": "custom", "profile": "rex", "shape": "triangular", "reflection": "horizontal"}
    schedule = build(PrecisionConfig, custom).build(80)
    assert schedule is not None
    assert schedule.name == "RTH"
    static = build(PrecisionConfig, {"schedule": "static", "bits": 6, "deficit": {"length": 3, "bits": 2}})
    built = static.build(5)
    assert built is not None
    assert built.bits_array().tolist() == [2, 2, 2, 6, 6]


def test_round_trip_through_plain_values() -> None:
    config = PrecisionConfig(schedule="RTV", q_min=3, evaluate_bits=32)
    assert build(PrecisionConfig, to_plain(config)) == config


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"schedule": "RX"}, "unknown schedule 'RX'"),
        ({"schedule": "static", "bits": 0}, "`bits=0` must lie in"),
        ({"bits": 0}, "`bits=0` must lie in"),
        ({"schedule": "static", "bits": 40}, "`bits=40` must lie in"),
        ({"schedule": "static"}, "needs `bits`"),
        ({"bits": 8}, "no effect with schedule='none'"),
        ({"schedule": "RR", "bits": 8}, "no effect with schedule='RR'"),
        ({"schedule": "RR", "q_min": 9, "q_max": 8}, "`q_min=9` must lie in"),
        ({"schedule": "RR", "q_min": 9}, "`q_min=9` must lie in"),
        ({"schedule": "RR", "num_cycles": 0}, "`num_cycles=0`"),
        ({"schedule": "RTH", "num_cycles": 3}, "odd"),
        ({"schedule": "custom"}, "needs `profile`"),
        ({"schedule": "CR", "profile": "rex"}, "no effect"),
        ({"grad_bits": 8}, "no effect"),
        ({"schedule": "CR", "grad_bits": 33}, "`grad_bits=33`"),
        ({"schedule": "CR", "evaluate_bits": -1}, "`evaluate_bits=-1`"),
        ({"schedule": "CR", "deficit": {"length": 0, "bits": 3}}, "`length=0`"),
        ({"schedule": "CR", "quantizer": "x"}, "unknown quantizer"),
        ({"shedule": "CR"}, "did you mean 'schedule'"),
    ],
)
def test_refused_before_training(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(PrecisionConfig, mapping, file="study.yaml", key="precision")


def test_run_shorter_than_its_cycles() -> None:
    with pytest.raises(ValueError, match="`num_cycles=8` must lie in \\[1, total_steps=5\\]"):
        PrecisionConfig(schedule="CR").build(5)
