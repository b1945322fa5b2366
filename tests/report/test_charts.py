from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from trivet.report import summarize
from trivet.report.charts import cost_chart, differences_chart, learning_chart, precision_chart
from trivet.report.drawing import place_labels, within
from trivet.report.styles import arm_styles
from trivet.study import Results

HOSTILE = "a'][\"b\\.c</script>"


def walk(value: Any) -> list[dict[str, Any]]:
    """Every mapping inside a specification."""
    if isinstance(value, list):
        return [found for item in value for found in walk(item)]
    if not isinstance(value, dict):
        return []
    return [value, *(found for item in value.values() for found in walk(item))]


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for rows in spec["datasets"].values() for row in rows]


@pytest.fixture(scope="module")
def specs(study: Results) -> dict[str, dict[str, Any]]:
    summary = summarize(study)
    arms = [row["arm"] for row in summary["arms"]]
    styles = arm_styles(arms, "fp32")
    return {
        "differences": differences_chart(summary["comparisons"], styles, metric="test_accuracy", margin=0.005),
        "curve": learning_chart(summary["curves"][2], styles),
        "bitops": cost_chart(summary["arms"], styles, metric="test_accuracy", cost="bitops"),
        "seconds": cost_chart(summary["arms"], styles, metric="test_accuracy", cost="train_seconds"),
        "precision": precision_chart(summary["precision"][2], styles, top=32, last_step=400),
    }


def test_all_compile_to_vega(specs: dict[str, dict[str, Any]]) -> None:
    import vl_convert

    for spec in specs.values():
        assert vl_convert.vegalite_to_vega(spec)["marks"]


def test_no_interval_is_left_to_the_drawing_library(specs: dict[str, dict[str, Any]]) -> None:
    for spec in specs.values():
        text = json.dumps(spec)
        for word in ("errorband", "errorbar", '"aggregate"', '"ci"', "http"):
            assert word not in text.replace(spec["$schema"], ""), word


def test_all_fit_their_box_and_can_be_read_aloud(specs: dict[str, dict[str, Any]]) -> None:
    for spec in specs.values():
        assert spec["width"] == "container"
        assert spec["background"] == "transparent"
        assert spec["description"]


def test_an_arm_has_one_color_in_all_charts(specs: dict[str, dict[str, Any]]) -> None:
    found: dict[str, set[str]] = {}
    for spec in specs.values():
        for part in walk(spec):
            if isinstance(color := part.get("color"), dict) and color.get("field") == "arm":
                for arm, value in zip(color["scale"]["domain"], color["scale"]["range"], strict=True):
                    found.setdefault(arm, set()).add(value)
    assert set(found) == {"fp32", "static8", "RR", "ER"}
    assert all(len(colors) == 1 for colors in found.values())


def test_differences_hold_every_seed_both_intervals_and_the_margin(
    specs: dict[str, dict[str, Any]], study: Results
) -> None:
    rows = rows_of(specs["differences"])
    assert sum("seed" in row for row in rows) == 8 + 7 + 7
    assert {"from": -0.005, "to": 0.005} in rows
    (static8,) = [row for row in rows if row.get("arm") == "static8" and "low" in row]
    assert static8["low"] < static8["inner_low"] < static8["value"] < static8["inner_high"] < static8["high"]


def test_without_a_margin_there_is_no_band(study: Results) -> None:
    comparisons = summarize(study)["comparisons"]
    spec = differences_chart(comparisons, arm_styles(["static8", "RR", "ER"]), metric="m", margin=0.0)
    assert not [row for row in rows_of(spec) if "from" in row]


def test_costs_are_never_mixed(specs: dict[str, dict[str, Any]], study: Results) -> None:
    bitops, seconds = json.dumps(specs["bitops"]), json.dumps(specs["seconds"])
    assert "BitOPs per run, counted" in bitops
    assert "seconds" not in bitops
    assert "measured training seconds" in seconds
    assert "BitOPs" not in seconds
    with pytest.raises(ValueError, match="must be 'bitops' or 'train_seconds'"):
        cost_chart(summarize(study)["arms"], {}, metric="m", cost="seconds")


def test_a_wide_range_of_costs_is_logarithmic_and_says_so(specs: dict[str, dict[str, Any]]) -> None:
    assert "log scale" in json.dumps(specs["bitops"])
    assert "log scale" not in json.dumps(specs["seconds"])


def test_a_diverged_run_ends_at_the_edge_where_it_leaves(specs: dict[str, dict[str, Any]]) -> None:
    lost = [row for row in rows_of(specs["curve"]) if "last" in row]
    (end,) = [row for row in lost if row["last"]]
    assert end["arm"] == "ER"
    assert 200 < end["step"] < 300
    low, high = next(part["domain"] for part in walk(specs["curve"]) if part.get("zero") is False)
    assert end["value"] == high > low


def test_lines_outside_for_good_are_cut_at_once() -> None:
    rows = [
        {"arm": "a", "seed": 0, "step": step, "value": value, "last": False} for step, value in ((1, 9.0), (2, 8.0))
    ]
    assert within(rows, [0.0, 1.0]) == [{"arm": "a", "seed": 0, "step": 1, "value": 1.0, "last": True}]


def test_only_diverged_runs_still_give_a_picture(make: Any) -> None:
    summary = summarize(make(state=lambda arm, seed: "diverged"))
    spec = learning_chart(summary["curves"][0], arm_styles([row["arm"] for row in summary["arms"]]))
    assert sum(row["last"] for row in rows_of(spec)) == 32


def test_hostile_names_stay_data(make: Any) -> None:
    summary = summarize(make(names=("fp32", HOSTILE, "RR", "ER")))
    arms = [row["arm"] for row in summary["arms"]]
    styles = arm_styles(arms, "fp32")
    metric = "test_accuracy"
    for spec in (
        differences_chart(summary["comparisons"], styles, metric=metric, margin=0.005),
        learning_chart(summary["curves"][0], styles),
        cost_chart(summary["arms"], styles, metric=metric, cost="bitops"),
    ):
        for part in walk(spec):
            for key in ("field", "filter", "calculate", "expr", "signal", "test"):
                assert HOSTILE not in str(part.get(key, ""))


def crowd(n: int, x: float = 1.0) -> list[dict[str, Any]]:
    values = [0.9 + 1e-5 * i for i in range(n)]
    return [{"arm": f"arm {i}", "x": x, "value": v, "low": 0.85, "high": 0.95} for i, v in enumerate(values)]


def test_labels_of_arms_in_one_place_do_not_overlap() -> None:
    rows = crowd(6)
    place_labels(rows, [], log_scale=False)
    heights = sorted((row["value"] - 0.85) / 0.1 * 230 + row["lift"] for row in rows)
    assert all(b - a >= 15 for a, b in itertools.pairwise(heights))
    assert {row["side"] for row in rows} == {"right"}


def test_a_label_without_a_place_is_left_out() -> None:
    rows = crowd(9)
    place_labels(rows, [], log_scale=False)
    assert sum(row["side"] == "" for row in rows) == 2


def test_a_label_keeps_off_the_bars_of_other_arms() -> None:
    rows = [*crowd(1, x=5.0), *crowd(1, x=6.0), *crowd(1, x=9.0)]
    rows[1] = {**rows[1], "arm": "long name"}
    place_labels(rows, [], log_scale=False)
    assert rows[1]["side"] == "left"
