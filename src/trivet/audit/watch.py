"""Follow the weights of a script that is not changed: hooks that `trivet doctor -- COMMAND` puts into its Python.

A `sitecustomize.py` on the PYTHONPATH calls `install` before the script begins. It waits for torch to be imported, then
registers torch's own global hooks around `Optimizer.step` and looks at the loss of every `backward()`. At the end it
writes checksums, losses, some weights, and what threads and instructions were really used. Nothing is computed that the
training reads. Importing this file imports no torch.

Not covered: training without a torch optimizer; a process that is killed; Python in isolated mode (`-I`, `-E`).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.abc
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "TRIVET_WATCH"
"""Holds the request, as JSON: `folder`, `keep`, `steps` (0: all), `seed` (whether to seed what the script may not)."""

SAMPLE = 2_000_000
"""Weights that are kept at most for a distance; of more, every n-th is."""

SITECUSTOMIZE = """\
import importlib.machinery, importlib.util, os, sys

_here = os.path.dirname(os.path.abspath(__file__))
_others = [place for place in sys.path if os.path.abspath(place or ".") != _here]
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
try:
    from trivet.audit.watch import install
except ImportError:
    pass
else:
    install()
"""
"""The file that starts the watch, after the one of the same name that it hides."""


def install() -> None:
    """Begin, if the environment asks for it.

    Examples:
        >>> install()  # nothing is asked for
    """
    content = os.environ.get(VARIABLE)
    if not content:
        return
    request = json.loads(content)
    hooks: dict[str, Callable[[ModuleType], None]] = {"torch": lambda torch: Watch(request).listen(torch)}
    if request["seed"]:
        import random

        random.seed(0)
        hooks["numpy"] = lambda numpy: numpy.random.seed(0)
    sys.meta_path.insert(0, _AfterImport(hooks))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function right after a module was imported for the first time."""

    def __init__(self, hooks: dict[str, Callable[[ModuleType], None]]) -> None:
        self._hooks = hooks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        hook = self._hooks.pop(fullname, None)
        if hook is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            hook(module)

        loader.exec_module = exec_module
        return spec


class Watch:
    """What is seen of one process.

    Args:
        request: See `VARIABLE`.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._folder, self._limit = Path(request["folder"]), int(request["steps"])
        self._keep, self._seeds = frozenset(request["keep"]), bool(request["seed"])
        self._pending: list[str] = []
        self._last: Any = None
        self.unread = ""
        self._process = os.getpid()
        self.checksums: list[str] = []
        self.losses: list[str] = []
        self.weights: dict[int, Any] = {}

    def listen(self, torch: Any) -> None:
        """Register with torch."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        if self._seeds:
            torch.manual_seed(0)
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)
        backward = torch.autograd.backward

        def seen(tensors: Any, *arguments: Any, **named: Any) -> Any:
            if isinstance(tensors, torch.Tensor) and tensors.numel() == 1:
                self._pending.append(float(tensors.detach()).hex())
            return backward(tensors, *arguments, **named)

        torch.autograd.backward = seen
        atexit.register(self.finish)

    def _read(self, optimizer: Any) -> None:
        """Note the checksum; of weights that have none (sparse, sharded) nothing is followed."""
        try:
            self.checksums.append(checksum_of(optimizer))
        except Exception as error:  # whatever it is, the user's training goes on
            self.unread = f"{type(error).__name__}: {error}"

    def _before(self, optimizer: Any, arguments: Any, named: Any) -> None:
        if not self.checksums and not self.unread:
            self._read(optimizer)
            self.weights[0] = sample_of(optimizer)

    def _after(self, optimizer: Any, arguments: Any, named: Any) -> None:
        if not self.unread:
            self._read(optimizer)
        self.losses.append(" ".join(self._pending))
        self._pending.clear()
        self._last = optimizer
        step = len(self.losses)
        if step in self._keep and not self.unread:
            self.weights[step] = sample_of(optimizer)
        if step == self._limit:
            self.finish()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(0)

    def finish(self) -> None:
        """Write what was seen; nothing if there was no step, or in a process that was forked off."""
        if not self.losses or self.unread or os.getpid() != self._process:
            return
        import numpy as np

        self.weights[len(self.losses)] = sample_of(self._last)
        stem = f"{os.environ.get('RANK', '0')}-{os.getpid()}"
        named: dict[str, Any] = {str(step): values for step, values in self.weights.items()}
        np.savez(self._folder / f"{stem}.npz", **named)
        content = {
            "checksums": self.checksums,
            "losses": self.losses,
            "arrays": str(self._folder / f"{stem}.npz"),
            "rank": os.environ.get("RANK", "0"),
            "settings": _settings(self._last),
        }
        (self._folder / f"{stem}.json").write_text(json.dumps(content), encoding="utf-8")


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def checksum_of(optimizer: Any) -> str:
    """Checksum of what an optimizer trains."""
    from trivet.audit.trace import tensors_checksum

    return tensors_checksum(_parameters(optimizer))


def sample_of(optimizer: Any) -> Any:
    """Weights as one float64 vector; of more than `SAMPLE`, every n-th."""
    import numpy as np

    parameters = _parameters(optimizer)
    every = -(-sum(parameter.numel() for parameter in parameters) // SAMPLE) or 1
    parts = [parameter.detach().reshape(-1)[::every].double().cpu().numpy() for parameter in parameters]
    return np.concatenate(parts)


def _settings(optimizer: Any) -> dict[str, Any]:
    """What the process really computed with, as far as it can be measured."""
    import torch

    from trivet.training import probes

    found: dict[str, Any] = {"device": _parameters(optimizer)[0].device.type, "threads": torch.get_num_threads()}
    found["aten_isa"] = torch.backends.cpu.get_cpu_capability().lower()
    with contextlib.suppress(Exception):  # a script may have closed its output
        kernel = probes.convolution_kernel().split(":")[-1]
        found["onednn_isa"] = "AVX512_CORE" if kernel.startswith("avx512") else kernel.upper()
        found["mkl_cbwr"] = probes.mkl_branch()
    return found
