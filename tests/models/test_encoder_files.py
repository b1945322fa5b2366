from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trivet.core.errors import MissingDataError
from trivet.models.encoder_files import NoEncoderError, find_encoder

CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": 18,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}


def write_tensors(path: Path, *, size: int = 8) -> None:
    header = b'{"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of an encoder, as far as they are looked at."""
    path = tmp_path / "enc"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    write_tensors(path / "model.safetensors")
    (path / "vocab.txt").write_text("[PAD]\n")
    return path


def test_found_by_path_in_a_root_and_in_a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_encoder(str(folder))
    assert (found.path, found.kind, found.max_length) == (folder, "bert", 16)
    assert find_encoder("enc", (folder.parent,)) == found
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 3}))
    assert (found.layers, find_encoder(str(folder)).layers) == (0, 3)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(folder.parent))
    assert find_encoder("package:enc") == found


@pytest.mark.parametrize(
    ("config", "tokenizer", "wanted"),
    [
        ({}, {"model_max_length": 12}, 12),
        ({}, {"model_max_length": int(1e30)}, 16),
        ({"pad_token_id": 1, "max_position_embeddings": 514}, {"model_max_length": 512}, 512),
        ({"pad_token_id": 1, "max_position_embeddings": 514}, {}, 512),
        ({"max_position_embeddings": None}, {}, 0),
    ],
)
def test_longest_input(folder: Path, config: dict[str, Any], tokenizer: dict[str, Any], wanted: int) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert find_encoder(str(folder)).max_length == wanted


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": None}, "no model_type"),
        ({"is_encoder_decoder": True, "model_type": "t5"}, r"decoder \(t5\)"),
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel, which writes text"),
        ({"model_type": "vit", "vocab_size": None}, "no vocab_size, so vit reads no text"),
    ],
)
def test_what_is_no_text_encoder(folder: Path, config: dict[str, Any], words: str) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    with pytest.raises(NoEncoderError, match=words):
        find_encoder(str(folder))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("config.json", "holds no config.json"),
        ("model.safetensors", r"found as weights none; allowed: model\.safetensors"),
        ("vocab.txt", r"holds no tokenizer; allowed: tokenizer\.json"),
    ],
)
def test_a_file_is_missing(folder: Path, file: str, words: str) -> None:
    (folder / file).unlink()
    with pytest.raises(NoEncoderError, match=words):
        find_encoder(str(folder))


def test_pickled_weights_and_damaged_files_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(NoEncoderError, match="only pickle can read"):
        find_encoder(str(folder))
    (folder / "config.json").write_text("[1]")
    with pytest.raises(NoEncoderError, match="no JSON object"):
        find_encoder(str(folder))
    (folder / "config.json").write_bytes(b"\xff{")
    with pytest.raises(NoEncoderError, match="cannot be read"):
        find_encoder(str(folder))


def test_absent(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="nothing is downloaded"):
        find_encoder("bert-base-uncased", (tmp_path,))
    with pytest.raises(MissingDataError, match="pip install no-such-thing"):
        find_encoder("package:no_such_thing/model")
    with pytest.raises(MissingDataError, match="there is no folder"):
        find_encoder("package:trivet/no-such-folder")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"", r"model\.safetensors: found 0 bytes in all"),
        ("model.safetensors", bytes(200), r"model\.safetensors: found a header of 0 bytes, of a file of 200"),
        ("model.safetensors", b"\xff" * 200, r"model\.safetensors: found a header of 18,446,744,073,709,551,615 bytes"),
        ("model.safetensors", (20).to_bytes(8, "little") + b"x" * 50, "its header cannot be read"),
        ("tokenizer.json", b'{"model": ', r"tokenizer\.json cannot be read"),
        ("tokenizer.json", b"{}", r"tokenizer\.json has no `model`"),
        ("tokenizer.json", b"\xff", r"tokenizer\.json cannot be read"),
        ("vocab.json", b"[]", r"vocab\.json is no JSON object"),
        ("vocab.txt", b"", r"vocab\.txt is empty"),
        ("vocab.txt", b"\xff\xfe", r"vocab\.txt cannot be read"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, content: bytes, words: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(NoEncoderError, match=words):
        find_encoder(str(folder))


def test_cut_weights_are_named_those_in_parts_too(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", size=7)
    with pytest.raises(NoEncoderError, match=r"model\.safetensors: found 7 bytes of tensors; allowed: 8"):
        find_encoder(str(folder))
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "one.safetensors", "v": "two.safetensors"}}))
    write_tensors(folder / "one.safetensors")
    with pytest.raises(NoEncoderError, match=r"two\.safetensors is not there, and .*index\.json names it"):
        find_encoder(str(folder))
    write_tensors(folder / "two.safetensors", size=9)
    with pytest.raises(NoEncoderError, match=r"two\.safetensors: .*something behind its end"):
        find_encoder(str(folder))
    write_tensors(folder / "two.safetensors")
    assert find_encoder(str(folder)).kind == "bert"
    index.write_text("{}")
    with pytest.raises(NoEncoderError, match="no weight_map"):
        find_encoder(str(folder))
