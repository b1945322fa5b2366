import json
from pathlib import Path

import pytest

from trivet.core.config import build
from trivet.core.errors import ConfigError
from trivet.ghn.config import GHNConfig
from trivet.ghn.init_config import InitConfig


@pytest.fixture
def folder(tmp_path: Path) -> str:
    content = {"format": 1, "kind": "ghn", **GHNConfig.named("ghn2").to_dict()}
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return str(tmp_path)


def test_a_random_initialization_needs_nothing() -> None:
    InitConfig().check(num_classes=7)


def test_classes_must_agree_unless_chosen_otherwise(folder: str) -> None:
    InitConfig(ghn=folder).check(num_classes=10)
    InitConfig(ghn=folder).check()
    InitConfig(ghn=folder, head="keep").check(num_classes=7)
    InitConfig(ghn=folder, head="resize").check(num_classes=7)
    with pytest.raises(ValueError, match=r"10 classes and the data have 7; add `head: resize`"):
        InitConfig(ghn=folder).check(num_classes=7)


def test_hypernetworks_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no folder 'fashion-smal' here"):
        InitConfig(ghn="fashion-smal").check()
    with pytest.raises(ValueError, match=r"config\.json cannot be read"):
        InitConfig(ghn=str(tmp_path)).check()


def test_slips_in_a_file_are_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ghn'"):
        build(InitConfig, {"gnh": "x"})
    with pytest.raises(ConfigError, match="keep"):
        build(InitConfig, {"ghn": "x", "head": "keeep"})


def test_a_run_is_pinned_to_the_weights_it_was_planned_with(folder: str) -> None:
    pinned = InitConfig(ghn=folder).pinned()
    assert len(pinned.digest) == 12
    assert pinned.pinned() == pinned
    pinned.check(num_classes=10)
    (Path(folder) / "model.safetensors").write_bytes(b"others")
    assert InitConfig(ghn=folder).pinned() != pinned
    with pytest.raises(ValueError, match="has other weights now"):
        pinned.check(num_classes=10)


def test_what_is_not_there_is_not_pinned_but_refused_later() -> None:
    assert InitConfig(ghn="no-such-one").pinned() == InitConfig(ghn="no-such-one")
    with pytest.raises(ValueError, match="no effect without a `ghn`"):
        InitConfig(digest="abc")


@pytest.mark.parametrize("method", ["tiled", "anchor", "orthogonalized"])
def test_methods_that_start_from_a_prediction_need_one(method: str) -> None:
    with pytest.raises(ValueError, match=f"`method={method}` needs a `ghn`"):
        build(InitConfig, {"method": method})
    assert not InitConfig(ghn="x", method=method).is_random  # pyrefly: ignore[bad-argument-type]


def test_orthogonal_weights_need_no_hypernetwork(folder: str) -> None:
    config = InitConfig(method="orthogonal")
    config.check(num_classes=7)
    assert not config.is_random
    assert config.pinned() == config
    with pytest.raises(ValueError, match="uses no hypernetwork"):
        InitConfig(ghn=folder, method="orthogonal")
    with pytest.raises(ConfigError, match="orthogonal"):
        build(InitConfig, {"method": "orthogonol"})
