"""A picture as SVG text: colors that follow the reader's light or dark setting, system fonts, a tooltip on every row.

The same picture gives the same bytes. Not covered: scripts and outside files; there are none, so the file works as an
image of a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax import saxutils

from trivet.graph.sheet import Picture, Point, Row, Wire
from trivet.graph.wording import KINDS, Words, text_width

FONT = "'Helvetica Neue', Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
INK, QUIET, PAPER, LINE, PANEL, BADGE = "#1f2430", "#667080", "#ffffff", "#8a93a0", "#6b7a90", "#55617a"
DARK = "@media (prefers-color-scheme: dark) { .p { fill: #15181e } .i { fill: #e6e9ee } .q { fill: #9aa4b2 } }"
"""What changes for a reader who has set dark pages; colors are attributes first, for programs that know no style."""
MARGIN = 22.0
SIZE, SMALL, LABEL_SIZE = 11.0, 9.5, 10.5
"""Pixels of the sizes of text: of rows, of their numbers, of the labels of frames."""
BOLD = 1.08
"""How much wider bold text is."""
BEFORE, BETWEEN, AFTER = 11.0, 12.0, 8.0
"""Pixels before, between and after the texts of a row."""
CORNER = 6.0
TITLE_ROOM = 76.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a row looks like and says."""

    kind: int
    """Position in `KINDS`."""
    words: Words
    sign: str
    """Letter of a circle."""
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Everything that is written."""

    title: str
    totals: str
    labels: Mapping[int, Label]
    """By the name of the cell."""
    frames: Sequence[tuple[str, str, str]]
    """For each frame label, count and tooltip."""
    kinds: Sequence[tuple[int, int]]
    """Kinds that occur and how often, for the legend."""


def row_widths(label: Label, above: Label | None) -> tuple[float, float]:
    """Pixels that a row needs for all but its last column, and for that."""
    words = label.words
    width = BEFORE + text_width(words.name, SIZE) * BOLD + AFTER
    if words.detail:
        width += 5 + text_width(words.detail, SIZE)
    if words.parameters:
        width += BETWEEN + text_width(words.parameters, SMALL)
    output = _output(label, above)
    return width, BETWEEN + text_width(output, SMALL) if output else 0.0


def _output(label: Label, above: Label | None) -> str:
    """Shape of the result where it is another than in the row above."""
    return "" if above is not None and above.words.output == label.words.output else label.words.output


def to_svg(picture: Picture, texts: Texts) -> tuple[str, float, float]:
    """The text of an SVG file.

    Returns:
        The text, and its width and height in pixels.
    """
    heading, wide = _heading(texts, picture.right - picture.left)
    width = max(picture.right - picture.left, wide) + 2 * MARGIN
    height = picture.height + TITLE_ROOM + 2 * MARGIN
    x = MARGIN - picture.left + max(0.0, (width - 2 * MARGIN - picture.right + picture.left) / 2)
    body = [*heading, f'<g transform="translate({_n(x)} {_n(MARGIN + TITLE_ROOM)})">']
    for frame, (name, count, tip) in zip(picture.frames, texts.frames, strict=True):
        body += _frame(frame.x, frame.y, frame.width, frame.height, name, count, tip)
    strokes = " ".join(_path(wire) for wire in picture.wires)
    if strokes:
        body.append(f'<path d="{strokes}" fill="none" stroke="{LINE}" stroke-width="1.3"/>')
    heads = " ".join(f"M{_n(a)} {_n(b)}l-3.6 -6.2h7.2z" for a, b in picture.heads)
    if heads:
        body.append(f'<path d="{heads}" fill="{LINE}"/>')
    for row in picture.rows:
        over = texts.labels[row.above.index] if row.above is not None else None
        body += _row(row, texts.labels[row.cell.index], over)
    body.append("</g>")
    name = escape(f"{texts.title}: {texts.totals}" if texts.title else texts.totals)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" role="img" font-family="{FONT}" font-size="{_n(SIZE)}">'
    )
    paper = f'<rect class="p" width="{_n(width)}" height="{_n(height)}" rx="10" fill="{PAPER}"/>'
    lines = [opening, f"<title>{name}</title>", f"<style>{DARK}</style>", paper, *body, "</svg>"]
    return "\n".join(lines) + "\n", width, height


def _heading(texts: Texts, room: float) -> tuple[list[str], float]:
    """Title, totals and legend, and the width they take."""
    x, y = MARGIN, MARGIN + 14
    lines: list[str] = []
    wide = text_width(texts.totals, 12)
    if texts.title:
        lines.append(_text(x, y, texts.title, 17, "i", INK, "600"))
        wide = max(wide, text_width(texts.title, 17) * 1.1)
    lines.append(_text(x, y + 20, texts.totals, 12, "q", QUIET))
    y += 42
    for kind, count in texts.kinds:
        name, color, _ = KINDS[kind]
        text = f"{name} {count}"
        lines.append(f'<rect x="{_n(x)}" y="{_n(y - 9)}" width="10" height="10" rx="2.5" fill="{color}"/>')
        lines.append(_text(x + 15, y, text, 10.5, "q", QUIET))
        x += 15 + text_width(text, 10.5) + 12
    return lines, max(wide, x - MARGIN)


def _frame(x: float, y: float, width: float, height: float, name: str, count: str, tip: str) -> list[str]:
    badge: list[str] = []
    lines = [
        f'<g><title>{escape(tip)}</title><rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
        f'rx="9" fill="{PANEL}" fill-opacity="0.09" stroke="{PANEL}" stroke-opacity="0.35"/>',
        _text(x + 9, y + 15, name, LABEL_SIZE, "q", QUIET, "600"),
    ]
    if count:
        wide = text_width(count, 12) + 14
        badge = [
            f'<rect x="{_n(x + width - wide - 8)}" y="{_n(y - 9)}" width="{_n(wide)}" height="18" rx="9" '
            f'fill="{BADGE}"/>',
            _text(x + width - wide / 2 - 8, y + 4, count, 12, "", "#ffffff", "600", "middle"),
        ]
    return [*lines, *badge, "</g>"]


def _row(row: Row, label: Label, above: Label | None) -> list[str]:
    color = KINDS[label.kind][1]
    opening = f"<g><title>{escape(label.tip)}</title>"
    if row.is_round:
        radius = row.width / 2
        x, y = row.x + radius, row.y + radius
        return [
            f'{opening}<circle class="p" cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{PAPER}" stroke="{color}" '
            'stroke-width="1.6"/>',
            _text(x, y + 5, label.sign, 15, "i", INK, "600", "middle"),
            "</g>",
        ]
    words, middle = label.words, row.y + row.height / 2 + 4
    box = f'x="{_n(row.x)}" y="{_n(row.y)}" width="{_n(row.width)}" height="{_n(row.height)}" rx="4"'
    lines = [
        f'{opening}<rect class="p" {box} fill="{PAPER}"/><rect {box} fill="{color}" fill-opacity="0.17"/>'
        f'<rect x="{_n(row.x)}" y="{_n(row.y)}" width="4.5" height="{_n(row.height)}" rx="2" fill="{color}"/>'
    ]
    x = row.x + BEFORE
    name = f'<tspan font-weight="600">{escape(words.name)}</tspan>'
    lines.append(f'<text class="i" x="{_n(x)}" y="{_n(middle)}" fill="{INK}">{name} {escape(words.detail)}</text>')
    x = row.x + row.width - AFTER
    for text, end in ((_output(label, above), x), (words.parameters, x - row.column)):
        if text:
            lines.append(_text(end, middle, text, SMALL, "q", QUIET, "", "end"))
    return [*lines, "</g>"]


def _text(x: float, y: float, text: str, size: float, look: str, color: str, weight: str = "", anchor: str = "") -> str:
    more = f' class="{look}"' if look else ""
    more += f' font-size="{_n(size)}"' if size != SIZE else ""
    more += f' font-weight="{weight}"' if weight else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{more} fill="{color}">{escape(text)}</text>'


def _path(wire: Wire) -> str:
    points = wire.points
    if not wire.is_smooth:
        return _rounded(points)
    found = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for (x, y), (a, b) in pairwise(points):
        if x == a:
            found.append(f"V{_n(b)}")
        else:
            middle = (y + b) / 2
            found.append(f"C{_n(x)} {_n(middle)} {_n(a)} {_n(middle)} {_n(a)} {_n(b)}")
    return "".join(found)


def _rounded(points: Sequence[Point]) -> str:
    """A line through points, its corners round."""
    found = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        enter, leave = _towards(here, before), _towards(here, after)
        found.append(f"L{_n(enter[0])} {_n(enter[1])}Q{_n(here[0])} {_n(here[1])} {_n(leave[0])} {_n(leave[1])}")
    found.append(f"L{_n(points[-1][0])} {_n(points[-1][1])}")
    return "".join(found)


def _towards(here: Point, there: Point) -> Point:
    """A point a little way from here to there, at most half."""
    way = abs(there[0] - here[0]) + abs(there[1] - here[1])
    share = min(CORNER, way / 2) / way if way else 0.0
    return here[0] + (there[0] - here[0]) * share, here[1] + (there[1] - here[1]) * share


def escape(text: str) -> str:
    r"""Text as it stands in XML; signs that XML does not allow become spaces.

    Examples:
        >>> escape("a < b\x00")
        'a &lt; b '
    """
    return saxutils.escape("".join(sign if sign.isprintable() or sign == "\n" else " " for sign in text))


def _n(value: float) -> str:
    """A number with at most one decimal."""
    text = f"{value:.1f}"
    return "0" if text == "-0.0" else text.removesuffix(".0")
