from __future__ import annotations

from typing import Any

import pytest

from trivet.core.io import write_json
from trivet.core.runfolder import RunFolder
from trivet.report.gpus import gpu_notices
from trivet.report.summary import summarize
from trivet.study import Results

A, H = "A100", "H100"


def notices(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> list[str]:
    """Of two arms, each with kind and uuid of the GPU of its seeds 0, 1, …"""
    records: dict[str, Any] = {}
    runs = {}
    for arm, gpus in (("fp32", one), ("RR", other)):
        for seed, (name, uuid) in enumerate(gpus):
            records[f"{arm}{seed}"] = {"gpu": [{"name": name, "uuid": uuid}]}
            runs[f"{arm}{seed}"] = (arm, seed)
    return gpu_notices(records, runs, "fp32")


def test_pairs_on_other_kinds_of_gpus_are_counted() -> None:
    (said,) = notices([(A, "1"), (A, "2"), (A, "1")], [(A, "1"), (H, "3"), (H, "3")])
    assert said.startswith("In 2 of 3 pairs RR had another kind of GPU than fp32 (H100 against A100)")


def test_a_gpu_for_each_arm_is_told() -> None:
    (said,) = notices([(A, "GPU-1")] * 3, [(A, "GPU-2")] * 3)
    assert said.startswith("RR and fp32 never had a GPU in common")
    assert "GPU-2 in RR" in said


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(A, "1"), (A, "2")], [(A, "1"), (A, "2")]),  # blocked
        ([(A, "1"), (A, "1"), (A, "2")], [(A, "2"), (A, "3"), (A, "3")]),  # one in common
        ([(A, "1"), (A, "2")], [(A, "3"), (A, "4")]),  # each run its own, as chance would have it
        ([(A, ""), (A, "")], [(A, ""), (A, "")]),  # torch did not tell
        ([], [(A, "1"), (A, "1")]),
    ],
)
def test_what_is_sound_is_not_told(one: Any, other: Any) -> None:
    assert notices(one, other) == []


def test_odd_records_do_no_harm() -> None:
    odd: list[Any] = [[], "A100", None, ["A100", None], [{}]]
    records = {name: {"gpu": gpu} for name, gpu in zip("abcde", odd, strict=True)}
    assert gpu_notices(records, {name: ("fp32" if name < "d" else "RR", 0) for name in records}, "fp32") == []


def test_the_report_warns(make: Any) -> None:
    study: Results = make()
    for record in study.records:
        gpu = {"name": A, "uuid": "GPU-1" if record.arm == "RR" else "GPU-2"}
        write_json(RunFolder(record.folder).environment_path, {"gpu": [gpu]})
    said = [text for text in summarize(study)["notices"] if "GPU" in text]
    assert len(said) == 1
    assert said[0].startswith("RR and fp32 never had a GPU in common")
