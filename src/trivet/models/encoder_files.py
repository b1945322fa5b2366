"""The folder of a Hugging Face text encoder: where it is, and whether it can be one. Loads no torch, no transformers.

    FOLDER/config.json                                       `save_pretrained` of transformers writes all of these
    FOLDER/model.safetensors, or model.safetensors.index.json
    FOLDER/tokenizer.json, or the vocabulary that the tokenizer of the model's kind reads

A folder inside an installed Python package is named `package:NAME/PATH`; the package is not imported.

Not covered: whether transformers knows the kind of model, which shows when it is built; weights that only pickle can
read (pytorch_model.bin), which are refused.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.core.errors import MissingDataError, MissingExtraError, TrivetError
from trivet.core.places import find_place
from trivet.core.tensorfile import check_tensor_file

PREFIX = "package:"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
NO_ENCODERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of the names of architectures that write text."""


class NoEncoderError(TrivetError):
    """A folder that holds no text encoder; the message says what is there and what is allowed.

    Examples:
        >>> NoEncoderError("no config.json").exit_code
        2
    """

    exit_code = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderFiles:
    """A folder that looks like a text encoder.

    Examples:
        >>> EncoderFiles(path=Path("x"), kind="bert", max_length=512).kind
        'bert'
    """

    path: Path
    """The folder."""
    kind: str
    """`model_type` of its configuration."""
    max_length: int
    """Most tokens of an input; 0 where the files do not say."""
    layers: int = 0
    """Layers; 0 where the files do not say."""


