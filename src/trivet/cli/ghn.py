"""`trivet ghn`: graph hypernetworks and the networks they learn from."""

from __future__ import annotations

import json as json_
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from trivet.cli import ghn_diagnose, ghn_eval, ghn_rank, ghn_train
from trivet.cli.console import emit_json, show, table, talk, verb
from trivet.core.errors import TrivetError

app = typer.Typer(
    help="Graph hypernetworks: train them, test them, and see the networks they learn from.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class StatisticsError(TrivetError):
    """The process that makes the graphs could not answer."""


@app.callback()
def _top() -> None:
    """Graph hypernetworks: train them, test them, and see the networks they learn from."""


@app.command("stats", short_help="What the networks of DeepNets are like.")
@verb
def stats(
    split: Annotated[str, typer.Option("--split", help="One split; all but `search` by default.")] = "",
    count: Annotated[int, typer.Option("--count", min=1, help="Networks of each split.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the networks.")] = 0,
    small: Annotated[bool, typer.Option("--small", help="Small networks, for training on a CPU.")] = False,
    no_graphs: Annotated[bool, typer.Option("--no-graphs", help="Leave out nodes and paths; quick.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Draw networks of DeepNets and set their figures beside those published for DeepNets-1M."""
    from trivet.ghn.deepnets.splits import PREDEFINED, get_split, split_names

    if split and split != PREDEFINED:
        get_split(split)
    if small and split == PREDEFINED:
        raise ValueError("`--small` does not apply to the split 'predefined', whose networks are fixed; remove it")
    skipped = {"search", *([PREDEFINED] if small else [])}
    splits = [split] if split else [name for name in split_names() if name not in skipped]
    request = {"splits": splits, "count": count, "seed": seed, "small": small, "graphs": not no_graphs}
    rows: list[dict[str, Any]] = []
    for row in _ask(request):
        talk(f"{row['split']}: {row['measured']['count']} networks")
        rows.append(row)
    if json:
        emit_json({"seed": seed, "small": small, "splits": rows})
        return
    show(table(COLUMNS, [cells for row in rows for cells in _cells(row)], left=(0, 1)))
    talk("\nParameters are counted with 10 classes on 32×32 images; ± is the standard deviation over networks.")


def _ask(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Have another process draw the networks, and read its answers as they come."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "trivet.ghn.deepnets.statistics", json_.dumps(request)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        yield from map(json_.loads, process.stdout or ())
        process.wait()
        errors.seek(0)
        words = errors.read().strip().splitlines()
    if process.returncode:
        last = words[-1] if words else f"exit code {process.returncode}"
        raise StatisticsError(f"the networks cannot be measured: {last}")


COLUMNS = ("split", "source", "n", "nodes", "mean ± sd", "edges", "depth", "average path", "parameters", "most", "MACs")


def _cells(row: Mapping[str, Any]) -> list[list[str]]:
    """One line for what was measured and one for what is published."""
    sources = [("here", row["measured"]), ("published", row["published"])]
    return [[row["split"] if source == "here" else "", source, *_figures(found)] for source, found in sources if found]


def _figures(found: Mapping[str, Any]) -> list[str]:
    nodes = "–" if found["nodes_min"] is None else f"{found['nodes_min']}–{found['nodes_max']}"
    spread = "–" if found["nodes_mean"] is None else f"{found['nodes_mean']:.1f} ± {found['nodes_sd']:.1f}"
    return [
        str(found["count"]),
        nodes,
        spread,
        _number(found["edges_mean"], "{:.0f}"),
        _number(found["depth_mean"], "{:.0f}"),
        _number(found["average_path"], "{:.1f}"),
        _number(found["parameters_mean"], "{:.2f} M", 1e6),
        _number(found["parameters_max"], "{:.2f} M", 1e6),
        _number(found["macs_mean"], "{:.0f} M", 1e6),
    ]


def _number(value: float | None, form: str, unit: float = 1.0) -> str:
    return "–" if value is None else form.format(value / unit)


app.command("train", short_help="Train a hypernetwork.")(ghn_train.train)
app.command("eval", short_help="What a hypernetwork's predictions are worth.")(ghn_eval.eval_)
app.command("rank", short_help="Which rankers order unseen networks as training would.")(ghn_rank.rank)
app.command("diagnose", short_help="Which layers of a predicted network break it.")(ghn_diagnose.diagnose)
