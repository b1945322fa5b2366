from __future__ import annotations

from typing import Any

from trivet.report import arms_table, comparisons_table, missing_table, summarize, to_markdown, to_text
from trivet.report.tables import Table, differences_table, split_notices
from trivet.study import Results

HOSTILE = '<b onclick="x">|`*\x1b[31m\n</b>'


def hostile_table() -> Table:
    return Table(
        title=HOSTILE, headers=("arm", HOSTILE), rows=((HOSTILE, "1"), ("日本", HOSTILE)), numeric=frozenset({1})
    )


def test_html_escapes_every_cell() -> None:
    html = hostile_table().to_html()
    assert "<b " not in html
    assert "</b>" not in html
    assert html.count("&lt;b onclick") == 4


def test_text_cannot_steer_a_terminal_and_stays_on_one_line_a_row() -> None:
    text = hostile_table().to_text()
    assert "\x1b" not in text
    assert len(text.splitlines()) == 4


def test_wide_characters_take_two_columns() -> None:
    lines = Table(title="", headers=("a", "b"), rows=(("日本", "x"), ("four", "y"))).to_text().splitlines()
    assert lines[2] == "日本  x"
    assert lines[3] == "four  y"


def test_markdown_keeps_its_columns() -> None:
    lines = hostile_table().to_markdown().splitlines()
    assert len(lines) == 4
    assert all(line.replace("\\|", "").count("|") == 3 for line in lines)
    assert "<b" not in lines[2]


def test_arms_table_shows_losses_and_keeps_costs_apart(study: Results) -> None:
    table = arms_table(summarize(study))
    rows = {row[0]: dict(zip(table.headers, row, strict=True)) for row in table.rows}
    assert rows["fp32"]["runs"] == "8 of 8"
    assert rows["RR"]["runs"] == "7 of 8; 1 failed"
    assert rows["ER"]["runs"] == "7 of 8; 1 diverged"
    assert rows["static8"]["BitOPs, 10¹⁵"] == "0.0640"
    assert rows["static8"]["vs baseline"] == "× 0.062"
    assert rows["static8"]["training, s"] == "6.00 (0.00)"
    assert "say nothing about time" in " ".join(table.notes)


def test_comparisons_table_has_effect_interval_and_both_p(study: Results) -> None:
    table = comparisons_table(summarize(study))
    assert [row[0] for row in table.rows] == ["static8", "RR", "ER"]
    assert [row[1] for row in table.rows] == ["equivalent", "different", "different"]
    assert table.rows[1][6] == "7 of 8"
    assert "Holm" in table.headers[5]


def test_runs_with_one_reason_share_a_line(make: Any) -> None:
    table = missing_table(summarize(make(state=lambda arm, seed: "pending" if seed > 1 else "finished")))
    assert len(table.rows) == 4
    assert table.rows[0][:4] == ("fp32", "pending", "not started", "2, 3, 4, 5, 6, 7")


def test_differences_table_names_runs_and_arms(study: Results) -> None:
    summary = summarize(study)
    values = [
        {"value": None, "runs": 8, "arms": ["RR"]},
        {"value": True, "runs": 1, "arms": ["fp32", "static8", "RR", "ER"]},
    ]
    summary["environment"]["differences"] = [{"key": "a.b", "values": values, "confounded": True}]
    assert differences_table(summary).rows == (
        ("a.b", "not recorded (8 runs: RR); true (1 run)", "yes: mixed up with the arm"),
    )


def test_text_and_markdown_say_the_verdicts_before_the_tables(study: Results) -> None:
    summary = summarize(study)
    for text in (to_text(summary), to_markdown(summary)):
        places = [text.index(word) for word in ("Does precision change", "lies inside", "diverged (", "Arms")]
        assert places == sorted(places)
    assert max(map(len, to_text(summary, width=80).split("Compared")[0].splitlines())) <= 80


def test_what_is_unfinished_comes_before_the_verdicts(make: Any) -> None:
    first, later = split_notices(summarize(make(state=lambda arm, seed: "pending")))
    assert len(first) == 2
    assert later == []
