"""Copies of modules that may be spoiled: same classes, same structure, other tensors, no hooks.

A shadow shares nothing that a forward pass could change: containers and objects are copied, every parameter and buffer
becomes what `convert` makes of it (a tensor without storage, for instance), so no weights are copied on the way.
Hooks are left out, but for those of `torch.nn.utils` that compute a weight (weight norm, spectral norm, pruning).

Not covered: script modules keep their code in C++ and are copied whole; objects that refuse to be copied are shared.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_SHARED = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    range,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    weakref.ref,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.memory_format,
)
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_WRAPPERS = {"OptimizedModule": "_orig_mod", "DistributedDataParallel": "module", "DataParallel": "module"}
"""Classes that only pass their call on, by the attribute that holds the module they pass it to."""
_COUNTED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Shadows:
    """Makes copies and remembers which tensor became which, so that sharing stays sharing.

    Args:
        convert: The copy of one tensor.
        device: Where script modules go, which are copied whole; empty: they stay.

    Examples:
        >>> shadows = Shadows(lambda tensor: torch.empty_like(tensor, device="meta"))
        >>> copy = shadows.module(nn.Linear(2, 3))
        >>> copy.weight.device.type, tuple(copy.weight.shape), type(copy.weight).__name__
        ('meta', (3, 2), 'Parameter')
    """

    def __init__(self, convert: Callable[[torch.Tensor], torch.Tensor], device: str = "") -> None:
        self.convert = convert
        self.device = device
        self.memo: dict[int, Any] = {}

    def module(self, module: nn.Module) -> nn.Module:
        """The copy of a module and of all that it holds."""
        inside = list(module.modules())
        for part in inside:
            if id(part) not in self.memo and not isinstance(part, torch.jit.ScriptModule):
                self.memo[id(part)] = object.__new__(type(part))
        # Tensors first: whatever objects the modules hold is copied with `deepcopy`, which then finds them.
        for part in inside:
            for table in (part._parameters, part._buffers):
                for tensor in table.values():
                    if tensor is not None:
                        self.tensor(tensor)
        for part in inside:
            if not isinstance(part, torch.jit.ScriptModule):
                self._fill(self.memo[id(part)], part)
        return self.value(module)

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """The copy of a tensor, the same one each time."""
        found = self.memo.get(id(tensor))
        if found is None:
            found = self.convert(tensor)
            if isinstance(tensor, nn.Parameter):
                if type(found) is torch.Tensor:
                    found = torch.Tensor._make_subclass(nn.Parameter, found, tensor.requires_grad)
                else:  # a tensor class of its own, such as a fake tensor
                    found = nn.Parameter(found, tensor.requires_grad)
            self.memo[id(tensor)] = found
            own = getattr(tensor, "__dict__", None)
            if own:
                found.__dict__.update({key: self.value(value) for key, value in own.items()})
        return found

    def value(self, value: Any) -> Any:
        """The copy of anything."""
        kind = type(value)
        if kind in _SHARED:
            return value
        found = self.memo.get(id(value))
        if found is not None:
            return found
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, nn.Module):
            if isinstance(value, torch.jit.ScriptModule):
                made = copy.deepcopy(value)
                self.memo[id(value)] = made.to(self.device) if self.device else made
                return self.memo[id(value)]
            return self.module(value)
        return self._container(kind, value)

    def _container(self, kind: type, value: Any) -> Any:
        if kind is tuple:
            return tuple([self.value(item) for item in value])
        if kind is set:
            return {self.value(item) for item in value}
        if kind in (list, deque):
            self.memo[id(value)] = made = kind() if kind is list else deque(maxlen=value.maxlen)
            made.extend(map(self.value, value))
            return made
        if kind in (dict, OrderedDict, defaultdict):
            self.memo[id(value)] = made = defaultdict(value.default_factory) if kind is defaultdict else kind()
            made.update((self.value(key), self.value(item)) for key, item in value.items())
            return made
        if kind is types.MethodType:
            return types.MethodType(value.__func__, self.value(value.__self__))
        if kind is functools.partial:
            return functools.partial(
                self.value(value.func),
                *map(self.value, value.args),
                **{k: self.value(v) for k, v in value.keywords.items()},
            )
        try:
            return copy.deepcopy(value, self.memo)
        except Exception:  # locks, streams, process groups: shared
            return value

    def _fill(self, made: nn.Module, module: nn.Module) -> None:
        """Give an empty copy the attributes of its original, but for hooks."""
        own: dict[str, Any] = {}
        memo = self.memo
        for key, value in module.__dict__.items():
            if type(value) in _SHARED:
                own[key] = value
            elif key in ("_parameters", "_buffers", "_modules"):
                own[key] = {name: None if item is None else self.value(item) for name, item in value.items()}
            elif key not in _HOOKS:
                own[key] = self.value(value)
        for key in _HOOKS:
            own[key] = OrderedDict()
        hooks = module.__dict__.get("_forward_pre_hooks")
        if hooks:
            own["_forward_pre_hooks"].update(
                (key, hook) for key, hook in hooks.items() if type(hook).__module__.startswith("torch.nn.utils.")
            )
        if own.get("_compiled_call_impl") is not None:
            own["_compiled_call_impl"] = None
        if type(module) in _COUNTED and "num_batches_tracked" in own["_buffers"]:
            own["_buffers"]["num_batches_tracked"] = None
        inner = _WRAPPERS.get(type(module).__name__)
        if inner in module._modules:
            own["forward"] = memo[id(module._modules[inner])].__call__
        made.__dict__.update(own)
