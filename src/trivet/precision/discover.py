"""Finding what can be quantized in a model: layers, and modules whose own code multiplies.

A module whose forward is not torch's is followed, as far as its code can be read: its methods, the functions they call,
and so on. It is a candidate when a product is called on the way, or something that cannot be followed; then the
modules of that kind inside it are candidates too, so that each keeps its own calls. Reading the code is only about
speed and order: watching a module that never multiplies changes nothing.

Not covered: scripted modules (`torch.jit`), which cannot be watched; a product that hides behind a callable found only
at run time, in a module where no other is.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from functools import lru_cache, partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from trivet.precision.layers import is_plain
from trivet.precision.rules import RULES
from trivet.precision.scope import SINGLE

_KNOWN = (*SINGLE, nn.Bilinear, nn.Embedding, nn.EmbeddingBag, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
"""Layers that multiply, whether or not a subclass has its own forward."""

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)

GUARDED = (nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""Modules that would hand their layers to one kernel in evaluation; a torch function mode keeps them from it."""

_DEPTH = 5
_SKIPPED = ("torch", "builtins", "typing", "collections", "functools", "logging", "warnings", "math", "numpy", "copy")


def candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Everything in a model that could be quantized, by name, in the order of its modules.

    Examples:
        >>> list(candidates(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.LSTM(2, 2))))
        ['0', '2']
    """
    found: dict[str, nn.Module] = {}
    multiplying: list[str] = []
    for name, module in _visible(model):
        if is_layer(module):
            found[name] = module
        elif _own_forward(module) and (
            any(name.startswith(f"{outer}." if outer else "") for outer in multiplying) or might_multiply(module)
        ):
            multiplying.append(name)
            found[name] = module
    return found


def is_layer(module: nn.Module) -> bool:
    """Whether the module is a layer that multiplies, so that being quantized and never running is an error."""
    return is_plain(module) or isinstance(module, _KNOWN)


def might_multiply(module: nn.Module) -> bool:
    """Whether the forward of a module calls a product, as far as it can be followed.

    Examples:
        >>> class Attention(nn.Module):
        ...     def forward(self, q, k):
        ...         return (q @ k.transpose(1, 2)).softmax(-1)
        >>> might_multiply(Attention()), might_multiply(nn.Sequential())
        (True, False)
    """
    return _Reader(module).multiplies(type(module).forward, method=True)


def _visible(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules without the insides of attention layers and of parametrizations, and without scripted ones."""
    hidden: set[int] = set()
    for name, module in model.named_modules():
        if id(module) in hidden or isinstance(module, torch.jit.ScriptModule):
            continue
        if isinstance(module, nn.MultiheadAttention):
            hidden |= {id(part) for part in module.modules()}
        if "parametrizations" in module._modules:
            hidden |= {id(part) for part in module._modules["parametrizations"].modules()}  # pyrefly: ignore[missing-attribute]
        yield name, module


def _own_forward(module: nn.Module) -> bool:
    forward = type(module).forward
    return not str(getattr(forward, "__module__", "")).startswith("torch.nn")


class _Reader:
    """Follows the code of one module's forward."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.seen: set[Any] = set()

    def multiplies(self, function: Any, depth: int = 0, *, method: bool = False) -> bool:
        """Whether a function calls a product, or what cannot be followed; a method takes the module first."""
        function = inspect.unwrap(function.func if isinstance(function, partial) else function)
        if isinstance(function, MethodType):
            function = function.__func__
        if isinstance(function, BuiltinFunctionType):
            return function.__name__ in RULES
        if not isinstance(function, FunctionType):
            return True
        if function in self.seen:
            return False
        self.seen.add(function)
        home = function.__module__ or ""
        if home.partition(".")[0] in _SKIPPED:
            return function.__name__ in RULES
        if depth >= _DEPTH:
            return False
        names = dict(function.__globals__)
        for name, part in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                names[name] = part.cell_contents
            except ValueError:
                continue  # not filled yet
        own = function.__code__.co_varnames[0] if method and function.__code__.co_argcount else ""
        return self._code(function.__code__, names, own, depth)

    def _code(self, code: CodeType, names: dict[str, Any], own: str, depth: int) -> bool:
        products, attributes, loaded = _instructions(code, own)
        if products:
            return True
        for name in attributes:
            if name not in self.module._modules and self._attribute(name, depth):
                return True
        for name in loaded:
            if self._value(names.get(name), depth):
                return True
        inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        return any(self._code(part, names, own, depth) for part in inner)

    def _attribute(self, name: str, depth: int) -> bool:
        """An attribute of the module: a method, or something callable that it keeps."""
        value = vars(self.module).get(name, inspect.getattr_static(type(self.module), name, None))
        method = isinstance(value, FunctionType) and name not in vars(self.module)
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        return self._value(value, depth, method=method)

    def _value(self, value: Any, depth: int, *, method: bool = False) -> bool:
        """A value that the code names."""
        if value is None or isinstance(value, (type, ModuleType, nn.Module, torch.Tensor, property)):
            return False
        if isinstance(value, (FunctionType, MethodType, BuiltinFunctionType, partial)):
            return self.multiplies(value, depth + 1, method=method)
        return False


@lru_cache(maxsize=4096)
def _instructions(code: CodeType, own: str) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
    """Whether the code names a product, the attributes it takes from its first argument, and the names it loads."""
    attributes: dict[str, None] = {}
    loaded: dict[str, None] = {}
    product = False
    before: Any = None
    for step in dis.get_instructions(code):
        if step.opname == "BINARY_OP" and step.argrepr in ("@", "@="):
            product = True
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            name = str(step.argval)
            if own and _last(before) == own:
                attributes[name] = None
            elif name in RULES:
                product = True
        elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            loaded[str(step.argval)] = None
            if str(step.argval) in RULES and step.opname != "LOAD_DEREF":
                product = True
        before = step
    return product, tuple(attributes), tuple(loaded)


def _last(step: Any) -> str:
    """The local variable an instruction loaded last, if it did."""
    if step is None or not step.opname.startswith("LOAD_FAST"):
        return ""
    return str(step.argval[-1] if isinstance(step.argval, tuple) else step.argval)
