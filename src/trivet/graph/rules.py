"""What the call of a function means for the graph: a table of rules that anyone may add to.

A rule gets a `Call` and says by `call.weight`, `call.node` and `call.join` what the result comes from. A function
without a rule passes on what it was given; a parameter that it meets becomes a node `raw`.

The rules for torch's own functions are in `layers.py`, `joints.py` and `attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from trivet.graph.build import Builder
from trivet.graph.values import CONSTANT, Value, merge

_HOPS = 2
"""Weights and biases that scores may pass on their way to a softmax, or attention on its way to the values."""

Rule = Callable[["Call"], Value | None]
"""What a rule returns is the origin of every tensor in the call's output; None: what it was given."""


class Entry:
    """A rule, and whether it is asked even where no activation takes part."""

    __slots__ = ("always", "rule")

    def __init__(self, rule: Rule, always: bool) -> None:
        self.rule = rule
        self.always = always


BY_FUNCTION: dict[Any, Entry] = {}
BY_NAME: dict[str, Entry] = {}


def register_rule(function: Any) -> Callable[[Rule], Rule]:
    """Teach the graph a function: a decorator for the rule that says what a call of it means.

    Args:
        function: A function that torch can intercept: of torch, of `torch.nn.functional`, a method of `torch.Tensor`,
            a custom operator (`torch.ops.mylib.myop`), or one that calls `torch.overrides.handle_torch_function`. A
            later rule for the same function replaces an earlier one.

    Returns:
        A decorator that gives the rule back unchanged.

    Raises:
        TypeError: `function` cannot be called.

    Examples:
        >>> @register_rule(torch.lerp)
        ... def mixture(call):
        ...     return call.node("sum", call.value(call.argument(0, "input")), call.value(call.argument(1, "end")))
        >>> net = torch.nn.Linear(2, 2)
        >>> net.forward = lambda x: torch.lerp(torch.nn.functional.linear(x, net.weight, net.bias), x, 0.5)
        >>> from trivet.graph import graph_of
        >>> [node.op for node in graph_of(net, torch.zeros(1, 2)).nodes]
        ['input', 'conv', 'bias', 'sum']
        >>> del BY_FUNCTION[torch.lerp]
    """
    if not callable(function):
        raise TypeError(f"`function={function!r}` must be something that is called, such as torch.ops.mylib.myop")

    def decorate(rule: Rule) -> Rule:
        BY_FUNCTION[function] = Entry(rule, True)
        return rule

    return decorate


