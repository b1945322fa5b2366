"""The claims board: what three documents say, what was found here, and how to check it. Writes docs/claims.md.

    python benchmarks/claims.py [--check]

No figure is typed here: each is taken out of a page that its own benchmark wrote, so the board changes when that page
does. A figure that its page does not (yet) hold makes the row "not run" with the reason. `--check` only says whether
docs/claims.md is what would be written. Costs at full scale are arithmetic, not measurements: see `hours`.
"""

import argparse
import sys
from pathlib import Path

from claims_parts import Claim, Figure
from claims_table import ROWS

REPOSITORY = Path(__file__).resolve().parent.parent
HEAD = """# The claims, and what was found

trivet grew out of three documents: a study of hardware and training that its authors later **retracted**
([arXiv 2109.01451](https://arxiv.org/abs/2109.01451)), a hypernetwork that predicts parameters
([arXiv 2110.13100](https://arxiv.org/abs/2110.13100)), and a suite of cyclic precision schedules
([arXiv 2403.02243](https://arxiv.org/abs/2403.02243)). This board goes through their claims. "Found here" is what two
processor cores without a GPU can show: evidence about a small setting, a hint about the published one.
`python benchmarks/claims.py` writes this page out of the pages that it links to.

"""
FOOT = """
**Full scale** has not been run. Its cost is arithmetic: 6 × multiply-accumulates × examples × steps × runs (forward
and two products backward, two operations each) at {tera:.0f} TFLOP/s sustained, a tenth to a third of one data-center
GPU's float32/TF32 peak; simulated low precision takes 1.2 to 1.6 times as long again. Recipes under `full/` are shipped
in the package: `trivet cp full/NAME`.
"""
TERA = 20.0


def hours(claim: Claim) -> str:
    """Estimated GPU-hours of the full recipe."""
    if claim.full is None:
        return "–"
    spent = 6 * claim.full.macs * claim.full.examples * claim.full.steps * claim.full.runs / (TERA * 1e12) / 3600
    return (
        f"`{claim.full.recipe}`: {claim.full.runs} runs, ≈ {spent:,.0f} GPU-h"
        if spent >= 1
        else (f"`{claim.full.recipe}`: {claim.full.runs} runs, < 1 GPU-h")
    )


def read(figure: Figure) -> tuple[str, tuple[str, ...]] | None:
    """The sentence of a figure and the strings that its pattern caught, or nothing where the page lacks it."""
    page = REPOSITORY / "docs" / figure.page
    if not page.exists():
        return None
    found = figure.pattern.search(page.read_text(encoding="utf-8"))
    if found is None:
        return None
    return figure.sentence.format(*found.groups()), found.groups()


def line(claim: Claim) -> str:
    """One row of the board."""
    found = [read(figure) for figure in claim.figures]
    shown = [each[0] for each in found if each is not None]
    pages = dict.fromkeys(figure.page for figure, each in zip(claim.figures, found, strict=True) if each is not None)
    if len(shown) < len(found) or not shown:
        shown.append(f"not run: {claim.why_not}")
    links = ", ".join(f"[{page.removesuffix('.md').removeprefix('tasks/')}]({page})" for page in pages)
    verdict = claim.verdict([each[1] for each in found if each is not None]) if all(found) and found else "open"
    found_here = "; ".join(shown) + (f" ({links})" if links else "")
    cells = (claim.name, claim.says, found_here, f"**{verdict}**", claim.again, hours(claim))
    return f"| {' | '.join(cells)} |"


def board() -> str:
    """The page."""
    columns = (
        "| claim | the document says | found here | verdict | to rerun | full scale |\n|---|---|---|---|---|---|\n"
    )
    parts = [HEAD]
    for letter, title in (
        ("A", "Hardware and training (retracted)"),
        ("B", "Predicting parameters"),
        ("C", "Cyclic precision"),
    ):
        rows = [line(claim) for claim in ROWS if claim.name.startswith(letter)]
        parts.append(f"## {title}\n\n{columns}" + "\n".join(rows) + "\n\n")
    return "".join(parts).rstrip() + "\n" + FOOT.format(tera=TERA)


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    arguments = parser.parse_args()
    page = REPOSITORY / "docs" / "claims.md"
    text = board()
    if arguments.check:
        sys.exit(
            0 if page.exists() and page.read_text(encoding="utf-8") == text else "docs/claims.md is not up to date"
        )
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
