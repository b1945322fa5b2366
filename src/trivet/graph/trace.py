"""The graph of any module: its forward pass runs on a copy without storage while every function it calls is watched.

Nothing is computed and nothing is copied but structure, so it costs little and leaves no trace: parameters, buffers,
statistics, flags, hooks, attributes and random generators of the module stay as they are. A module that looks at values
runs for real on a copy instead, as small detectors do.

Not covered: control flow is seen for the example alone; a branch that the example does not take is not in the graph.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from trivet.graph.build import Builder
from trivet.graph.graph import METHODS, Graph
from trivet.graph.record import Recorder, Watch, assign, tensors_in
from trivet.graph.shadow import Shadows
from trivet.graph.unite import unite
from trivet.graph.values import CONSTANT, Value

_log = logging.getLogger(__name__)
_UNUSED = "the forward pass does not use it"
_APART = "the forward pass uses it, but nothing that comes from it meets the input or the output"


@dataclass(frozen=True)
class _Given:
    """What a graph is made of."""

    module: nn.Module
    names: Mapping[str, torch.Tensor]
    args: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name of every parameter → its shape."""
        return {name: tuple(tensor.shape) for name, tensor in self.names.items()}

    @property
    def kind(self) -> str:
        """Name of the module's class."""
        return type(self.module).__name__

    def __str__(self) -> str:
        """Describe the tensors of the example."""
        tensors = tensors_in([self.args, self.keywords])
        parts = [f"{tuple(t.shape)} {str(t.dtype).removeprefix('torch.')} on {t.device}" for t in tensors]
        return "tensors " + ", ".join(parts) if parts else "no tensor"