def named(*names: str, always: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for functions and methods of torch by their names, in-place forms included."""

    def decorate(rule: Rule) -> Rule:
        for name in names:
            BY_NAME[name] = Entry(rule, always)
        return rule

    return decorate


def entry_of(function: Any) -> Entry | None:
    """The rule for a function, if there is one."""
    if function in BY_FUNCTION:
        return BY_FUNCTION[function]
    packet = getattr(function, "overloadpacket", function)  # an overload of an operator, and all its overloads
    if packet in BY_FUNCTION:
        return BY_FUNCTION[packet]
    qualified = getattr(packet, "_qualified_op_name", "")
    return BY_NAME.get(qualified) or BY_NAME.get(name_of(function))


def name_of(function: Any) -> str:
    """Plain name of a function of torch: `add` for `Tensor.__iadd__`, `torch.add` and `aten::add_.Tensor` alike."""
    qualified = getattr(getattr(function, "overloadpacket", function), "_qualified_op_name", "")
    if qualified:
        space, _, name = qualified.partition("::")
        if space != "aten":
            return qualified
    else:
        name = getattr(function, "__name__", "")
        module = getattr(function, "__module__", None)
        if module is not None and not str(module).startswith("torch"):
            return f"{module}::{name}"
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        return {"iadd": "add", "radd": "add", "imul": "mul", "rmul": "mul", "isub": "sub", "itruediv": "div"}.get(
            name, name
        )
    return name.rstrip("_") if not name.startswith("_") else name.rstrip("_").removeprefix("_")


class Call:
    """One call of a function, as a rule sees it."""

    __slots__ = ("_builder", "args", "kwargs", "module", "output", "pairs")

    def __init__(
        self,
        builder: Builder,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
        module: str,
        pairs: list[tuple[torch.Tensor, Value]],
    ) -> None:
        self._builder = builder
        self.args = args
        """Positional arguments."""
        self.kwargs = kwargs
        """Keyword arguments."""
        self.output = output
        """What the function returned; tensors may have no storage, so only their shapes count."""
        self.module = module
        """Path of the module that calls."""
        self.pairs = pairs
        """Tensors among the arguments and their origins, where they have one."""

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its position or its name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def value(self, tensor: Any) -> Value:
        """Origin of a tensor (of all tensors, for a list of them); anything else comes from nowhere."""
        if isinstance(tensor, (list, tuple)):
            return merge(self.value(item) for item in tensor)
        return getattr(tensor, "_trivet_value", CONSTANT) if isinstance(tensor, torch.Tensor) else CONSTANT

    def parameter_shape(self, name: str) -> tuple[int, ...]:
        """Shape of a parameter of the module."""
        return self._builder.shapes[name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first tensor that was returned."""
        return next((tuple(tensor.shape) for tensor in tensors_in(self.output)), ())

    def activation(self, value: Value) -> Value:
        """The value itself, or a node `raw` for parameters that are used as if they were activations."""
        if not value.parameters:
            return value
        return Value(self._builder.place("raw", value.parameters, frozenset(), module=self.module))

    def weight(
        self, op: str, weight: Value, *before: Value, macs: int = 0, shape: tuple[int, ...] | None = None
    ) -> Value:
        """Put a weight on the way: a node with its parameters after what it is applied to.

        Args:
            op: The word for the node.
            weight: Origin of the weight. One that comes from activations makes a node `matmul` of both; one that comes
                from nowhere makes none.
            *before: Origins of what it is applied to.
            macs: Multiply-accumulates of the call.
            shape: Shape of what the node produces; default: that of the output.

        Returns:
            The origin of the result.
        """
        source = merge(self.activation(value) for value in before)
        if weight.sources:
            return self.node("matmul", source, weight, macs=macs)
        if not weight.parameters:
            return source
        output = self.shape if shape is None else shape
        found = self._builder.place(op, weight.parameters, source.sources, module=self.module, output=output, macs=macs)
        marks = {key: value for key, value in source.marks.items() if key == "pooled"}
        for key in ("scores", "attention"):
            if key in source.marks and source.marks[key][1] < _HOPS:
                marks[key] = (source.marks[key][0], source.marks[key][1] + 1)
        return Value(found, marks=marks)

    def node(self, op: str, *before: Value, kernel: tuple[int, ...] = (), macs: int = 0, name: str = "") -> Value:
        """A node without parameters after others; returns the origin of the result."""
        source = merge(self.activation(value) for value in before)
        index = self._builder.add(
            op, source.sources, module=self.module, name=name, kernel=kernel, output=self.shape, macs=macs
        )
        return Value(frozenset([index]))

    def join(self, op: str, *before: Value) -> Value:
        """A node where branches meet; none where all come from the same place."""
        active = [self.activation(value) for value in before if value.sources or value.parameters]
        joint = merge(active)
        if len(joint.sources) < 2 or len({value.sources for value in active}) < 2:
            return joint
        made = self.node(op, *active)
        marks = {key: value for key, value in joint.marks.items() if key == "pooled"}
        for key in ("scores", "attention"):  # becomes part of the attention that may follow
            if key in joint.marks:
                marks[key] = (joint.marks[key][0] | made.sources, joint.marks[key][1])
        return Value(made.sources, marks=marks)

    def absorb(self, *indices: int, into: Value) -> None:
        """Count the nodes as parts of another: they are contracted and their products added to its."""
        target = self._builder.drafts[next(iter(into.sources))]
        for index in indices:
            if index not in self._builder.absorbed:
                self._builder.absorbed.add(index)
                target.macs += self._builder.drafts[index].macs

    def extend(self, index: int, value: Value) -> None:
        """Give a node further parameters, such as the shift of a normalization that is written out."""
        self._builder.extend(index, value.parameters)

    def default(self) -> Value:
        """What a function without a rule means: pass on; parameters that meet activations become `raw` nodes."""
        values = [value for _, value in self.pairs]
        joint = merge(values)
        if not joint.sources:
            return joint
        for name in dict.fromkeys(name for value in values for name in value.parameters):
            joint = self.weight("raw", Value(parameters=(name,)), joint)
        return joint


def tensors_in(content: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested lists, tuples and dictionaries."""
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, (list, tuple)):
        for item in content:
            yield from tensors_in(item)
    elif isinstance(content, Mapping):
        for item in content.values():
            yield from tensors_in(item)
