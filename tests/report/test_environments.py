from __future__ import annotations

from typing import Any

from trivet.report.environments import flatten, summarize_environments


def record(threads: int = 1, torch: str = "2.14", missed: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"realised": {"threads": threads}, "packages": {"torch": torch}, "not_realised": list(missed)}


def test_shared_settings_are_listed_once() -> None:
    made = summarize_environments({"r1": record(), "r2": record()}, {"r1": "a", "r2": "b"})
    assert made["shared"] == {"realised": {"threads": 1}, "packages": {"torch": "2.14"}}
    assert made["differences"] == []
    assert made["not_realised"] == []
    assert made["runs"] == 2


def test_a_difference_that_follows_the_arm_is_confounded() -> None:
    records = {"r1": record(), "r2": record(), "r3": record(torch="2.10"), "r4": record(torch="2.10")}
    arms = {"r1": "a", "r2": "a", "r3": "b", "r4": "b"}
    (row,) = summarize_environments(records, arms)["differences"]
    assert (row["key"], row["confounded"]) == ("packages.torch", True)
    assert row["values"] == [{"value": "2.14", "runs": 2, "arms": ["a"]}, {"value": "2.10", "runs": 2, "arms": ["b"]}]
    (on_purpose,) = summarize_environments(records, arms, is_factor=True)["differences"]
    assert on_purpose["confounded"] is False


def test_a_difference_within_arms_is_not_confounded() -> None:
    records = {"r1": record(1), "r2": record(2), "r3": record(1), "r4": record(2)}
    (row,) = summarize_environments(records, {"r1": "a", "r2": "a", "r3": "b", "r4": "b"})["differences"]
    assert row["confounded"] is False


def test_what_was_not_realised_is_counted_with_its_arms() -> None:
    made = summarize_environments({"r1": record(missed=("threads",)), "r2": record()}, {"r1": "a", "r2": "b"})
    assert made["not_realised"] == [{"setting": "threads", "runs": 1, "arms": ["a"]}]


def test_a_setting_that_only_some_runs_recorded_is_a_difference() -> None:
    made = summarize_environments({"r1": {"gpu": "X"}, "r2": {"cpu": "Y", "gpu": "X"}}, {"r1": "a", "r2": "a"})
    assert [row["key"] for row in made["differences"]] == ["cpu"]
    assert {value["value"] for value in made["differences"][0]["values"]} == {None, "Y"}


def test_odd_records_do_no_harm() -> None:
    made = summarize_environments({"r1": {}, "r2": {"not_realised": "all", "x": {}}}, {"r1": "a", "r2": "a"})
    assert made["runs"] == 1
    assert flatten({"a": {}, "b": {"c": {"d": 1}}}) == {"a": {}, "b.c.d": 1}