def graph_of(
    module: nn.Module, example_input: Any, *, kwargs: Mapping[str, Any] | None = None, strict: bool = False
) -> Graph:
    """Make the computational graph of a module, without touching it and, as a rule, without computing anything.

    Args:
        module: Any module with parameters. It may be on any device, in any mode; where its own mode leaves parameters
            aside (auxiliary heads), the other mode is looked at too.
        example_input: What it is called with: a tensor, a tuple of positional arguments, or a mapping of keyword
            arguments. Only shapes and types matter, unless the module looks at values.
        kwargs: Further keyword arguments.
        strict: Whether a parameter that has no place in the graph is an error.

    Returns:
        The graph; `unplaced` lists parameters without a node, with the reason.

    Raises:
        TypeError: `module` is no module.
        ValueError: It has no parameters, or one without a shape yet; its forward pass fails on the example (the error
            is chained); or, with `strict`, a parameter has no place. The module is as it was in every case.

    Examples:
        >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))
        >>> g = graph_of(net, torch.zeros(1, 1, 8, 8))
        >>> [node.op for node in g.nodes], g.edges
        (['input', 'conv', 'bias', 'conv', 'bias'], ((0, 1), (1, 2), (2, 3), (3, 4)))
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"`module` must be a torch.nn.Module, not {type(module).__name__}")
    names = dict(module.named_parameters())
    _check(module, names)
    given = _Given(module, names, *_arguments(example_input, kwargs))
    with _as_it_was():
        method, other, builder = _first(given)
        graph = _finished(builder, method, given)
        if graph.unplaced:
            graph = _completed(graph, given, method, other)
    if strict and graph.unplaced:
        listed = "; ".join(f"{name}: {reason}" for name, reason in graph.unplaced.items())
        raise ValueError(f"{len(graph.unplaced)} parameters have no place in the graph ({listed}); pass `strict=False`")
    return graph


def _first(given: _Given) -> tuple[str, bool, Builder]:
    """The first way to run the module that works: without storage, with fake devices, for real; in either mode."""
    errors: dict[tuple[str, bool], Exception] = {}
    scripted = any(isinstance(part, torch.jit.ScriptModule) for part in given.module.modules())
    for method in METHODS[-1:] if scripted else METHODS:  # compiled code shows its operators on real tensors alone
        for other in (False, True):
            try:
                builder = _seen(given, method, other)
                errors.clear()  # their tracebacks would keep the copies alive
                return method, other, builder
            except Exception as failure:
                _log.info("%s of %s, other mode %s, failed: %r", method, given.kind, other, failure)
                errors[method, other] = failure
    # The error of the module as it is, unless it has no values to run with.
    without_values = any(tensor.is_meta for tensor in given.names.values()) and not scripted
    error = errors["meta" if without_values else "real", False]
    if isinstance(error, _UnseenError):
        raise ValueError(
            f"the graph of `module` ({given.kind}) cannot be made: {error}; does its forward pass run in other threads "
            "or leave torch? Run it in the thread that called it"
        ) from error
    raise ValueError(
        f"`module` ({given.kind}) cannot run on `example_input` ({given}): "
        f"{type(error).__name__}: {error}; give an input as its forward pass takes it"
    ) from error


def _seen(given: _Given, method: str, other: bool) -> Builder:
    """One run; a second one with every operator watched, if something came out of code that shows no functions."""
    builder, unknown, blind = _trace(given, method, other)
    if unknown and method != "fake":
        try:
            builder, _, blind = _trace(given, method, other, watch=True)
        except Exception as failure:
            _log.info("watching the operators of %s failed: %r", given.kind, failure)
    if blind:
        raise _UnseenError("nothing that it returns comes from functions of torch that could be seen")
    return builder


class _UnseenError(Exception):
    """The module ran, but out of sight."""


def _check(module: nn.Module, names: Mapping[str, torch.Tensor]) -> None:
    if not names:
        raise ValueError(f"`module` ({type(module).__name__}) has no parameters; there is nothing to make a graph of")
    for name, tensor in names.items():
        if is_lazy(tensor):
            raise ValueError(f"parameter `{name}` has no shape yet; run the module once before")


def _arguments(example: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    keywords = dict(kwargs or {})
    if isinstance(example, Mapping):
        return (), {**{str(key): value for key, value in example.items()}, **keywords}
    return (tuple(example), keywords) if isinstance(example, tuple) else ((example,), keywords)


@contextmanager
def _as_it_was() -> Generator[None]:
    """Random generators and warnings as before, whatever happens inside."""
    python, numpy, own = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(own)
        if devices:
            torch.cuda.set_rng_state_all(devices)


def _completed(graph: Graph, given: _Given, method: str, other: bool) -> Graph:
    """The graph with what only the other mode shows."""
    try:
        builder = _seen(given, method, not other)
    except Exception as failure:
        _log.info("%s does not run in the other mode: %r", given.kind, failure)
        return graph
    return unite(graph, _finished(builder, method, given), given.shapes)


def _finished(builder: Builder, method: str, given: _Given) -> Graph:
    missing = {name: _APART if name in builder.used else _UNUSED for name in given.names if name not in builder.placed}
    return builder.finish(method, missing)


def _trace(given: _Given, method: str, other: bool, *, watch: bool = False) -> tuple[Builder, bool, bool]:
    """Run a copy of the module and note what it does.

    Returns:
        What was noted; whether a tensor came from where nobody looked; whether all that is returned did.
    """
    with ExitStack() as stack:
        if method == "fake":
            from torch._subclasses.fake_tensor import FakeTensorMode

            fake = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            shadows = Shadows(lambda tensor: fake.from_tensor(tensor.detach(), static_shapes=True))
        elif method == "meta":
            shadows = Shadows(_bare, "meta")
        else:
            shadows = Shadows(lambda tensor: tensor.detach().clone())
            _seed()
        shadow = shadows.module(given.module)
        if other:
            shadow.train(not given.module.training)
        builder = Builder(given.shapes)
        for tensor in shadows.memo.values():
            if isinstance(tensor, torch.Tensor):
                assign(tensor, CONSTANT)
        for name, tensor in shadow.named_parameters():
            assign(tensor, Value(parameters=(name,)))
        args, keywords = shadows.value(given.args), shadows.value(given.keywords)
        _name_inputs(builder, args, keywords)
        path: list[str] = []
        _follow(shadow, path)
        recorder = Recorder(builder, shadows.memo, path, meta=method == "meta")
        if watch:
            stack.enter_context(Watch(recorder))
        with recorder:
            output = shadow(*args, **keywords)
        _name_outputs(builder, output)
        returned = list(_returned(output))
        unknown = recorder.unknown or not all(hasattr(tensor, "_trivet_value") for tensor in returned)
        return builder, unknown, unknown and bool(returned) and not builder.outputs


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def _seed() -> None:
    """Chance decides the same way each time where a module that runs for real depends on it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _name_inputs(builder: Builder, args: Any, keywords: Mapping[str, Any]) -> None:
    """A node `input` for every tensor that is given."""
    given = [("input", args), *keywords.items()]
    for name, content in given:
        for tensor in tensors_in(content):
            if getattr(tensor, "_trivet_value", None) is None:
                index = builder.add("input", (), name=name, output=tuple(tensor.shape))
                builder.inputs.append(index)
                assign(tensor, Value(frozenset([index])))


def _name_outputs(builder: Builder, output: Any) -> None:
    for tensor in _returned(output):
        value = getattr(tensor, "_trivet_value", CONSTANT)
        if value.parameters:
            value = Value(builder.place("raw", value.parameters, frozenset()))
        builder.outputs |= value.sources


def _returned(content: Any) -> Iterator[torch.Tensor]:
    if is_dataclass(content) and not isinstance(content, (type, Mapping)):
        for entry in fields(content):
            yield from _returned(getattr(content, entry.name, None))
    elif isinstance(content, (list, tuple)):
        for item in content:
            yield from _returned(item)
    elif isinstance(content, Mapping):
        for item in content.values():
            yield from _returned(item)
    elif isinstance(content, torch.Tensor):
        yield content


def _follow(shadow: nn.Module, path: list[str]) -> None:
    """Keep the path of the module that runs on top of a stack."""

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        path.pop()

    for name, part in shadow.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            continue

        def enter(module: nn.Module, args: Any, _name: str = name) -> None:
            path.append(_name)

        part._forward_pre_hooks[-1] = enter
        part._forward_hooks[-1] = leave
