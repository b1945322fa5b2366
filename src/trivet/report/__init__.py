"""Reports: the records of a study as one self-contained HTML file, its JSON twin, and plain-text tables.

`summarize` turns results into one JSON-able mapping; the HTML page, the terminal text and the Markdown text are
three renderings of that mapping, so they cannot disagree. Nothing here imports torch.

The names are bound eagerly, because `build` shares its name with its module and a lazily loaded submodule would
shadow it; altair, jinja2, vl-convert and scipy are loaded by the first report.
"""

from trivet.report.build import build, render
from trivet.report.summary import summarize
from trivet.report.tables import arms_table, comparisons_table, missing_table, to_markdown, to_text

__all__ = [
    "arms_table",
    "build",
    "comparisons_table",
    "missing_table",
    "render",
    "summarize",
    "to_markdown",
    "to_text",
]
