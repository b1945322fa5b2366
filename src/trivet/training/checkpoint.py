"""Checkpoints that a run resumes from bit-exactly, and that a crash in the middle of writing cannot spoil.

A checkpoint is a folder `step-00000500/` with

    model.safetensors   the model's state_dict
    state.pt            optimiser, steppers, random number generators, counters (loaded with weights_only=True)
    manifest.json       step, what the checkpoint belongs to, SHA-256 of both files

It is written under another name, flushed to the disk and renamed, so under its own name it is complete; the sums
find what a disk or a person damaged later. The newest two are kept: when the newest is damaged the run says so and
continues from the one before. Not covered: models sharded over processes.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import pickle
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

logger = logging.getLogger(__name__)

_DAMAGE = (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one checkpoint holds."""

    step: int
    """Optimiser steps done."""
    model: dict[str, Tensor]
    """The model's state_dict, on the CPU."""
    state: dict[str, Any]
    """Everything else, tensors on the CPU."""


class Checkpoints:
    """The checkpoints of one run.

    Examples:
        >>> import tempfile
        >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
        >>> checkpoints.save(5, {"w": torch.ones(2)}, {"note": "half way"})
        >>> found = checkpoints.load()
        >>> found.step, found.model["w"].tolist(), found.state
        (5, [1.0, 1.0], {'note': 'half way'})
    """

    def __init__(self, folder: Path, *, key: str = "", keep: int = 2) -> None:
        """Args: folder: where they lie; key: digest of what they belong to; keep: how many of the newest stay."""
        if keep < 1:
            raise ValueError(f"`keep={keep}` must be ≥ 1")
        self.folder = folder
        self.key = key
        self.keep = keep

    def save(self, step: int, model: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write one checkpoint and drop the oldest.

        Args:
            step: Optimiser steps done.
            model: A state_dict; tied tensors are written once each name.
            state: Plain values, containers of them, and tensors.

        Raises:
            OSError: The disk is full or cannot be written; earlier checkpoints are untouched.
        """
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.items()}
        files = {"model.safetensors": save_safetensors(tensors), "state.pt": buffer.getvalue()}
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        files["manifest.json"] = json.dumps({"step": step, "key": self.key, "sha256": sums}).encode()
        target = self.folder / f"step-{step:08d}"
        scratch = self.folder / f".{target.name}.tmp"
        try:
            _write_folder(scratch, files)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(scratch, target)
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise OSError(
                error.errno, f"checkpoint of step {step} not written: {error.strerror}", str(target)
            ) from error
        _sync(self.folder)
        for old in self._folders()[self.keep :]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None when there is none.

        A damaged one, or one of another configuration, is passed over with a warning in the log.
        """
        folders = self._folders()
        for folder in folders:
            try:
                return self._read(folder)
            except _DAMAGE as error:
                logger.warning("checkpoint %s cannot be used (%s: %s)", folder.name, type(error).__name__, error)
        if folders:
            logger.warning("no usable checkpoint in %s; the run starts anew", self.folder)
        return None

    def _folders(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"), reverse=True)

    def _read(self, folder: Path) -> Checkpoint:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["key"] != self.key:
            raise ValueError("it belongs to another configuration")
        contents = {name: (folder / name).read_bytes() for name in ("model.safetensors", "state.pt")}
        for name, content in contents.items():
            if hashlib.sha256(content).hexdigest() != manifest["sha256"][name]:
                raise ValueError(f"{name} is not what was written: its SHA-256 differs")
        state = torch.load(io.BytesIO(contents["state.pt"]), map_location="cpu", weights_only=True)
        return Checkpoint(manifest["step"], load_safetensors(contents["model.safetensors"]), state)


def _write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        with open(folder / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    _sync(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rng_state() -> dict[str, Any]:
    """State of every global random number generator: Python, numpy, torch, and CUDA when it is in use.

    Examples:
        >>> state = rng_state()
        >>> first = torch.rand(1)
        >>> set_rng_state(state)
        >>> torch.equal(first, torch.rand(1))
        True
    """
    numpy_state: Any = np.random.get_state(legacy=False)
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": {
            "key": torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
            "pos": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put back what `rng_state` returned.

    Raises:
        ValueError: It was taken with another number of CUDA devices.
    """
    version, key, gauss = state["python"]
    random.setstate((version, tuple(key), gauss))
    saved = state["numpy"]
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": saved["key"].numpy().astype(np.uint32), "pos": saved["pos"]},
            "has_gauss": saved["has_gauss"],
            "gauss": saved["gauss"],
        }
    )
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        saved_devices, devices = len(state["cuda"]), torch.cuda.device_count()
        if saved_devices != devices:
            raise ValueError(
                f"the checkpoint has random states of {saved_devices} CUDA devices, {devices} are here; "
                "resume with the same number"
            )
        torch.cuda.set_rng_state_all(state["cuda"])
