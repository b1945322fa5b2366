"""Properties of the plan: complete, blocked, and stable whatever else changes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.core.config import digest
from trivet.study.plan import plan
from trivet.study.spec import MetricSpec, StudySpec

names = st.text("abcdefgh-1", min_size=1, max_size=4)
seeds = st.lists(st.integers(0, 2**40), min_size=1, max_size=6, unique=True)
widths = st.dictionaries(names, st.integers(1, 50), min_size=1, max_size=4).filter(
    lambda d: len(set(d.values())) == len(d)
)
threads = st.dictionaries(names, st.integers(1, 50), min_size=1, max_size=4).filter(
    lambda d: len(set(d.values())) == len(d)
)


def spec_of(width: dict[str, int], thread: dict[str, int], seed_list: list[int]) -> StudySpec:
    factors: dict[str, dict[str, dict[str, Any]]] = {
        "task": {name: {"width": value} for name, value in width.items()},
        "hardware": {name: {"environment": {"threads": value}} for name, value in thread.items()},
    }
    base = {"task": {"model": "resnet8"}, "training": {"steps": 10}}
    return StudySpec(name="p", base=base, factors=factors, seeds=seed_list, metric=MetricSpec(name="test_accuracy"))


@settings(max_examples=40, deadline=None)
@given(widths, threads, seeds)
def test_every_arm_and_seed_once_in_blocks(width: dict[str, int], thread: dict[str, int], seed_list: list[int]) -> None:
    runs = plan(spec_of(width, thread, seed_list))
    assert Counter((run.arm, run.seed) for run in runs) == {
        (f"{w} · {t}", seed): 1 for w in width for t in thread for seed in seed_list
    }
    arms = len(width) * len(thread)
    assert [run.seed for run in runs] == [seed for seed in seed_list for _ in range(arms)]
    assert len({run.run_id for run in runs}) == len(runs)
    for run in runs:
        assert run.run_id == digest(run.config)
        assert run.config["seed"] == run.seed
        assert run.config["task"]["width"] == width[run.levels["task"]]
        assert run.config["environment"]["threads"] == thread[run.levels["hardware"]]


@settings(max_examples=40, deadline=None)
@given(widths, threads, seeds, st.randoms(use_true_random=False))
def test_ids_and_order_within_a_block_do_not_depend_on_the_file(
    width: dict[str, int], thread: dict[str, int], seed_list: list[int], random: Any
) -> None:
    def shuffled(content: dict[str, int]) -> dict[str, int]:
        items = list(content.items())
        random.shuffle(items)
        return dict(items)

    runs = plan(spec_of(width, thread, seed_list))
    others = plan(spec_of(shuffled(width), shuffled(thread), random.sample(seed_list, len(seed_list))))
    assert {(r.arm, r.seed): r.run_id for r in runs} == {(r.arm, r.seed): r.run_id for r in others}
    for seed in seed_list:
        assert [r.arm for r in runs if r.seed == seed] == [r.arm for r in others if r.seed == seed]


def test_more_levels_and_seeds_move_no_run() -> None:
    small = plan(spec_of({"a": 1, "b": 2}, {"x": 1}, [0, 1]))
    large = plan(spec_of({"a": 1, "b": 2, "c": 3}, {"x": 1}, [0, 1, 2]))
    kept = [run.run_id for run in large if run.run_id in {r.run_id for r in small}]
    assert kept == [run.run_id for run in small]


def test_the_order_is_random() -> None:
    runs = plan(spec_of({c: i + 1 for i, c in enumerate("abcdefgh")}, {"x": 1}, list(range(200))))
    first = Counter(run.arm for index, run in enumerate(runs) if index % 8 == 0)
    assert len(first) == 8
    assert max(first.values()) < 45  # expected 25 each


def test_no_factors() -> None:
    spec = StudySpec(
        name="p",
        base={"task": {"model": "resnet8"}, "training": {"steps": 10}},
        seeds=2,
        metric=MetricSpec(name="test_accuracy"),
    )
    assert [(run.arm, run.seed) for run in plan(spec)] == [("base", 0), ("base", 1)]


def test_the_cost_of_a_plan_is_linear() -> None:
    """200 runs take about ten times as long as 20; a square law would take a hundred times."""
    width = {"a": 1, "b": 2}
    plan(spec_of(width, {"x": 1}, [0]))

    def best(number: int) -> float:
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            assert len(plan(spec_of(width, {"x": 1}, list(range(number))))) == 2 * number
            times.append(time.perf_counter() - begun)
        return min(times)

    assert best(100) < 30 * best(10)


def test_planning_loads_neither_torch_nor_scipy() -> None:
    code = (
        "import sys; from trivet.study import Study, StudySpec, MetricSpec, Results, LocalExecutor\n"
        "spec = StudySpec(name='p', base={'task': {'model': 'resnet8'}, 'training': {'steps': 9}}, "
        "metric=MetricSpec(name='test_accuracy'))\n"
        "study = Study(spec, '/nonexistent/x'); study.check(); study.status()\n"
        "print(sorted({'torch', 'scipy', 'pandas', 'torchvision', 'altair'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
