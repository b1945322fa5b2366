"""Make the layers of any model compute at few bits, in place, and undo it.

    quantize_(model)            # class, parameter names, state_dict and hooks of every module stay as they are
    dequantize_(model)          # the model as it was

By default everything that multiplies is quantized: linear, convolutional, transposed convolutional, bilinear and
recurrent layers, attention, and products that a module calls as functions. Norms, embeddings and the final classifier
stay in full precision; the classifier is the last Linear layer, in the order of the model's modules, when there is
anything else to quantize. `filter_fn(module, name)` decides instead when it is given; `default_filter(model)` is what
it replaces.

Until a `PrecisionController` takes over, a quantized model computes at 8 bits.

Not covered: see `discover.py`, `scope.py` and `layers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn
from torch.nn.parameter import UninitializedParameter

from trivet.core.errors import TrivetError
from trivet.precision.discover import EMBEDDINGS, GUARDED, candidates, is_layer
from trivet.precision.layers import PlainForward, device_of, is_plain, make_site
from trivet.precision.quantizer import AffineQuantizer, PublishedQuantizer, Quantizer
from trivet.precision.scope import ScopedForward
from trivet.precision.sites import Site
from trivet.precision.state import ModelState

Filter = Callable[[nn.Module, str], bool]
"""Decides by module and qualified name whether it is quantized."""

Cover = PlainForward | ScopedForward
"""What covers the forward of a module."""


def quantize_(model: nn.Module, filter_fn: Filter | None = None, *, quantizer: str = "default") -> nn.Module:
    """Make what multiplies in a model compute with quantized weights, inputs and output gradients, in place.

    Args:
        model: Any module; a single layer is quantized itself.
        filter_fn: `filter_fn(module, name)` → whether to quantize this module; asked for every layer that multiplies,
            for embeddings, and for every module whose own code multiplies. Left out: `default_filter(model)`.
        quantizer: `default` (zero is exact, finite ranges) or `published` (as the reference code).

    Returns:
        The same model.

    Raises:
        TrivetError: The model, or a part of it, is quantized already.
        ValueError: There is nothing to quantize, no quantizer has that name, or a lazy layer has no weights yet.

    Examples:
        >>> model = quantize_(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
        >>> [site.name for site in quantized_sites(model)], type(model[0]).__name__
        (['0'], 'Linear')
    """
    if quantizer not in ("default", "published"):
        raise ValueError(f"`quantizer={quantizer!r}` must be 'default' or 'published'")
    taken = next(iter(covers(model)), None)
    if taken is not None:
        raise TrivetError("the model is quantized already, or a part of it is; call dequantize_(model) first")
    found = candidates(model)
    chosen = chosen_layers(model, filter_fn)
    if not chosen:
        raise ValueError(
            "the model has nothing to quantize: no layer or module that multiplies"
            + (" for which filter_fn returns True" if filter_fn else "")
        )
    lazy = [
        name for name, module in found.items() for p in module.parameters() if isinstance(p, UninitializedParameter)
    ]
    if lazy:
        raise ValueError(f"lazy layer {lazy[0]!r} has no weights yet; run the model once before quantizing it")
    cover_(model, chosen, PublishedQuantizer() if quantizer == "published" else AffineQuantizer())
    return model


def dequantize_(model: nn.Module) -> nn.Module:
    """Undo `quantize_`: every module is again exactly what it was.

    Returns:
        The same model.

    Raises:
        TrivetError: The model is not quantized.

    Examples:
        >>> model = quantize_(nn.Linear(2, 2))
        >>> "forward" in vars(dequantize_(model))
        False
    """
    found = covers(model)
    if not found:
        raise TrivetError("the model is not quantized; call quantize_(model) first")
    for cover in found.values():
        state_of(cover).claims += 1
        del vars(cover.module)["forward"]
        if isinstance(cover, ScopedForward) and cover.wrapped is not None:
            vars(cover.module)["forward"] = cover.wrapped
    return model


def default_filter(model: nn.Module) -> Filter:
    """What `quantize_` does without a filter: everything but embeddings and the final classifier.

    Examples:
        >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 2))
        >>> usual = default_filter(model)
        >>> model = quantize_(model, lambda module, name: usual(module, name) or name == "2")
        >>> [site.name for site in quantized_sites(model)]
        ['1', '2']
    """
    found = [module for module in candidates(model).values() if not isinstance(module, EMBEDDINGS)]
    linear = [module for module in found if isinstance(module, nn.Linear) and is_plain(module)]
    # The tied classifier of a language model is the only Linear layer, but not the only thing to quantize.
    classifier = linear[-1] if linear and len(found) > 1 else None
    return lambda module, name: module is not classifier and not isinstance(module, EMBEDDINGS)


def chosen_layers(model: nn.Module, filter_fn: Filter | None = None) -> set[str]:
    """Names of the layers and modules that `quantize_` would quantize.

    Examples:
        >>> sorted(chosen_layers(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))))
        ['0']
    """
    wanted = filter_fn or default_filter(model)
    return {name for name, module in candidates(model).items() if wanted(module, name)}


def cover_(model: nn.Module, chosen: set[str], quantizer: Quantizer) -> ModelState:
    """Cover everything that multiplies: what is chosen is quantized, the rest counted.

    Modules whose `forward` somebody else has covered already are left out, unless it is known to run the class's own:
    Accelerate covers that of a whole model for autocast, and keeps the original beside it.
    """
    found = candidates(model)
    guarded = {name: module for name, module in model.named_modules() if isinstance(module, GUARDED)}
    found = {name: module for name, module in (found | guarded).items() if not _is_taken(module)}
    state = ModelState({device_of(module) for module in found.values()})
    for name, module in found.items():
        kind = quantizer if name in chosen else None
        if is_plain(module):
            cover: Cover = PlainForward(module, make_site(name, "", module, state, kind, device_of(module)))  # pyrefly: ignore[bad-argument-type]
        else:
            cover = ScopedForward(module, name, state, kind)
            for label in expected_labels(module):
                cover.add_site(label)
        vars(module)["forward"] = cover
    for cover in covers(model).values():
        if isinstance(cover, ScopedForward):
            inner = (vars(module).get("forward") for module in cover.module.modules())
            cover.inside = [part for part in inner if isinstance(part, PlainForward)]
    return state


def _is_taken(module: nn.Module) -> bool:
    return "forward" in vars(module) and (is_plain(module) or "_original_forward" not in vars(module))


def expected_labels(module: nn.Module) -> list[str]:
    """Products that a layer is known to have, so that their sites are there before the first pass."""
    if isinstance(module, nn.RNNBase):
        parts = ("ih", "hh", "hr") if getattr(module, "proj_size", 0) else ("ih", "hh")
        ends = ("", "_reverse") if module.bidirectional else ("",)
        return [f"{part}_l{k}{end}" for k in range(module.num_layers) for end in ends for part in parts]
    if isinstance(module, nn.RNNCellBase):
        return ["ih", "hh"]
    if isinstance(module, nn.MultiheadAttention):
        return ["in_proj", "out_proj"]
    return [""] if is_layer(module) else []


def covers(model: nn.Module) -> dict[str, Cover]:
    """Covers of a quantized model by the qualified name their modules had then; none for another model."""
    found: dict[str, Cover] = {}
    for module in model.modules():
        forward = vars(module).get("forward")
        if isinstance(forward, PlainForward):
            found[forward.site.layer] = forward
        elif isinstance(forward, ScopedForward):
            found[forward.name] = forward
    return found


def state_of(cover: Cover) -> ModelState:
    """What the covers of one model share."""
    return cover.site.state if isinstance(cover, PlainForward) else cover.state


def is_chosen(cover: Cover) -> bool:
    """Whether a cover quantizes, rather than only counts."""
    return (cover.site if isinstance(cover, PlainForward) else cover).quantizer is not None


def sites(model: nn.Module) -> Iterator[tuple[Site, nn.Module]]:
    """Sites of a quantized model with their modules, in the order of the model; none for another model."""
    for cover in covers(model).values():
        for site in cover.sites.values():
            yield site, cover.module


def quantized_sites(model: nn.Module) -> list[Site]:
    """Sites that quantize, without those that only count."""
    return [site for site, _ in sites(model) if site.quantizer is not None]
