"""Reports: the records of a study as one self-contained HTML file, its JSON twin, and plain-text tables.

`summarize` turns results into one JSON-able mapping; the HTML page, the terminal text and the Markdown text are
three renderings of that mapping, so they cannot disagree. Nothing here imports torch.
"""

from trivet.core.lazy import attach

__all__ = ["arms_table", "build", "comparisons_table", "summarize", "to_markdown", "to_text"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "arms_table": ".tables",
        "build": ".build",
        "comparisons_table": ".tables",
        "summarize": ".summary",
        "to_markdown": ".tables",
        "to_text": ".tables",
    },
)
