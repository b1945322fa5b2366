"""The diagnosis of a predicted network as one self-contained HTML page, from the plain values of `Diagnosis.to_dict`.

The page has the style, the drawing library and the rules of a study's report: no request at all, light and dark, every
name escaped. Nothing here imports torch.

Not covered: measuring; see `trivet.ghn.diagnose`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from trivet.report import drawing as d
from trivet.report.build import chip, glue, json_for_script
from trivet.report.bundle import javascript
from trivet.report.drawing import Rows
from trivet.report.numbers import MISSING, count, interval, number
from trivet.report.styles import ArmStyle, arm_styles
from trivet.report.tables import Table

Content = Mapping[str, Any]
KINDS = {"random": "a random draw", "zeros": "zeros", "twin": "its trained twin"}
"""Replacements of a layer, as the page names them."""
DRAWN = 40
"""Most layers in the chart; the tables hold all."""
SLOT = 10
"""Pixels of a bar."""


def render_diagnosis(content: Content, about: Mapping[str, str]) -> str:
    """The page, as one string.

    Args:
        content: `Diagnosis.to_dict()`, or the same read from JSON.
        about: `network`, `ghn`, `data` and `command`: what was diagnosed, and what to type to do it again.
    """
    from jinja2 import Environment

    from trivet import __version__

    files = resources.files("trivet.report")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["glue"] = glue
    template = environment.from_string(files.joinpath("diagnosis.html.j2").read_text(encoding="utf-8"))
    kinds = [kind for kind in KINDS if any(layer[kind] for layer in content["layers"])]
    styles = arm_styles(list(KINDS.values()))
    shown = drawn_layers(content["layers"])
    specs = {"sensitivity": sensitivity_chart(shown, kinds, styles)} if shown else {}
    return template.render(
        c=content,
        about=about,
        version=__version__,
        style=files.joinpath("page.css").read_text(encoding="utf-8"),
        script=files.joinpath("page.js").read_text(encoding="utf-8"),
        bundle=javascript(),
        specs=specs,
        specs_json=json_for_script(specs),
        legend=[(chip(styles[KINDS[kind]]), KINDS[kind]) for kind in kinds],
        verdicts=_verdicts(content),
        drawn=len(shown),
        accuracy=accuracy_text(content),
        number=number,
        images=count(content["images"], "image"),
        draws=count(content["draws"], "Kaiming draw"),
        sensitivity_table=sensitivity_table(content, kinds).to_html(),
        layers_table=layers_table(content).to_html(),
        neighbors_table=neighbors_table(content).to_html(),
        kept_table=kept_table(content).to_html(),
    )


def accuracy_text(content: Content) -> str:
    """Accuracy as predicted, with its standard error.

    Examples:
        >>> accuracy_text({"accuracy": 0.5, "images": 100})
        '0.500 ± 0.050'
    """
    accuracy = content["accuracy"]
    return f"{number(accuracy, 3)} ± {number(math.sqrt(accuracy * (1 - accuracy) / content['images']), 3)}"


def drawn_layers(layers: Sequence[Content]) -> list[Content]:
    """The layers whose replacement changes accuracy most, in the order of the network."""
    ranked = sorted(
        range(len(layers)), key=lambda i: -max((abs(c["accuracy"]) for c in _changes(layers[i])), default=0)
    )
    return [layers[i] for i in sorted(ranked[:DRAWN])]


def _changes(layer: Content) -> list[Content]:
    return [layer[kind] for kind in KINDS if layer[kind]]


def _verdicts(content: Content) -> list[dict[str, str]]:
    """Badge, name and numbers of each culprit; one row that says so when there is none."""
    before = content["accuracy"]
    rows = []
    for one in content["culprits"]:
        change = one["change"]
        sentence = (
            f"Replacing it by {KINDS[one['replacement']]} raises accuracy from {number(before, 3)} to "
            f"{number(one['accuracy'], 3)}: {number(change['accuracy'], 3, signed=True)}, simultaneous 95 % interval "
            f"{interval(change['low'], change['high'], 3, signed=True)}."
        )
        rows.append({"badge": "breaks", "look": "undecided", "layer": one["layer"], "sentence": sentence})
    return rows or [{"badge": "no culprit", "look": "different", "layer": "", "sentence": content["verdict"]}]


def sensitivity_chart(
    layers: Sequence[Content], kinds: Sequence[str], styles: Mapping[str, ArmStyle]
) -> dict[str, Any]:
    """One group of bars a layer: the change of accuracy when it alone is replaced, with its interval.

    Args:
        layers: In the order they are drawn.
        kinds: Replacements to draw.
        styles: Look of each replacement, by its name on the page.
    """
    import altair as alt

    names = [layer["name"] for layer in layers]
    labels = [KINDS[kind] for kind in kinds]
    bars: Rows = [
        {"layer": layer["name"], "arm": KINDS[kind], "value": layer[kind]["accuracy"], "low": layer[kind]["low"],
         "high": layer[kind]["high"], "loss": _finite(layer[kind]["loss"])}
        for layer in layers for kind in kinds if layer[kind]
    ]  # fmt: skip
    heads: Rows = [{"layer": name, "arm": ""} for name in names]
    axis = alt.Axis(tickCount=6, orient="top", format="+.2~f", labelExpr="datum.value == 0 ? '0' : datum.label")
    scale = alt.Scale(zero=True, nice=True)
    x = alt.X("value:Q", title="change of accuracy when replaced", scale=scale, axis=axis)
    y = alt.Y("layer:N", sort=None, axis=None, scale=alt.Scale(domain=names, paddingInner=0.18, paddingOuter=0.05))
    slot = alt.YOffset("arm:N", bandPosition=0.5, scale=alt.Scale(domain=["", *labels], paddingInner=0.15))
    tips = [d.tip("layer:N", "layer"), d.tip("arm:N", "replaced by"), d.tip("value:Q", "change of accuracy")]
    tips += [d.tip("low:Q", "95 % from"), d.tip("high:Q", "to"), d.tip("loss:Q", "change of loss")]
    base = alt.Chart(alt.NamedData("bars"))
    bar = base.mark_bar(opacity=0.85).encode(x=x, y=y, yOffset=slot, color=d.color(labels, styles), tooltip=tips)
    line = base.mark_rule(color=d.INK, strokeWidth=1).encode(
        x=alt.X("low:Q"), x2="high:Q", y=y, yOffset=slot, tooltip=tips
    )
    zero = alt.Chart(alt.NamedData("zero")).mark_rule(color=d.INK, opacity=0.75).encode(x=x)
    text = alt.Chart(alt.NamedData("heads")).mark_text(align="left", baseline="middle", fontSize=11.5, limit=320)
    text = text.encode(x=alt.value(4), y=y, yOffset=slot, text="layer:N")
    height = round(SLOT * (len(labels) + 1.4) * 1.25 * max(1, len(names)))
    return d.finish(
        alt.layer(zero, bar, line, text), height, "Change of accuracy when a layer is replaced", bars=bars, heads=heads,
        zero=[{"value": 0}],
    )  # fmt: skip


def sensitivity_table(content: Content, kinds: Sequence[str]) -> Table:
    """What the network loses or gains when a layer is replaced."""
    headers = ["layer"]
    for kind in kinds:
        headers += [f"Δ accuracy: {KINDS[kind].removeprefix('a ').removeprefix('its ')}", "Δ loss"]
    rows = []
    for layer in content["layers"]:
        cells = [layer["name"]]
        for kind in kinds:
            change = layer[kind]
            ends = interval(change["low"], change["high"], 3, signed=True)
            cells += [f"{number(change['accuracy'], 3, signed=True)} {ends}", number(change["loss"], 2, signed=True)]
        rows.append(tuple(cells))
    notes = (
        f"Differences from the network as predicted: accuracy over {count(content['images'], 'image')}, loss in nats; "
        f"a random draw is the mean of {content['draws']}. Intervals hold together with 95 %: normal approximation "
        "over images, paired, Bonferroni over all layers and replacements, widened to what every single draw changed.",
    )
    return Table(title="Sensitivity", headers=tuple(headers), rows=tuple(rows), notes=notes,
                 numeric=frozenset(range(1, len(headers))))  # fmt: skip


def layers_table(content: Content) -> Table:
    """What was predicted for each layer, and what passes through it."""
    headers = ("layer", "operation", "shape", "norm", "rank", "random draw’s", "distinct rows", "output SD",
               "dead inputs", "scale", "bias")  # fmt: skip
    rows = [
        (
            layer["name"], ", ".join(layer["ops"]), "×".join(map(str, layer["shape"])) or "1", number(layer["norm"], 2),
            _rank(layer), number(layer["random_rank"], 1),
            MISSING if layer["rows"] is None else f"{layer['distinct_rows']} of {layer['rows']}",
            number(layer["output_std"]), _percent(layer["dead_inputs"]),
            _spread(layer["scale"]), _spread(layer["bias"]),
        )
        for layer in content["layers"]
    ]  # fmt: skip
    notes = (
        "norm: standard deviation of the weight over √(2 / fan-in), Kaiming's. rank: effective rank, exp of the "
        "entropy of the normalized singular values (Roy & Vetterli 2007), of the weight as outputs × inputs·kernel. "
        "output SD: over images, channels and places. dead inputs: channels that reach the layer as zero for every "
        "image. scale, bias: mean (SD).",
    )
    return Table(
        title="Layers", headers=headers, rows=tuple(rows), numeric=frozenset(range(3, len(headers))), notes=notes
    )


def neighbors_table(content: Content) -> Table:
    """The nearest training architectures."""
    rows = tuple((one["name"], number(one["similarity"], 4)) for one in content["neighbors"])
    return Table(title="Nearest training architectures", headers=("architecture", "cosine"), rows=rows,
                 numeric=frozenset({1}))  # fmt: skip


def kept_table(content: Content) -> Table:
    """Parameters that were not predicted."""
    rows = tuple(content["kept"].items())
    return Table(title="Not predicted", headers=("tensor", "why"), rows=rows)


def _rank(layer: Content) -> str:
    return MISSING if layer["max_rank"] is None else f"{number(layer['effective_rank'], 1)} of {layer['max_rank']}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f} %"


def _spread(value: Content | None) -> str:
    return MISSING if value is None else f"{number(value['mean'], 2)} ({number(value['deviation'], 2)})"
