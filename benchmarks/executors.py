"""The same study on this machine, on Ray and through submitit; Ray with a node that dies; Slurm where it runs.

    python benchmarks/executors.py same        a study of 4 short trainings, every executor: equal run by run?
    python benchmarks/executors.py node-loss   a Ray cluster of three node processes, one killed in the middle; with
                                               shared storage, and with runs that are copied there and back
    bash benchmarks/slurm_local.sh             Debian's Slurm on this machine, and the study `slurm` on it
    python benchmarks/executors.py slurm       the study alone, where sbatch works already

Each prints lines of a table for docs/scale.md. Needs the extras slurm and ray.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from trivet.study import Results, Study, StudySpec

TRAINING: dict[str, Any] = {
    "name": "tiny",
    "base": {
        "task": {"name": "image-classification", "data": "fashion-mnist", "model": "resnet8", "width": 4},
        "training": {"steps": 20, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.05}},
        "environment": {"device": "cpu"},
    },
    "factors": {"precision": {"fp32": {}, "RR": {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 1}}},
    "seeds": 2,
    "metric": {"name": "test_accuracy"},
}


def outcomes(results: Results) -> dict[str, Any]:
    return {r.run_id: (r.state, dict(r.metrics), r.steps, r.bitops) for r in results.records}


def same(root: Path) -> None:
    from trivet.study.executors.slurm import SlurmExecutor

    found: dict[str, Any] = {}
    print("| executor | runs | seconds | equal to `local`, run by run |\n|---|---|---|---|")
    for name in ("local", "submitit, local mode", "ray", "ray, copied"):
        folder = root / name.replace(", ", "-").replace(" ", "-")
        storage = "copied" if name.endswith("copied") else "shared"
        study = Study(StudySpec.from_mapping({**TRAINING, "resources": {"storage": storage}}), folder)
        is_slurm = name.startswith("submitit")
        place: Any = SlurmExecutor(folder / ".slurm", cluster="local") if is_slurm else name.partition(",")[0]
        begun = time.monotonic()
        found[name] = outcomes(study.run(place, slots=1))
        seconds = time.monotonic() - begun
        equal = sum(found[name][run] == values for run, values in found["local"].items())
        print(f"| {name} | {len(found[name])} | {seconds:.0f} | {equal} of {len(found['local'])} |", flush=True)


def slow_command(seeds: int, count: Path, storage: str = "shared") -> dict[str, Any]:
    """Runs of 5 seconds that note when they start and end."""
    script = f"echo start {{seed}} >> {count}; sleep 5; echo loss: {{seed}}.5; echo end {{seed}} >> {count}"
    task = {"command": f"sh -c '{script}'", "metrics": {"loss": r"loss: (\S+)"}}
    content = {"name": "slow", "base": {"task": task}, "seeds": seeds, "metric": {"name": "loss"}}
    return {**content, "resources": {"storage": storage}}


def told(results: Results, count: Path, seconds: float) -> str:
    lines = Counter(line.rsplit(" ", 1)[0] for line in count.read_text().splitlines())
    ends = Counter(line for line in count.read_text().splitlines() if line.startswith("end"))
    twice = sum(number > 1 for number in ends.values())
    states = ", ".join(f"{number} {state}" for state, number in results.counts.items())
    values = {r.metrics.get("loss") == r.seed + 0.5 for r in results.records}
    return (
        f"{states} in {seconds:.0f} s; {lines['start']} starts, {lines['end']} ends, {twice} ended twice; "
        f"every value right: {values == {True}}"
    )


def node_loss(root: Path) -> None:
    for storage in ("shared", "copied"):
        _lose_a_node(root / storage, storage)


def _wait_for(count: Path, word: str, number: int) -> None:
    while count.read_text().count(word) < number:
        time.sleep(0.1)


def _lose_a_node(root: Path, storage: str) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    root.mkdir()
    count = root / "count"
    count.touch()

    def kill() -> None:
        _wait_for(count, "end", 2)
        _wait_for(count, "start", 6)
        print(f"killing a node after: {count.read_text().split(chr(10))[-3:]}", flush=True)
        cluster.remove_node(nodes[1], allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    begun = time.monotonic()
    results = Study(StudySpec.from_mapping(slow_command(12, count, storage)), root / "slow").run("ray")
    print(
        f"Ray, 1 head and 2 node processes, one killed, storage {storage}:",
        told(results, count, time.monotonic() - begun),
    )
    killer.join()
    ray.shutdown()
    cluster.shutdown()


def slurm(root: Path) -> None:
    count = root / "count"
    count.touch()
    begun = time.monotonic()
    results = Study(StudySpec.from_mapping(slow_command(4, count)), root / "slow").run("slurm")
    print("Slurm:", told(results, count, time.monotonic() - begun), flush=True)
    text = next((root / "slow" / ".slurm").glob("*submission.sh"), None)
    print(text.read_text() if text else "no batch file was found")
    local, there = (Study(StudySpec.from_mapping(TRAINING), root / f"train-{name}") for name in ("local", "slurm"))
    first, second = outcomes(local.run("local", slots=1)), outcomes(there.run("slurm", slots=1))
    print(f"Slurm against local: {sum(first[run] == second[run] for run in first)} of {len(first)} runs equal")
    blocks = Study(StudySpec.from_mapping({**TRAINING, "resources": {"block": "seed"}}), root / "train-blocks")
    third = outcomes(blocks.run("slurm"))
    jobs = len(list((root / "train-blocks" / ".slurm").glob("*_submitted.pkl")))
    print(f"Slurm, block: seed: {sum(first[run] == third[run] for run in first)} of {len(first)} equal, {jobs} jobs")
    count.write_text("")
    by_hand = threading.Thread(
        target=lambda: (_wait_for(count, "start", 1), subprocess.run(["scancel", "--me", "--full", "--signal=KILL"]))
    )
    by_hand.start()
    begun = time.monotonic()
    results = Study(StudySpec.from_mapping(slow_command(1, count)), root / "killed").run("slurm")
    print("Slurm, a job killed:", told(results, count, time.monotonic() - begun), flush=True)
    by_hand.join()
    for record in there.status().records:
        if second[record.run_id] != first[record.run_id]:
            print("not equal:", record, (record.folder / "log.txt").read_text()[-500:])


if __name__ == "__main__":
    actions = {"same": same, "node-loss": node_loss, "slurm": slurm}
    if len(sys.argv) != 2 or sys.argv[1] not in actions:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="trivet-executors-") as scratch:
        actions[sys.argv[1]](Path(scratch))
