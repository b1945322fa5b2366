"""The page in a real browser, from file:// and with no network: everything drawn, nothing wider than the window.

A Chromium window is at least 500 pixels wide, so a phone is a frame of 390 pixels around the same page.
"""

from __future__ import annotations

import html
import html.parser
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trivet.core.io import write_text
from trivet.report import build, render, summarize
from trivet.study import Results

pytestmark = pytest.mark.browser

PHONE = 390
QUIET = ("background-networking", "component-update", "sync", "dev-shm-usage", "gpu", "quic")
FLAGS = ["--headless", "--no-sandbox", "--no-first-run", "--hide-scrollbars", "--enable-logging=stderr"]
FLAGS += ["--virtual-time-budget=10000", *(f"--disable-{name}" for name in QUIET)]
FRAME = """<!doctype html><body><iframe style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe><script>
const look = () => {{
  const inner = document.querySelector("iframe").contentDocument?.documentElement;  // null for a moment at the start
  if (inner?.dataset.ready !== "yes") return setTimeout(look, 50);
  Object.assign(document.documentElement.dataset, inner.dataset);
  document.body.innerHTML = inner.querySelector("body").innerHTML;
}};
look();
</script></body>"""


def load(chromium: str, page: Path, *more: str) -> tuple[dict[str, str], str, str]:
    """Attributes that the page set on <html>, its DOM once drawn, and what the browser logged from it."""
    command = [chromium, *FLAGS, f"--user-data-dir={page.parent / 'profile'}", "--window-size=1280,900", *more]
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    root = re.search(r"<html[^>]*>", done.stdout)
    assert root, done.stderr
    logged = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line or "Refused to" in line)
    return dict(re.findall(r'data-([\w-]+)="([^"]*)"', root[0])), done.stdout, logged


def on_phone(page: Path) -> Path:
    """A page that shows `page` in a frame as wide as a phone, and afterwards is a copy of it."""
    framed = page.parent / "framed.html"
    text = html.escape(page.read_text(encoding="utf-8"))
    write_text(framed, FRAME.format(width=PHONE, page=text))
    return framed


def assert_sound(said: dict[str, str], dom: str, logged: str, width: int) -> None:
    assert said["ready"] == "yes"
    assert (said["charts"], said["chart-errors"]) == (said["charts-total"], "0")
    assert int(said["charts"]) == len(re.findall(r'<svg[^>]*class="marks"', dom)) > 0
    assert int(said["inner-width"]) == width
    assert int(said["scroll-width"]) <= width
    assert logged == ""


def test_every_chart_is_drawn_at_the_desk(chromium: str, study: Results, tmp_path: Path) -> None:
    said, dom, logged = load(chromium, build(study, tmp_path))
    assert_sound(said, dom, logged, 1280)
    assert int(said["charts"]) == 10


def test_hostile_names_do_nothing_on_a_phone_and_fit(chromium: str, study: Results, tmp_path: Path) -> None:
    evil = "<img src=x onerror=\"document.title='pwned'\"></script><script>document.title='pwned'</script>" + "x" * 200
    text = json.dumps(summarize(study))
    for name in ("RR", "made-up", "test_accuracy"):
        text = text.replace(f'"{name}"', json.dumps(evil))
    page = tmp_path / "report.html"
    write_text(page, render(json.loads(text)))
    said, dom, logged = load(chromium, on_phone(page))
    assert_sound(said, dom, logged, PHONE)
    tags: list[str] = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(dom)
    assert "svg" in tags
    assert "img" not in tags
    assert "<title>pwned" not in dom


def test_dark_pages_are_dark_in_the_charts_too(chromium: str, study: Results, tmp_path: Path) -> None:
    page = build(study, tmp_path)
    probe = (
        "<script>new MutationObserver(() => { document.documentElement.dataset.fill = "
        "getComputedStyle(document.querySelector('.chart svg text')).fill })"
        ".observe(document.documentElement, { attributeFilter: ['data-ready'] })</script>"
    )
    text = page.read_text(encoding="utf-8")
    write_text(page, text.replace("<noscript>", probe + "<noscript>"))
    fills = [load(chromium, page, f"--blink-settings=preferredColorScheme={scheme}")[0]["fill"] for scheme in (0, 1)]
    brightness = [sum(map(int, re.findall(r"\d+", fill)[:3])) for fill in fills]
    assert brightness[0] > 400 > brightness[1], fills


def test_an_unfinished_study_is_drawn_on_a_phone_as_far_as_it_came(chromium: str, make: Any, tmp_path: Path) -> None:
    page = build(make(state=lambda arm, seed: "finished" if seed < 1 else "pending"), tmp_path)
    assert_sound(*load(chromium, on_phone(page)), PHONE)
