"""The `precision` section of a run: what it builds and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from trivet.core.config import build, to_plain
from trivet.core.errors import ConfigError
from trivet.precision import PrecisionConfig, PrecisionSchedule, RoleSchedules


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


JOINED = {
    "schedule": "joined",
    "parts": [
        {"share": 0.1, "schedule": "static", "bits": 8},
        {"share": 0.9, "schedule": "RR", "q_min": 3, "q_max": 6, "num_cycles": 2, "offset": 1},
    ],
}


@pytest.mark.parametrize(
    "mapping",
    [
        {"schedule": "RTV", "q_min": 3, "evaluate_bits": 32},
        {"schedule": "CR", "q_min": 4, "q_max": 32, "levels": [4, 8, 16, 32], "windows": [{"length": 3, "bits": 2}]},
        JOINED,
    ],
)
def test_round_trip_through_plain_values(mapping: dict[str, Any]) -> None:
    config = build(PrecisionConfig, mapping)
    assert build(PrecisionConfig, json.loads(json.dumps(to_plain(config)))) == config


def test_combinators_in_a_study_file() -> None:
    joined = build(PrecisionConfig, {**JOINED, "windows": [{"start": 50, "length": 5, "bits": 2}]})
    built = joined.build(100)
    assert built is not None
    bits = built.bits_array()
    assert bits[:10].tolist() == [8] * 10
    assert bits[50:55].tolist() == [2] * 5
    rest = PrecisionSchedule.named("RR", q_min=3, q_max=6, num_cycles=2, total_steps=90).bits_array() + 1
    keep = [step for step in range(10, 100) if not 50 <= step < 55]
    assert bits[keep].tolist() == [rest[step - 10] for step in keep]
    assert joined.forward_q_max == 8
    changed = build(PrecisionConfig, {"schedule": "static", "bits": 6, "scale": 2, "offset": 1, "clip": [4, 12]})
    assert changed.forward_q_max == 12
    assert build(PrecisionConfig, {"schedule": "static", "bits": 7, "levels": [4, 8]}).backward_bits == 8


def test_roles_with_schedules_of_their_own() -> None:
    mapping = {
        "schedule": "RR",
        "activation": {"schedule": "static", "bits": 8},
        "gradient": {"schedule": "CT", "q_min": 6},
    }
    config = build(PrecisionConfig, mapping)
    assert build(PrecisionConfig, to_plain(config)) == config
    roles = config.build_roles(80)
    assert isinstance(roles, RoleSchedules)
    assert roles.bits(0) == (3, 8, 8)
    assert roles.gradient == PrecisionSchedule.named("CT", q_min=6, q_max=8, num_cycles=8, total_steps=80)
    assert PrecisionConfig(schedule="RR").build_roles(80) == PrecisionConfig(schedule="RR").build(80)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"gradient": {"schedule": "CT"}}, "no effect with schedule='none'"),
        ({"schedule": "RR", "grad_bits": 6, "gradient": {"schedule": "CT"}}, "no effect beside `gradient`"),
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
        ({"schedule": "CR", "levels": [8, 4]}, "rising"),
        ({"schedule": "CR", "offset": -3}, "turns 3 bits into 0"),
        ({"levels": [4, 8]}, "no effect with schedule='none'"),
        ({"windows": [{"length": 2, "bits": 3}]}, "no effect with schedule='none'"),
        ({"schedule": "CR", "parts": JOINED["parts"]}, "`parts` has no effect"),
        ({"schedule": "joined"}, "needs `parts`"),
        ({**JOINED, "q_min": 3}, "no effect with schedule='joined'"),
        ({"schedule": "joined", "parts": JOINED["parts"][:1]}, "add up to 0.1"),
    ],
)
def test_refused_before_training(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(PrecisionConfig, mapping, file="study.yaml", key="precision")


def test_run_shorter_than_its_cycles() -> None:
    with pytest.raises(ValueError, match="`num_cycles=8` must lie in \\[1, total_steps=5\\]"):
        PrecisionConfig(schedule="CR").build(5)


def test_whole_numbers_of_numpy_become_plain_ints() -> None:
    config = PrecisionConfig(
        schedule="RR", q_min=np.int64(3), q_max=np.int64(8), num_cycles=np.int64(2), grad_bits=np.int64(8),
        levels=(np.int64(4), np.int64(8)),
    )  # fmt: skip
    assert all(type(value) is int for value in (config.q_min, config.num_cycles, config.grad_bits, *config.levels))
    assert config == PrecisionConfig(schedule="RR", q_min=3, q_max=8, num_cycles=2, grad_bits=8, levels=(4, 8))
