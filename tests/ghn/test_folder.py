import json
from pathlib import Path

import pytest

from trivet.ghn import folder
from trivet.ghn.config import GHNConfig
from trivet.ghn.folder import find_folder, names, read_config, weights_digest

GOOD = {"format": 1, "kind": "ghn", **GHNConfig.named("ghn2").to_dict()}


def written(path: Path, content: object) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_folder_is_found_by_path_and_a_shipped_one_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_folder(tmp_path) == tmp_path
    monkeypatch.setattr(folder, "SHIPPED", tmp_path)
    with pytest.raises(ValueError, match="no hypernetwork comes with this version; give a folder"):
        find_folder("mine")
    written(tmp_path / "mine", GOOD)
    assert names() == ["mine"]
    assert find_folder("mine") == tmp_path / "mine"
    with pytest.raises(ValueError, match="did you mean 'mine'"):
        find_folder("mini")


def test_configurations_come_back(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, GOOD)) == GHNConfig.named("ghn2")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no JSON file"),
        ("[" * 100_000, "is no JSON file"),
        ([1], "is not that of a hypernetwork"),
        ({**GOOD, "kind": "bert"}, "is not that of a hypernetwork"),
        ({**GOOD, "format": 9}, "format 9 and this version reads 1"),
        ({**GOOD, "hidd": 3}, "did you mean 'hid'"),
        ({**GOOD, "hid": "32"}, "hid"),
    ],
)
def test_damaged_configurations_are_refused_by_file(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        read_config(written(tmp_path, content))
    assert "config.json" in str(caught.value)


def test_a_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_config(tmp_path)


def test_the_digest_is_that_of_configuration_and_weights(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
        weights_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"one")
    first = weights_digest(tmp_path)
    assert first == weights_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert weights_digest(tmp_path) != first


def test_the_empty_name_is_no_folder() -> None:
    with pytest.raises(ValueError, match="no folder ''"):
        find_folder("")