def check_text_library() -> None:
    """Look for transformers without importing it.

    Raises:
        MissingExtraError: It is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtraError("transformers", "text")


def find_encoder(name: str, roots: tuple[Path, ...] = ()) -> EncoderFiles:
    """Find an encoder and look at its files.

    Args:
        name: Path of a folder, or `package:NAME/PATH` for one inside an installed package.
        roots: Where a relative path is looked for, after the current folder.

    Raises:
        MissingDataError: The folder or the package is not there.
        NoEncoderError: The folder holds something else, or a file of it is damaged; names the file.

    Examples:
        >>> find_encoder("package:json")
        Traceback (most recent call last):
        ...
        trivet.models.encoder_files.NoEncoderError: ...json holds no config.json; allowed: ...
    """
    path = _in_package(name) if name.startswith(PREFIX) else _on_disk(name, roots)
    config = _json(path, "config.json")
    kind = config.get("model_type")
    problem = _problem(config, kind)
    if problem:
        raise NoEncoderError(f"{path}: config.json {problem}; allowed: an encoder of text, such as BERT")
    if not any((path / file).is_file() for file in WEIGHTS):
        found = "pytorch_model.bin, which only pickle can read" if (path / "pytorch_model.bin").is_file() else "none"
        fix = "write it anew with save_pretrained of a new transformers"
        raise NoEncoderError(f"{path}: found as weights {found}; allowed: {' or '.join(WEIGHTS)}; {fix}")
    if not any((path / file).is_file() for file in TOKENIZERS):
        raise NoEncoderError(
            f"{path} holds no tokenizer; allowed: {', '.join(TOKENIZERS)}; "
            "put it there with tokenizer.save_pretrained(FOLDER)"
        )
    _check_weights(path)
    _check_tokenizer(path)
    return EncoderFiles(path=path, kind=str(kind), max_length=_max_length(path, config), layers=_layers(config))


def _problem(config: Mapping[str, Any], kind: Any) -> str:
    """Why a configuration is none of a text encoder; empty where it may be one."""
    if not isinstance(kind, str):
        return "has no model_type"
    if config.get("is_encoder_decoder") or config.get("is_decoder"):
        return f"is that of a decoder ({kind})"
    writing = [name for name in config.get("architectures") or () if str(name).endswith(NO_ENCODERS)]
    if writing:
        return f"is that of {writing[0]}, which writes text"
    return "" if isinstance(config.get("vocab_size"), int) else f"has no vocab_size, so {kind} reads no text"


def _check_weights(path: Path) -> None:
    """Refuse weights that are cut short or missing in part; the file that transformers reads is the first of `WEIGHTS`.

    Raises:
        NoEncoderError: Names the file.
    """
    index = path / WEIGHTS[1]
    files = [path / WEIGHTS[0]]
    if not files[0].is_file():
        names = _json(path, index.name).get("weight_map")
        if not isinstance(names, Mapping) or not all(isinstance(name, str) for name in names.values()) or not names:
            raise NoEncoderError(f"{index}: found no weight_map; allowed: a mapping of tensor → file")
        files = [path / name for name in sorted(set(names.values()))]
    for file in files:
        if not file.is_file():
            raise NoEncoderError(f"{file} is not there, and {index} names it; get it again")
        try:
            check_tensor_file(file)
        except ValueError as error:
            raise NoEncoderError(str(error)) from error


def _check_tokenizer(path: Path) -> None:
    """Refuse files of a tokenizer that are empty, no JSON, or no text.

    Raises:
        NoEncoderError: Names the file.
    """
    for name in TOKENIZERS:
        file = path / name
        if not file.is_file():
            continue
        if name.endswith(".json"):
            content = _json(path, name)
            if name == TOKENIZERS[0] and not isinstance(content.get("model"), dict):
                raise NoEncoderError(f"{file} has no `model`; put it there with tokenizer.save_pretrained(FOLDER)")
            continue
        try:
            words = file.read_bytes()
            if name.endswith(".txt"):
                words.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise NoEncoderError(f"{file} cannot be read ({error}); get it again") from error
        if not words.strip():
            raise NoEncoderError(f"{file} is empty; put it there with tokenizer.save_pretrained(FOLDER)")


def _max_length(path: Path, config: Mapping[str, Any]) -> int:
    """The smaller of what the positions and what the tokenizer allow."""
    positions = config.get("max_position_embeddings")
    limits = []
    if isinstance(positions, int):
        # RoBERTa and its kin count positions from the number of the padding token, 1, upwards.
        limits.append(positions - 2 if config.get("pad_token_id") == 1 else positions)
    if (path / "tokenizer_config.json").is_file():
        allowed = _json(path, "tokenizer_config.json").get("model_max_length")
        if isinstance(allowed, int) and allowed < 10**9:  # "no limit" is written as 10^30
            limits.append(allowed)
    return min(limits, default=0)


def _layers(config: Mapping[str, Any]) -> int:
    given = next((config[name] for name in ("num_hidden_layers", "n_layers") if name in config), 0)
    return given if isinstance(given, int) else 0


def _json(path: Path, name: str) -> dict[str, Any]:
    allowed = "the folder that save_pretrained of a transformers model writes"
    if not (path / name).is_file():
        raise NoEncoderError(f"{path} holds no {name}; allowed: {allowed}")
    try:
        content = json.loads((path / name).read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise NoEncoderError(f"{path / name} cannot be read ({error}); allowed: {allowed}") from error
    if not isinstance(content, dict):
        raise NoEncoderError(f"{path / name} is no JSON object; allowed: {allowed}")
    return content


def _in_package(name: str) -> Path:
    package, _, inner = name.removeprefix(PREFIX).partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise MissingDataError(
            f"encoder {name!r}: the Python package {package!r} is not installed; "
            f"install it, such as with: pip install {package.replace('_', '-')}"
        )
    path = Path(next(iter(spec.submodule_search_locations))) / inner
    if not path.is_dir():
        raise MissingDataError(f"encoder {name!r}: there is no folder {path}")
    return path


def _on_disk(name: str, roots: tuple[Path, ...]) -> Path:
    missing = f"encoder {name!r} is not on this machine"
    allowed = f"a folder, or {PREFIX}NAME/PATH inside an installed package; nothing is downloaded"
    return find_place(name, roots, missing=missing, allowed=allowed, only_folders=True)
