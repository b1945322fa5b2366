"""The replay of the retracted study from its folder: seeds one by one, verdicts with and without failures, frames.

    trivet cp gpu-uncertainty && trivet run gpu-uncertainty.yaml
    python benchmarks/replay.py studies/gpu-uncertainty [--name replay-egomotion] [--write docs/gpu-uncertainty.md]
    python benchmarks/replay.py studies/gpu-uncertainty --figure docs/figures/replay-frames.svg

A seed *learns* when its output is constant in no colour at the end (`dead` and `stuck` are 0) in both arms compared.
Verdicts are given over all seeds, which is the planned analysis, and over those that learn, which is not. With `--name
autoencoder` the same tables are made of the autoencoder's study.

Not covered: unfinished studies are shown as they are, with the number of runs that each figure is made of.
"""

import argparse
import base64
import html
from pathlib import Path

import numpy as np
from blocks import show_or_put

from trivet.report.pictures import pictures
from trivet.stats import decide
from trivet.study import Results
from trivet.study.nulls import null_arm_name, rounding

FLAGS = ("dead", "stuck")
BASELINES = {"last_frame_mse": "copy_mse", "test_mse": "mean_mse"}
"""Metric → what doing nothing would have scored."""


def state_of(results: Results, arm: str, seed: int) -> str:
    """`learns`, `dead` or `stuck`."""
    for flag in FLAGS:
        if any(record.metrics.get(flag) for record in results.records if (record.arm, record.seed) == (arm, seed)):
            return flag
    return "learns"


def shared(results: Results, arm: str) -> list[int]:
    """Seeds that have finished in the baseline and in an arm."""
    metric = results.spec.metric.name
    base, other = results.values(metric, results.arms[0]), results.values(metric, arm)
    return [seed for seed in results.spec.seed_list if seed in base and seed in other]


def learning(results: Results, arm: str) -> list[int]:
    """Those of the shared seeds that learn in both."""
    both = (results.arms[0], arm)
    return [seed for seed in shared(results, arm) if all(state_of(results, one, seed) == "learns" for one in both)]


def seeds_table(results: Results) -> list[str]:
    """Every run of every arm, in order of seeds; failures marked."""
    metric = results.spec.metric.name
    values = {arm: results.values(metric, arm) for arm in results.arms}
    base = values[results.arms[0]]
    second = results.arms[1]
    lines = [
        "| seed | " + " | ".join(results.arms) + f" | {second} / {results.arms[0]} |",
        "|---|" + "---|" * (len(results.arms) + 1),
    ]
    for seed in results.spec.seed_list:
        cells = []
        for arm in results.arms:
            mark = "" if (state := state_of(results, arm, seed)) == "learns" else f" {state}"
            cells.append(f"{values[arm][seed]:.5f}{mark}" if seed in values[arm] else "–")
        ratio = f"{values[second][seed] / base[seed]:.2f}" if seed in base and seed in values[second] else "–"
        lines.append(f"| {seed} | {' | '.join(cells)} | {ratio} |")
    return lines


