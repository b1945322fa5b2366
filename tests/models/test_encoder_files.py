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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of an encoder, as far as they are looked at."""
    path = tmp_path / "enc"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "model.safetensors").touch()
    (path / "vocab.txt").touch()
    return path


def test_found_by_path_in_a_root_and_in_a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_encoder(str(folder))
    assert (found.path, found.kind, found.max_length) == (folder, "bert", 16)
    assert find_encoder("enc", (folder.parent,)) == found
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
