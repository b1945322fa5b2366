from __future__ import annotations

import html.parser
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from trivet.report import build, bundle, render, summarize
from trivet.study import Results

HOSTILE = "<img src=x onerror=alert(1)>&'\"</script><!--<script>alert(2)</script>{{ 7*7 }}"
RESOURCES = {"src", "srcset", "href", "data", "action", "poster", "xlink:href", "background"}


class Page(html.parser.HTMLParser):
    """Elements, attributes and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data
        else:
            self.words.append(data)


@pytest.fixture(scope="module")
def page(study: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(study, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, study: Results) -> Page:
    text = json.dumps(summarize(study)).replace('"RR"', json.dumps(HOSTILE)).replace('"made-up"', json.dumps(HOSTILE))
    text = text.replace("test_accuracy", json.dumps(HOSTILE)[1:-1]).replace(
        "out of <memory>", json.dumps(HOSTILE)[1:-1]
    )
    return Page(render(json.loads(text)))


def test_page_and_twin_are_written_beside_each_other(page: Path, study: Results) -> None:
    assert page.name == "report.html"
    assert json.loads(page.with_suffix(".json").read_text(encoding="utf-8")) == summarize(study)
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.html", "report.json"]


def test_the_study_folder_is_the_default_place(make: Any) -> None:
    results = make(seeds=2)
    assert build(results) == results.folder / "report.html"
    assert Results.load(results.folder).counts == results.counts


def test_a_file_name_may_be_given(study: Results, tmp_path: Path) -> None:
    assert build(study, tmp_path / "new" / "mine.html") == tmp_path / "new" / "mine.html"
    assert (tmp_path / "new" / "mine.json").is_file()


def test_same_records_same_bytes(page: Path, study: Results, tmp_path: Path) -> None:
    assert build(study, tmp_path).read_bytes() == page.read_bytes()


def test_nothing_is_loaded_from_anywhere(page: Path) -> None:
    read = Page(page.read_text(encoding="utf-8"))
    for tag, attributes in read.tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base", "form"}, tag
        assert not RESOURCES & set(attributes), (tag, attributes)
    style = next(re.finditer("<style>(.*?)</style>", page.read_text(encoding="utf-8"), re.DOTALL))[1]
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = [a["content"] for _, a in read.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_hostile_names_make_no_element_and_no_script(hostile: Page, page: Path) -> None:
    normal = Page(page.read_text(encoding="utf-8"))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in normal.tags]
    assert len(hostile.scripts) == 3
    assert HOSTILE in json.dumps(json.loads(hostile.scripts[0]), ensure_ascii=False).encode().decode("unicode_escape")
    assert hostile.scripts[1:] == normal.scripts[1:]
    assert any(HOSTILE in word for word in "".join(hostile.words).splitlines())


def test_the_sentences_stand_before_every_table_and_chart(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.index('class="sentence"') < text.index("<table") < text.index('class="chart"')


def test_undecided_looks_no_smaller_than_the_others() -> None:
    from importlib import resources

    style = resources.files("trivet.report").joinpath("page.css").read_text(encoding="utf-8")
    rules = [re.findall(rf"^\.{name} \.badge {{(.*)}}$", style, re.MULTILINE) for name in ("different", "undecided")]
    assert [len(found) for found in rules] == [1, 1]
    assert [re.sub(r"--\w+", "", found[0]) for found in rules] == [re.sub(r"--\w+", "", rules[0][0])] * 2


def test_bitops_and_seconds_have_pictures_of_their_own(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    specs = json.loads(Page(text).scripts[0])
    assert {"cost-bitops", "cost-seconds", "differences", "curve-0", "precision-0"} <= set(specs)
    assert "Not time." in text
    assert "Not BitOPs." in text


def test_arms_with_one_schedule_share_a_panel(study: Results) -> None:
    summary = summarize(study)
    line = summary["precision"][1]
    summary["precision"].append({**line, "arm": "fp32"})
    text = render(summary)
    assert "static8 and fp32" in text
    assert text.count('data-spec="precision-') == 4


def test_a_page_without_runs_is_a_page(make: Any) -> None:
    text = render(summarize(make(state=lambda arm, seed: "pending")))
    assert "No run has finished" in text
    assert "No run has recorded its environment" in text
    assert 'class="chart"' not in text


def test_an_unwritable_place_leaves_the_old_report(study: Results, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OSError, match=r"report\.json"):
        build(study, tmp_path)
    assert (tmp_path / "report.html").read_text() == "old"


def test_the_library_is_cached_once_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(bundle, "_make", lambda: made.append("x") or f"window.x=1;\n{bundle._END_MARK}")
    assert bundle.javascript(tmp_path / "new") == bundle.javascript(tmp_path / "new")
    assert len(made) == 1
    (cached,) = (tmp_path / "new").iterdir()
    cached.write_text(cached.read_text()[:-5])
    bundle.javascript(tmp_path / "new")
    assert len(made) == 2, "a torn file is made again"
    monkeypatch.setattr(bundle, "_converter_version", lambda: "99")
    bundle.javascript(tmp_path / "new")
    assert len(made) == 3


@pytest.mark.parametrize("blocked", ["file in the way", "folder in the way"])
def test_a_cache_that_cannot_be_used_costs_only_time(
    blocked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_make", lambda: "window.x=1;")
    cache = tmp_path / "cache"
    if blocked.startswith("file"):
        cache.write_text("")
    else:
        (cache / f"vega-bundle-{bundle._converter_version()}.js").mkdir(parents=True)
    assert bundle.javascript(cache) == "window.x=1;"


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert bundle.cache_folder() == Path("/x/trivet")
    monkeypatch.setenv("TRIVET_CACHE", "/y")
    assert bundle.cache_folder() == Path("/y")
    monkeypatch.delenv("TRIVET_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert bundle.cache_folder() == Path("/home/me/.cache/trivet")


def test_the_library_can_stand_in_a_script_element() -> None:
    source = bundle.javascript()
    assert "</script" not in source.lower()
    assert "<!--" not in source
    assert "vegaEmbed" in source


def test_importing_the_reports_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import trivet.report, sys; print([m for m in ('torch', 'scipy', 'altair', 'jinja2') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"


def test_drawing_needs_neither_torch_nor_pandas(study: Results, tmp_path: Path) -> None:
    import subprocess
    import sys

    copy = shutil.copytree(study.folder, tmp_path / "copy")
    code = (
        "import sys; sys.modules.update(torch=None, pandas=None)\n"
        "from trivet.report import build; from trivet.study import Results\n"
        f"print(build(Results.load({str(copy)!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
