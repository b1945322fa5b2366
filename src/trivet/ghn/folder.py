"""Where hypernetworks lie on disk, and what kind each is: enough to refuse a wrong one before anything starts.

A hypernetwork is a folder with `config.json` and `model.safetensors`. Some come with this package and go by their name.

Not covered: the weights (`store.py`). Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from trivet.core.errors import unknown_name
from trivet.ghn.config import GHNConfig

FORMAT = 1
"""Number of the format that is written; others are refused."""

WEIGHTS = "model.safetensors"
"""File of the weights within a folder."""

SHIPPED = Path(__file__).parent / "pretrained"
"""Folder of the hypernetworks that come with this package, one folder each."""


def names() -> list[str]:
    """Names of the hypernetworks that come with this package."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def find_folder(name_or_folder: str | Path) -> Path:
    """The folder of a hypernetwork.

    Raises:
        ValueError: There is no such folder, and none that comes with this package has that name.

    Examples:
        >>> find_folder("no-such-one")
        Traceback (most recent call last):
        ...
        ValueError: no folder 'no-such-one' here, and ...
    """
    folder = Path(name_or_folder)
    if str(name_or_folder) and folder.is_dir():
        return folder
    name, known = str(name_or_folder), names()
    if name not in known:
        or_name = unknown_name("hypernetwork", name, known) if known else "no hypernetwork comes with this version"
        raise ValueError(f"no folder {name!r} here, and {or_name}; give a folder with config.json and {WEIGHTS}")
    return SHIPPED / name


def weights_digest(folder: Path) -> str:
    """SHA-256 of a hypernetwork's configuration and weights, 12 hex digits: the same name can hold other weights later.

    Raises:
        ValueError: A file of the hypernetwork is missing.
    """
    parts = []
    for name in ("config.json", WEIGHTS):
        try:
            state = (folder / name).stat()
            parts.append(_digest_of(folder / name, state.st_size, state.st_mtime_ns))
        except OSError as error:
            raise ValueError(
                f"{folder / name} cannot be read: {error.strerror}; it belongs to a hypernetwork"
            ) from error
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


@lru_cache(maxsize=32)
def _digest_of(path: Path, size: int, changed: int) -> bytes:
    """Digest of a file; read again only when its size or time of change is another, as every arm of a study asks."""
    del size, changed
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def read_config(folder: Path) -> GHNConfig:
    """Configuration of the hypernetwork in a folder.

    Raises:
        ValueError: `config.json` is missing, damaged, of another format or of something else.
    """
    path = folder / "config.json"
    try:
        content: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; a hypernetwork's folder holds one") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(content, dict) or content.pop("kind", "") != "ghn":
        raise ValueError(f'{path} is not that of a hypernetwork: it lacks `"kind": "ghn"`')
    number = content.pop("format", None)
    if number != FORMAT:
        raise ValueError(
            f"{path} has format {number!r} and this version reads {FORMAT}; update trivet, or save it again"
        )
    try:
        return GHNConfig.from_dict(content)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error
