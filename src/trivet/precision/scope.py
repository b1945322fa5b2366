"""Functional calls inside a module's own forward: watched, and computed at few bits.

`ScopedForward` covers the forward of a module that multiplies by calling functions (`x @ y`,
`functional.scaled_dot_product_attention`, `functional.linear`, an LSTM's kernel, …). While the module runs, a torch
function mode hands each such call to the rule for it (`products.py`, `attention.py`, `recurrent.py`). A call belongs to
the innermost covered module; plain layers inside keep their own, shorter way.

A site is made when a call is first seen and named after module and product, `decoder.attention:matmul#2` being the
second matmul of one forward pass. Under `torch.compile` making a site breaks the graph once; run one forward pass
before compiling to avoid that.

Not covered: multiplications hidden in compiled extensions or in custom autograd functions; sparse products; a closure
that multiplies and is recomputed by activation checkpointing (checkpoint a module instead).
"""

from __future__ import annotations

import inspect
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from trivet.precision.layers import PlainForward, device_of, make_site
from trivet.precision.products import Product
from trivet.precision.quantizer import Quantizer
from trivet.precision.rules import RULES
from trivet.precision.sites import Pass, Site, pass_of
from trivet.precision.state import ModelState

SINGLE = (nn.Linear, nn.modules.conv._ConvNd)
"""Layers of one product."""


class Interceptor(TorchFunctionMode):
    """Hands the products among the functional calls of the running scope to their rules."""

    def __init__(self, state: ModelState) -> None:
        super().__init__()
        self.state = state

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        scope = self.state.scope
        found = None if scope is None else RULES.get(getattr(func, "__name__", ""))
        if scope is None or found is None:
            return func(*args, **(kwargs or {}))
        rule, name = found
        self.state.scope = None
        try:
            return rule(scope, name, func, args, kwargs or {})
        finally:
            self.state.scope = scope


class ScopedForward:
    """Forward of a module whose functional calls are quantized, or only counted."""

    def __init__(self, module: nn.Module, name: str, state: ModelState, quantizer: Quantizer | None) -> None:
        self.module = module
        self.name = name
        """Qualified name of the module when it was quantized."""
        self.state = state
        self.quantizer = quantizer
        """None for a scope that only counts."""
        self.wrapped: Any = vars(module).get("forward")
        """A forward that another library has given the instance, and that this one runs; None for that of the class."""
        self.sites: dict[str, Site] = {}
        """Sites by label."""
        self.inside: list[PlainForward] = []
        """Covers of plain layers below the module, whose weights it may use in functional calls."""
        self.used: dict[str, int] = {}
        """How often each label has been used in this forward pass."""
        self.with_gradients = False
        """Whether gradients were enabled when this forward pass began."""

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the module's own forward: trainers read from it which columns of the data a model takes."""
        return inspect.signature(MethodType(type(self.module).forward, self.module))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module as its class says, watching."""
        state = self.state
        outer, used, watched = state.scope, self.used, state.intercepting
        state.scope = self
        fresh: dict[str, int] = {}
        self.used = fresh
        self.with_gradients = torch.is_grad_enabled()
        try:
            if watched:
                return self.run(*args, **kwargs)
            state.intercepting = True
            with Interceptor(state):
                return self.run(*args, **kwargs)
        finally:
            state.scope, self.used, state.intercepting = outer, used, watched

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module as if it were not covered."""
        if self.wrapped is not None:
            return self.wrapped(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    def watch(self) -> Interceptor:
        """Watch functional calls inside a `with` block."""
        return Interceptor(self.state)

    def site(self, label: str, *, weighted: bool = True) -> Site:
        """The site of the next product of that label in this forward pass."""
        count = self.used.get(label, 0) + 1
        self.used[label] = count
        if count > 1:
            label = f"{label}#{count}"
        site = self.sites.get(label)
        if site is None:
            site = self.add_site(label, weighted)
        if self.with_gradients and not torch.is_grad_enabled():
            site.quantizer = None  # a constant of the module, such as the angles of rotary positions: not trained
        return site

    @torch.compiler.disable
    def add_site(self, label: str, weighted: bool = True) -> Site:
        """Make a site."""
        site = make_site(self.name, label, self.module, self.state, self.quantizer, device_of(self.module))
        site.weighted = weighted
        self.sites[label] = site
        return site

    def label_of(self, product: Product, weight: Any) -> str:
        """What to call a product here: nothing where it is the only one of a layer."""
        module = self.module
        if isinstance(module, nn.MultiheadAttention):
            if not product.layer:
                return "pv" if "qk" in self.used else "qk"
            return "out_proj" if weight is module.out_proj._parameters.get("weight") else "in_proj"
        return "" if isinstance(module, SINGLE) and product.layer else product.label

    def site_of_weight(self, weight: Any) -> Site | None:
        """The site of the plain layer below this module that owns a weight, if one does."""
        for cover in self.inside:
            if cover.module._parameters.get("weight") is weight:
                return cover.site
        return None

    def current_pass(self) -> Pass:
        """What kind of pass this is."""
        published = self.quantizer is not None and self.quantizer.published
        return pass_of(self.module, self.state, published=published)