def verdicts_table(results: Results) -> list[str]:
    """Each arm against the first: over all seeds, then over those that learn."""
    metric = results.spec.metric
    base_name, null = results.arms[0], null_arm_name(results.spec)
    base = results.values(metric.name, base_name)
    family = {item.arm_b: item.verdict for item in results.compare_all()}
    against = rounding(results, results.compare_all())
    lines = [
        f"| arm − {base_name} | seeds | mean difference [95 % interval] | in seed SDs | sign-flip p | verdict, "
        f"margin {metric.margin:g} | larger than rounding explains? |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in results.arms[1:]:
        values = results.values(metric.name, arm)
        said = against.arms[arm].label if against and arm in against.arms else "–"
        said = "it is the null arm" if arm == null else said
        alive = learning(results, arm)
        chosen = [("all", shared(results, arm), family[arm])]
        if alive != chosen[0][1] and len(alive) > 1:
            of_alive = decide(
                [base[seed] for seed in alive],
                [values[seed] for seed in alive],
                margin=metric.margin,
                names=(base_name, arm),
                metric=metric.name,
            )
            chosen.append(("those that learn", alive, of_alive))
        for which, seeds, verdict in chosen:
            found = verdict.comparison
            if found is None:
                lines.append(f"| {arm} | {which}, {len(seeds)} | – | – | – | {verdict.label} | – |")
                continue
            size = "–" if found.effect_in_sds is None else f"{found.effect_in_sds:+.2g}"
            p = "–" if verdict.p is None else f"{verdict.p:.2g}"
            lines.append(
                f"| {arm} | {which}, {len(seeds)} | {found.effect:+.2e} [{found.low:+.2e}, {found.high:+.2e}] | {size} "
                f"| {p} | **{verdict.label}** | {said if which == 'all' else '–'} |"
            )
    return lines


def summary_lines(results: Results) -> list[str]:
    """Ratios, failures and the score of doing nothing."""
    metric, (first, second) = results.spec.metric.name, results.arms[:2]
    lines: list[str] = []
    base, other = results.values(metric, first), results.values(metric, second)
    alive = learning(results, second)
    if alive and metric == "last_frame_mse":
        ratios = np.array([other[seed] / base[seed] for seed in alive])
        spread = np.std([base[seed] for seed in alive], ddof=1) if len(alive) > 1 else float("nan")
        lines.append(
            f"- {second} / {first} on the {len(alive)} seeds that learn in both: ×{ratios.min():.2f} to "
            f"×{ratios.max():.2f}, median ×{np.median(ratios):.2f}; SD of {first} over these seeds {spread:.5f}."
        )
    elif metric == "test_mse":
        same = sum(base[seed] == other[seed] for seed in shared(results, second))
        lines.append(f"- {second} and {first} are bit-equal in {same} of {len(shared(results, second))} seeds.")
    for flag in FLAGS:
        seeds = {
            arm: [s for s in results.values(metric, arm) if state_of(results, arm, s) == flag]
            for arm in (first, second)
        }
        if any(seeds.values()):
            told = "; ".join(f"{arm}: {', '.join(map(str, found)) or 'none'}" for arm, found in seeds.items())
            lines.append(f"- Seeds that are {flag}: {told}. They are in the table and in the verdicts over all seeds.")
    name = BASELINES.get(metric, "")
    nothing = list(results.values(name, first).values())
    best = min(base.values(), default=float("nan"))
    if nothing:
        lines.append(f"- Doing nothing (`{name}`) scores {np.mean(nothing):.5f}; the best run of {first} {best:.5f}.")
    seconds = [record.train_seconds for record in results.records if record.state == "finished"]
    lines.append(f"- {len(seconds)} of {len(results.records)} runs have finished.")
    return lines


def figure(results: Results, scale: int = 5) -> str:
    """Frames side by side as SVG: what was shown, then what each arm predicts; one seed."""
    rows = pictures(results)
    if not rows:
        raise SystemExit(f"{results.folder}: no run has left pictures")
    label_width, gap, parts, top = 150, 10, [], 8
    drawn = {arm for row in rows for arm in row["arms"]}
    for row in rows:
        content = base64.b64decode(row["png"])
        width, height = (int.from_bytes(content[at : at + 4], "big") * scale for at in (16, 20))
        arms = "all arms" if len(row["arms"]) == len(drawn) else ", ".join(row["arms"])
        parts.append(
            f'<text x="0" y="{top + height / 2 - 4}" font-weight="600">{html.escape(row["label"])}</text>'
            f'<text x="0" y="{top + height / 2 + 14}">{html.escape(arms)}</text>'
            f'<image x="{label_width}" y="{top}" width="{width}" height="{height}" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{row["png"]}"/>'
        )
        top += height + gap
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {label_width + width} {top}" '
        'font-family="system-ui, sans-serif" font-size="14" fill="#5b636d" role="img" '
        f'aria-label="Frames of the held-out video and what each arm predicts, seed {rows[0]["seed"]}">'
        f"{''.join(parts)}</svg>\n"
    )


def main() -> None:
    """Print the tables, or write them into a document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--write", type=Path, help="document whose part is replaced")
    parser.add_argument("--name", default="replay", help="name of that part")
    parser.add_argument("--figure", type=Path, help="write the frames as SVG")
    given = parser.parse_args()
    results = Results.load(given.study)
    parts = [summary_lines(results), verdicts_table(results), seeds_table(results)]
    show_or_put("\n\n".join("\n".join(part) for part in parts), given.write, given.name)
    if given.figure:
        given.figure.write_text(figure(results), encoding="utf-8")


if __name__ == "__main__":
    main()
