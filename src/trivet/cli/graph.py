"""`trivet graph`: the computational graph of a model, as a table or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import emit_json, show, table, talk, verb
from trivet.cli.options import ClassesOption, InputOption, ModelArgument, WidthOption, check_place, image_shape

if TYPE_CHECKING:
    from trivet.graph.graph import Graph


@verb
def graph(
    model: ModelArgument,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Draw it to FILE (.svg, .png, .pdf).")
    ] = None,
    input_: InputOption = "",
    classes: ClassesOption = 0,
    width: WidthOption = 16,
    collapse: Annotated[
        bool | None,
        typer.Option("--collapse/--no-collapse", help="Draw modules that repeat once; by default in large graphs."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the graph as JSON.")] = False,
) -> None:
    """Show what a model computes with: nodes by operation, parameters, multiply-accumulates, or all of it drawn."""
    from trivet.cli.child import ask
    from trivet.graph.draw import check_suffix, draw
    from trivet.graph.graph import Graph
    from trivet.models.names import check_model_name

    check_model_name(model, width=width)
    shape, outputs = image_shape(model, input_, classes)
    if out is not None:
        check_suffix(out)
        check_place(out)
    talk("tracing …")
    request = {"model": model, "width": width, "input": shape, "classes": outputs}
    answer = ask("trivet.cli.graphs", request, "the graph cannot be made")
    made = Graph.from_dict(answer["graph"])
    about = f"{model}, input {'×'.join(map(str, shape))}, {outputs} classes"
    if out is not None:
        draw(made, out, title=about, collapse=collapse)
        talk(f"drawn to {out}")
    content = _content(about, made, answer["unplaced_sizes"])
    if json:
        emit_json({**content, "graph": answer["graph"]})
    elif out is None:
        _print(content)


def _content(about: str, made: Graph, unplaced: dict[str, int]) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    for node in made.nodes:
        row = rows.setdefault(node.op, {"op": node.op, "nodes": 0, "parameters": 0, "macs": 0})
        row["nodes"] += 1
        row["parameters"] += node.size
        row["macs"] += node.macs
    return {
        "about": about,
        "nodes": len(made.nodes),
        "edges": len(made.edges),
        "depth": max(made.depths.tolist(), default=0),
        "parameters": sum(node.size for node in made.nodes) + sum(unplaced.values()),
        "tensors": len(made.parameters) + len(made.unplaced),
        "macs": made.macs,
        "method": made.method,
        "by_op": sorted(rows.values(), key=lambda row: (-row["parameters"], -row["nodes"], row["op"])),
        "unplaced": [
            {"tensor": name, "parameters": unplaced[name], "reason": reason} for name, reason in made.unplaced.items()
        ],
    }


def _print(content: dict[str, Any]) -> None:
    size = f"{content['nodes']:,} nodes, {content['edges']:,} edges, longest path {content['depth']:,}"
    weight = f"{content['parameters']:,} parameters in {content['tensors']:,} tensors"
    macs = f"{content['macs']:,} multiply-accumulates an example and forward pass"
    show(f"{content['about']}: {size}; {weight}, {macs}\n")
    parameters, products = max(content["parameters"], 1), max(content["macs"], 1)
    body = [
        [
            row["op"],
            f"{row['nodes']:,}",
            f"{row['parameters']:,}",
            f"{row['parameters'] / parameters:.1%}",
            f"{row['macs']:,}",
            f"{row['macs'] / products:.1%}",
        ]
        for row in content["by_op"]
    ]
    show(table(["operation", "nodes", "parameters", "share", "MACs", "share"], body))
    if content["unplaced"]:
        show("", "parameter tensors without a node")
        body = [[row["tensor"], f"{row['parameters']:,}", row["reason"]] for row in content["unplaced"]]
        show(table(["tensor", "parameters", "reason"], body, left=(0, 2)))
    else:
        talk("\nevery parameter tensor is in exactly one node; --out FILE.svg draws the graph")
