"""`trivet schedule`: what the ten precision schedules look like, what they cost, and a picture of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from trivet.cli.console import console, emit_json, show, table, talk, verb
from trivet.cli.options import check_place
from trivet.cli.plot import side_by_side, sparkline, step_plot

if TYPE_CHECKING:
    from trivet.precision.schedules import PrecisionSchedule

SUFFIXES = (".svg", ".png", ".html")
HERE = "-"
"""What a bare `--plot` stands for: the terminal."""


class ScheduleCommand(TyperCommand):
    """`--plot` takes a file when one follows (anything with a dot or a slash in it), and stands alone otherwise."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, with the value of a bare `--plot` filled in."""
        filled: list[str] = []
        for index, word in enumerate(args):
            filled.append(word)
            following = args[index + 1] if index + 1 < len(args) else ""
            if word == "--plot" and not (("." in following or "/" in following) and not following.startswith("-")):
                filled.append(HERE)
        return super().parse_args(ctx, filled)


@verb
def schedule(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="One schedule, such as RR; all ten by default.")] = "",
    plot: Annotated[
        str,
        typer.Option(
            "--plot", metavar="[FILE]", help="Draw bits over time: in the terminal, or to FILE (.svg, .png, .html)."
        ),
    ] = "",
    q_min: Annotated[int, typer.Option("--q-min", help="Fewest bits.")] = 3,
    q_max: Annotated[int, typer.Option("--q-max", help="Most bits.")] = 8,
    num_cycles: Annotated[int, typer.Option("--num-cycles", help="Cycles in the training.")] = 8,
    steps: Annotated[int, typer.Option("--steps", help="Optimizer steps of the training.")] = 64_000,
    grad_bits: Annotated[int, typer.Option("--grad-bits", help="Bits of the backward pass; 0 means q_max.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the figures and every change of bits as JSON.")] = False,
) -> None:
    """Show the precision schedules: mean bits, cost, group, and bits over time."""
    from trivet.precision.schedules import PrecisionSchedule

    names = [name] if name else list(PrecisionSchedule.names())
    made = {
        each: PrecisionSchedule.named(
            each, q_min=q_min, q_max=q_max, num_cycles=num_cycles, total_steps=steps, odd_cycles="allow"
        )
        for each in names
    }
    figures = sorted((_figures(each, made[each], grad_bits or q_max) for each in names), key=lambda row: row["cost"])
    if plot and plot != HERE:
        target = Path(plot)
        check_place(target, "--plot", SUFFIXES)
        from trivet.cli.schedule_chart import draw

        draw(figures, target, q_min=q_min, q_max=q_max, steps=steps, num_cycles=num_cycles)
        talk(f"drawn to {target}")
    if json:
        emit_json({"q_min": q_min, "q_max": q_max, "num_cycles": num_cycles, "steps": steps, "schedules": figures})
        return
    if plot == HERE or name:
        _print_plots(figures, made, q_min, q_max, steps)
    _print_table(figures, made, q_min, q_max, steps, num_cycles, grad_bits or q_max)


def _figures(name: str, made: PrecisionSchedule, grad_bits: int) -> dict[str, Any]:
    bits = made.bits_array()
    changes = [0, *(index + 1 for index in (bits[1:] != bits[:-1]).nonzero()[0].tolist())]
    static = made.relative_cost(grad_bits=grad_bits, reference=made.q_max)
    return {
        "name": name,
        "group": made.group,
        "mean_bits": float(made.mean_bits),
        "cost": float(made.relative_cost(grad_bits=grad_bits, reference=32)),
        "cost_of_static": float(static),
        "saving": 1 - float(static),
        "at_q_min_first_10_percent": made.share_at(made.q_min, first=0.10),
        "at_q_min_first_25_percent": made.share_at(made.q_min, first=0.25),
        "switches": len(changes) - 1,
        "grad_bits": grad_bits,
        "changes": [[step, int(bits[step])] for step in changes],
    }


def _print_table(
    figures: list[dict[str, Any]],
    made: dict[str, PrecisionSchedule],
    q_min: int,
    q_max: int,
    steps: int,
    num_cycles: int,
    grad_bits: int,
) -> None:
    rows = [
        [
            row["name"],
            row["group"],
            f"{row['mean_bits']:.2f}",
            f"{row['cost']:.2%}",
            f"{row['cost_of_static']:.1%}",
            f"{row['saving']:.1%}",
            f"{row['at_q_min_first_10_percent']:.0%} / {row['at_q_min_first_25_percent']:.0%}",
            sparkline(made[row["name"]].bits_array().tolist(), 32, q_min, q_max),
        ]
        for row in figures
    ]
    static = f"static {q_max}"
    columns = ["schedule", "group", "mean bits", "cost / fp32", f"cost / {static}", "saving"]
    columns += [f"at {q_min} bits, first 10 / 25 %", "bits over time"]
    show(table(columns, rows, left=(0, 1, 7)))
    talk()
    talk(
        f"q_min={q_min} q_max={q_max} num_cycles={num_cycles} steps={steps:,} grad_bits={grad_bits}; counted BitOPs: "
        f"mean (b_f² + 2·b_f·b_g), saving against {static}. BitOPs are not seconds."
    )
    if num_cycles % 2:
        talk(f"num_cycles={num_cycles} is odd: a triangular schedule then ends at q_min, which a study refuses")


def _print_plots(
    figures: list[dict[str, Any]], made: dict[str, PrecisionSchedule], q_min: int, q_max: int, steps: int
) -> None:
    available = min(console().width, 120)
    alone = len(figures) == 1 or available < 76
    width = min(96, available - 6) if alone else available // 2 - 7
    cycles = next(iter(made.values())).num_cycles
    width -= width % cycles if cycles * 4 <= width else 0  # cycles that look alike
    blocks = []
    for row in figures:
        head = f"{row['name']}   {row['mean_bits']:.2f} bits on average, −{row['saving']:.1%} BitOPs ({row['group']})"
        lines = step_plot(made[row["name"]].bits_array().tolist(), width, q_min, q_max, f"step {steps:,}")
        blocks.append([head, *lines, ""])
    if alone:
        print("\n".join(line for block in blocks for line in block))
        return
    for index in range(0, len(blocks), 2):
        right = blocks[index + 1] if index + 1 < len(blocks) else []
        print("\n".join(side_by_side(blocks[index], right, available // 2)))
