"""The drawing library (Vega, Vega-Lite, Vega-Embed) as one JavaScript text, to be put inside the page.

vl-convert carries the libraries and joins them in some seconds, so the result is kept in the user's cache folder,
one file for each version of vl-convert. Nothing is downloaded. A cache that cannot be read or written costs
only time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trivet.core.io import write_text

log = logging.getLogger(__name__)

_END_MARK = "/* trivet: end of bundle */"


def cache_folder() -> Path:
    """Folder for files that can be made again: `$TRIVET_CACHE`, else `$XDG_CACHE_HOME/trivet`, else `~/.cache/trivet`.

    Examples:
        >>> cache_folder().name != ""
        True
    """
    if own := os.environ.get("TRIVET_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(os.path.expanduser("~")) / ".cache") / "trivet"


def javascript(cache: Path | None = None) -> str:
    """JavaScript that defines `window.vegaEmbed`, safe to stand inside a `<script>` element.

    Args:
        cache: Folder to keep it in; `cache_folder()` by default.

    Returns:
        The source text, about 0.9 MB.
    """
    path = (cache or cache_folder()) / f"vega-bundle-{_converter_version()}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        kept = path.read_text(encoding="utf-8")
        if kept.endswith(_END_MARK):
            return kept
    made = _make()
    try:
        write_text(path, made)
    except OSError as error:
        log.info("the drawing library is not cached (%s); the next report takes some seconds longer", error)
    return made


def _converter_version() -> str:
    try:
        return version("vl-convert-python")
    except PackageNotFoundError:
        return "unknown"


def _make() -> str:
    import vl_convert

    source = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Inside <script>, "</script" ends the element and "<!--" opens a comment state. In this source they can only
    # stand in strings and regular expressions, where the escaped forms mean the same.
    source = re.sub(r"</(script)", r"<\\/\1", source, flags=re.IGNORECASE).replace("<!--", r"<\!--")
    return f"{source}\n{_END_MARK}"
