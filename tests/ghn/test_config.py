from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from trivet.ghn.config import GHNConfig
from trivet.ghn.ghn import GHN


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [
        ("ghn2", 10, 1_620_764),
        ("ghn2", 1000, 2_319_720),
        ("ghn1", 10, 1_620_668),
        ("ghn1", 1000, 2_319_624),
        ("mlp", 10, 1_614_396),
        ("ghn3-t", 1000, 6_906_632),
        ("ghn3-s", 1000, 35_810_368),
        ("ghn3-l", 1000, 214_668_960),
        ("ghn3-xl", 1000, 654_365_184),
    ],
)
def test_published_networks_have_as_many_parameters(name: str, classes: int, parameters: int) -> None:
    with torch.device("meta"):
        ghn = GHN(GHNConfig.named(name, num_classes=classes))
    assert sum(value.numel() for value in ghn.parameters()) == parameters


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder": "gted"}, "unknown encoder 'gted'; allowed: gated, graphormer, mlp; did you mean 'gated'"),
        ({"decoder": "lora"}, "unknown decoder 'lora'"),
        ({"hid": 30}, "`hid=30` must be a multiple of 4"),
        ({"hid": 0}, "`hid=0` must be a whole number ≥ 1"),
        ({"hid": 32.0}, "`hid=32.0` must be a whole number"),
        ({"encoder": "graphormer", "heads": 5}, "multiple of `heads=5`"),
        ({"max_shape": (64, 64, 11)}, "four whole numbers"),
        ({"max_shape": (64, 64, 11, 3)}, "two equal numbers"),
        ({"decoder": "low_rank"}, "`rank=0` must be ≥ 1 with"),
        ({"rank": 4}, "`rank=4` must be ≥ 1 with"),
        ({"words": 14}, "`words=14` must be a whole number ≥ 15"),
        ({"virtual_edges": 255}, "`virtual_edges=255` must be at most 254"),
        ({"num_classes": True}, "`num_classes=True`"),
    ],
)
def test_impossible_structures_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GHNConfig(**fields)


@pytest.mark.parametrize("name", GHNConfig.names())
def test_dictionaries_give_the_same_configuration(name: str) -> None:
    config = GHNConfig.named(name, num_classes=7)
    assert GHNConfig.from_dict(config.to_dict()) == config


def test_unknown_name_tells_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'ghn3-xl'"):
        GHNConfig.named("ghn3-xxl")


def test_configuration_does_not_import_torch() -> None:
    code = "import sys, trivet.ghn; trivet.ghn.GHNConfig(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
