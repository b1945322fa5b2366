"""Which module is at work, and which line of whose code: what an audit needs to say where something happened.

Not covered: modules that are called without `__call__`, such as `model.forward(x)`; their caller is named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

OWN = ("torch", "trivet.audit", "contextlib", "functools")
"""Code that is never the user's."""


class ModuleStack:
    """Inside the `with` block, `names[-1]` is the path of the module that computes; `names` is empty outside of all.

    Args:
        model: Its paths are used; without it, those of the outermost module that is called.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> found = []
        >>> with ModuleStack() as stack:
        ...     handle = model[0].register_forward_pre_hook(lambda *_: found.extend(stack.names))
        ...     out = model(torch.ones(1, 2))
        >>> found
        ['Sequential', '0 (Linear)']
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self.names: list[str] = []
        self._paths: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._handles: list[Any] = []
        if model is not None:
            self._learn(model)

    def __enter__(self) -> ModuleStack:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self.names.clear()

    @property
    def current(self) -> str:
        """Path of the module that computes, or ""."""
        return self.names[-1] if self.names else ""

    def _learn(self, root: nn.Module) -> None:
        for path, module in root.named_modules():
            kind = type(module).__name__
            self._paths.setdefault(module, f"{path} ({kind})" if path else kind)

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if module not in self._paths:
            self._learn(module)
        self.names.append(self._paths[module])

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self.names and not torch.compiler.is_compiling():
            self.names.pop()


def user_line(skip: Sequence[str] = OWN) -> str:
    """The innermost line that runs which belongs to none of these packages, such as "train.py:31 in step".

    Examples:
        >>> user_line().partition(":")[0] != ""
        True
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name and not any(name == package or name.startswith(f"{package}.") for package in skip):
            code = frame.f_code
            return f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""
