"""Generated parts of a document: what stands between two marks is replaced, so that no figure is copied by hand.

    <!-- begin: NAME -->
    …
    <!-- end: NAME -->

Not a benchmark; those beside it import it.
"""

from pathlib import Path


def put(document: Path, name: str, text: str) -> None:
    """Replace the part called `name`; its marks stay.

    Raises:
        SystemExit: The document lacks the marks.
    """
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    content = document.read_text(encoding="utf-8")
    if content.count(begin) != 1 or content.count(end) != 1:
        raise SystemExit(f"{document} must hold the marks {begin} and {end} once; nothing was written")
    before, rest = content.split(begin)
    after = rest.split(end)[1]
    document.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def show_or_put(text: str, document: Path | None, name: str) -> None:
    """Print, or write into a document."""
    print(text) if document is None else put(document, name, text)
