"""Make the layers of any model compute at few bits, in place, and undo it.

    quantize_(model)            # class, parameter names, state_dict and hooks of every module stay as they are
    dequantize_(model)          # the model as it was

By default every Linear and Conv2d layer is quantized except the final classifier: the last Linear layer of the model,
in the order of its modules, when there are other layers to quantize. Norms, embeddings, attention products and
everything else stay in full precision. This is the choice of the published CIFAR experiments (first convolution and
shortcuts quantized, BatchNorm and final layer not). `filter_fn(module, name)` decides instead when it is given.

Until a `PrecisionController` takes over, a quantized model computes at 8 bits.

Not covered: see `layers.py`; the projections of `nn.MultiheadAttention` are left alone, as it never calls its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from trivet.core.errors import TrivetError
from trivet.precision.layers import COUNTED, CountedForward, QuantizedForward, Site, can_quantize
from trivet.precision.quantizer import AffineQuantizer, PublishedQuantizer
from trivet.precision.state import ModelState

Filter = Callable[[nn.Module, str], bool]
"""Decides by layer and qualified name whether a layer is quantized."""


def quantize_(model: nn.Module, filter_fn: Filter | None = None, *, quantizer: str = "default") -> nn.Module:
    """Make layers of a model compute with quantized weights, inputs and output gradients, in place.

    Args:
        model: Any module; a single Linear or Conv2d layer is quantized itself.
        filter_fn: `filter_fn(module, name)` → whether to quantize this layer; asked for every Linear and Conv2d
            layer. Left out: all but the final classifier.
        quantizer: `default` (zero is exact, finite ranges) or `published` (as the reference code).

    Returns:
        The same model.

    Raises:
        TrivetError: The model, or a part of it, is quantized already.
        ValueError: There is no layer to quantize, or no quantizer has that name.

    Example:
        >>> model = quantize_(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
        >>> [site.name for site in quantized_sites(model)], type(model[0]).__name__
        (['0'], 'Linear')
    """
    if quantizer not in ("default", "published"):
        raise ValueError(f"`quantizer={quantizer!r}` must be 'default' or 'published'")
    taken = next(sites(model), None)
    if taken is not None:
        raise TrivetError(f"the model is quantized already (layer {taken[0].name!r}); call dequantize_(model) first")
    chosen = chosen_layers(model, filter_fn)
    if not chosen:
        raise ValueError(
            "the model has no layer to quantize; allowed: torch.nn.Linear and torch.nn.Conv2d"
            + (" for which filter_fn returns True" if filter_fn else "")
            + ", and their subclasses with the same forward"
        )
    counted = countable_layers(model)
    state = ModelState({_device(module) for module in counted.values()})
    for name, module in counted.items():
        if name in chosen and isinstance(module, (nn.Linear, nn.Conv2d)):
            kind = PublishedQuantizer() if quantizer == "published" else AffineQuantizer()
            vars(module)["forward"] = QuantizedForward(module, kind, Site(name, state, kind, _device(module)))
        else:
            vars(module)["forward"] = CountedForward(module, Site(name, state, None, _device(module)))
    return model


def dequantize_(model: nn.Module) -> nn.Module:
    """Undo `quantize_`: every module is again exactly what it was.

    Returns:
        The same model.

    Raises:
        TrivetError: The model is not quantized.

    Example:
        >>> model = quantize_(nn.Linear(2, 2))
        >>> "forward" in vars(dequantize_(model))
        False
    """
    found = False
    for module in model.modules():
        forward = vars(module).get("forward")
        if isinstance(forward, (QuantizedForward, CountedForward)):
            forward.site.state.claims += 1
            del vars(module)["forward"]
            found = True
    if not found:
        raise TrivetError("the model is not quantized; call quantize_(model) first")
    return model


def chosen_layers(model: nn.Module, filter_fn: Filter | None = None) -> set[str]:
    """Names of the layers that `quantize_` would quantize.

    Example:
        >>> sorted(chosen_layers(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))))
        ['0']
    """
    layers = {name: module for name, module in countable_layers(model).items() if can_quantize(module)}
    if filter_fn is not None:
        return {name for name, module in layers.items() if filter_fn(module, name)}
    names = list(layers)
    linear = [name for name in names if isinstance(layers[name], nn.Linear)]
    if linear and len(names) > 1:
        names.remove(linear[-1])
    return set(names)


def countable_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Layers whose multiply-accumulates are counted, by name.

    A layer whose `forward` somebody has covered already, and the projections inside nn.MultiheadAttention, which
    reads their weights and never calls them, are left out.
    """
    inside = {
        id(part) for module in model.modules() if isinstance(module, nn.MultiheadAttention) for part in module.modules()
    }
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, COUNTED)
        and id(module) not in inside
        and isinstance(vars(module).get("forward"), (QuantizedForward, CountedForward, type(None)))
    }


def sites(model: nn.Module) -> Iterator[tuple[Site, nn.Module]]:
    """Sites of a quantized model with their layers, in the order of its modules; none for another model."""
    for module in model.modules():
        forward = vars(module).get("forward")
        if isinstance(forward, (QuantizedForward, CountedForward)):
            yield forward.site, module


def quantized_sites(model: nn.Module) -> list[Site]:
    """Sites that quantize, without those that only count."""
    return [site for site, _ in sites(model) if site.quantizer is not None]


def _device(module: nn.Module) -> torch.device:
    weight = module.weight
    return weight.device if isinstance(weight, torch.Tensor) else torch.device("cpu")
