from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from trivet.ghn import folder as folders
from trivet.ghn.config import GHNConfig
from trivet.ghn.ghn import GHN

CONFIG = GHNConfig(hid=8, max_shape=(16, 16, 3, 3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return GHN(CONFIG, seed=0).save_pretrained(tmp_path / "deep" / "er")


def test_what_is_saved_is_loaded(folder: Path) -> None:
    expected, ghn = GHN(CONFIG, seed=0), GHN.from_pretrained(folder)
    assert ghn.config == CONFIG
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    for name, value in expected.state_dict().items():
        assert torch.equal(ghn.state_dict()[name], value)
    assert all(value.requires_grad for value in ghn.parameters())


def edit(folder: Path, **changes: object) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "has format 2 and this version reads 1"),
        ({"kind": "model"}, "is not that of a hypernetwork"),
        ({"hidden": 3}, "unknown key 'hidden'"),
        ({"hid": "8"}, "`hid='8'` must be a whole number"),
        ({"max_shape": 3}, "not iterable"),
        ({"hid": 2**40}, "no such network can be made of its configuration"),
        ({"hid": 64}, r"`\w+.*` is \[.*\] and must be"),
        ({"layers": 10**12}, "lacks tensors of 1000000000000 layers"),
        ({"num_classes": 10**9, "max_shape": [16, 16, 3, 3]}, "and must be"),
        ({"encoder": "mlp"}, "lacks 4 tensors"),
        ({"virtual_edges": 0}, "has left over 4 tensors"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    edit(folder, **changes)
    with pytest.raises(ValueError, match=message):
        GHN.from_pretrained(folder)


def test_damaged_files_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="missing or damaged"):
        GHN.from_pretrained(folder)
    path.unlink()
    with pytest.raises(ValueError, match="missing or damaged"):
        GHN.from_pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON file"):
        GHN.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        GHN.from_pretrained(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_refused(folder: Path, value: float) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["vectors.out.bias"][2] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"`vectors\.out\.bias` holds values that are no finite numbers"):
        GHN.from_pretrained(folder)


def test_names_of_what_comes_along(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(folders, "SHIPPED", tmp_path / "shipped")
    GHN(CONFIG, seed=0).save_pretrained(tmp_path / "shipped" / "fashion-small")
    assert GHN.from_pretrained("fashion-small").config == CONFIG
    with pytest.raises(ValueError, match=r"no folder 'fashion-large' here, .* did you mean 'fashion-small'"):
        GHN.from_pretrained("fashion-large")
    with pytest.raises(ValueError, match=r"no folder '\.\./shipped/fashion-small' here"):
        GHN.from_pretrained("../shipped/fashion-small")


def test_low_precision_files_are_read_as_floats(folder: Path) -> None:
    tensors = {name: value.bfloat16() for name, value in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    assert {value.dtype for value in GHN.from_pretrained(folder).parameters()} == {torch.float32}
