"""Figures of the page on detection: what needs no network, full precision against 8 bits, and the share of data.

    python benchmarks/detection.py outside bccd --write docs/tasks/detection.md
    python benchmarks/detection.py study studies/detection-bccd --write docs/tasks/detection.md
    python benchmarks/detection.py share bccd

`outside` gives two detectors without any network the same pictures and the same evaluation: the layout of the training
boxes, the same for every picture, and a threshold of color with connected regions, both thresholds chosen on the
training pictures. `study` compares the arms of a finished or unfinished study; seeds that did not finish in every arm
are left out and counted. `share` times what a training step spends on its batch and on everything else.
"""

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
from blocks import show_or_put

HEIGHT, WIDTH = 120, 160
MOST = 100
Found = dict[str, np.ndarray]


def layout(boxes: tuple[np.ndarray, ...], labels: tuple[np.ndarray, ...], classes: int) -> Found:
    """The same boxes for every picture: of each class the median box, where its training boxes lie most densely."""
    every, kind = np.concatenate(boxes), np.concatenate(labels)
    guesses: list[tuple[float, int, np.ndarray]] = []
    for label in range(classes):
        own = every[kind == label]
        half = np.median(own[:, 2:] - own[:, :2], axis=0) / 2
        centers = (own[:, :2] + own[:, 2:]) / 2
        for x, y in itertools.product(np.arange(half[0], WIDTH, half[0]), np.arange(half[1], HEIGHT, half[1])):
            near = (np.abs(centers - [x, y]) < half / 2).all(1).sum() / len(boxes)
            guesses.append((near, label, np.array([x - half[0], y - half[1], x + half[0], y + half[1]])))
    best = sorted(guesses, key=lambda guess: -guess[0])[:MOST]
    return {
        "scores": np.array([score for score, _, _ in best]),
        "labels": np.array([label for _, label, _ in best]),
        "boxes": np.array([box for _, _, box in best]),
    }


def regions(image: np.ndarray, classes: tuple[str, ...], cell: float, nucleus: float, sizes: dict[str, float]) -> Found:
    """Connected regions: what is darker in green than `cell` is a cell; of these what is bluer than red is stained.

    A stained region is a white cell or a platelet, whichever median area of the training boxes is nearer.
    """
    from scipy import ndimage

    red, green, blue = (ndimage.gaussian_filter(channel.astype(float), 1) for channel in image)
    stained = blue - red > nucleus
    near = ndimage.binary_dilation(stained, iterations=2)
    found: Found = {"boxes": np.zeros((0, 4)), "scores": np.zeros(0), "labels": np.zeros(0, int)}
    for mask, kinds in ((stained, ("WBC", "Platelets")), ((green < cell) & ~near, ("RBC",))):
        marked, _ = ndimage.label(ndimage.binary_fill_holes(mask))
        for rows, columns in ndimage.find_objects(marked):
            box = np.array([columns.start, rows.start, columns.stop, rows.stop], float)
            area = (box[2] - box[0]) * (box[3] - box[1])
            kind = min(kinds, key=lambda kind: abs(np.log(area / sizes[kind])))
            found["boxes"] = np.concatenate([found["boxes"], box[None]])
            found["labels"] = np.append(found["labels"], classes.index(kind))
            found["scores"] = np.append(found["scores"], -abs(np.log(area / sizes[kind])))
    best = np.argsort(-found["scores"])[:MOST]
    return {name: values[best] for name, values in found.items()}


def outside(data_name: str) -> str:
    """Average precision of both detectors as a table."""
    from trivet.tasks.data.detection import load_detection
    from trivet.tasks.detection import average_precision

    data = load_detection(data_name, height=HEIGHT, width=WIDTH)
    same = layout(data.train.boxes, data.train.labels, len(data.classes))
    rows = {
        "the layout of the training boxes": average_precision([same] * len(data.test.images), data.test, data.classes)
    }
    if set(data.classes) == {"Platelets", "RBC", "WBC"}:
        every, kind = np.concatenate(data.train.boxes), np.concatenate(data.train.labels)
        areas = (every[:, 2:] - every[:, :2]).prod(1)
        sizes = {name: float(np.median(areas[kind == label])) for label, name in enumerate(data.classes)}
        tried: list[tuple[float, float, float]] = []
        for cell, nucleus in itertools.product((160, 170, 180, 190, 200, 210), (0, 5, 10, 20, 30)):
            some = [regions(image, data.classes, cell, nucleus, sizes) for image in data.train.images]
            tried.append((average_precision(some, data.train, data.classes)["map50"], cell, nucleus))
        _, cell, nucleus = max(tried)
        found = [regions(image, data.classes, cell, nucleus, sizes) for image in data.test.images]
        title = f"regions by color (green < {cell}, blue − red > {nucleus})"
        rows[title] = average_precision(found, data.test, data.classes)
    return table({name: {key: f"{value:.3f}" for key, value in row.items()} for name, row in rows.items()})


def table(rows: dict[str, dict[str, str]]) -> str:
    """Rows of metrics as Markdown."""
    columns = list(next(iter(rows.values())))
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(row.get(column, "") for column in columns) + " |" for name, row in rows.items()
    ]
    return "\n".join(lines)


def study(folder: Path) -> str:
    """Both arms of a study with intervals, and the verdict."""
    from trivet.stats import decide, equivalence, estimate
    from trivet.study import Results

    results = Results.load(folder)
    metric, margin = results.spec.metric.name, results.spec.metric.margin
    values = {arm: results.values(metric, arm) for arm in results.arms}
    seeds = [seed for seed in results.spec.seed_list if all(seed in found for found in values.values())]
    if len(seeds) < 2:
        raise SystemExit(f"{folder}: {len(seeds)} seeds finished in every arm; at least 2 are needed")
    names = sorted({name for record in results.records for name in record.metrics})
    names = [metric, *(name for name in names if name.startswith("test_") and name != metric)]
    rows: dict[str, dict[str, str]] = {}
    for arm in results.arms:
        rows[arm] = {}
        for name in names:
            found = estimate([results.values(name, arm)[seed] for seed in seeds])
            rows[arm][name.removeprefix("test_")] = f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
        bitops = results.values("bitops", arm)
        rows[arm]["BitOPs a run"] = f"{np.mean([bitops[seed] for seed in seeds]):.2e}"
    arms = list(results.arms)
    first, second = ([values[arm][seed] for seed in seeds] for arm in arms[:2])
    lost = len(results.spec.seed_list) - len(seeds)
    unfinished = f" ({lost} of the recipe not finished in both arms)" if lost else ""
    lines = [
        f"{results.spec.name}, n = {len(seeds)} seeds{unfinished}; mean [95 % t-interval].",
        "",
        table(rows),
        "",
        f"{arms[1]} against {arms[0]}, {metric}: {decide(first, second, margin, names=(arms[0], arms[1])).sentence}",
        "",
        f"Equivalence within ±{margin:g}: {equivalence(first, second, margin=margin)}",
    ]
    return "\n".join(lines)


def share(data_name: str, steps: int = 30) -> str:
    """Processor time of the batches and of whole steps of the recipe."""
    import torch

    from trivet.core.config import build, load_yaml
    from trivet.tasks.config import RunConfig
    from trivet.tasks.detection import _Pictures, build_job

    torch.set_num_threads(1)
    base = load_yaml(Path(__file__).parent.parent / "recipes" / "detection-bccd.yaml")["base"]
    run = build(RunConfig, {**base, "task": {**base["task"], "data": data_name}})
    job, task = build_job(run, torch.device("cpu")), run.task
    pictures = _Pictures(task.load(), task, run.training, run.seed, torch.device("cpu"))
    for warm in range(3):
        job.loss(job.model, warm).backward()
    start = time.process_time()
    for step in range(steps):
        pictures.batch(step)
    batches = time.process_time() - start
    start = time.process_time()
    for step in range(steps):
        job.loss(job.model, step).backward()
    whole = time.process_time() - start
    return (
        f"{1000 * batches / steps:.2f} ms of {1000 * whole / steps:.1f} ms of processor time a step make the batch: "
        f"{100 * (1 - batches / whole):.1f} % are computing (n = {steps} steps, without the optimizer)"
    )


def main() -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("outside", "study", "share"))
    parser.add_argument("source", help="data, or the folder of a study")
    parser.add_argument("--write", type=Path, help="document whose part `detection-WHAT` is replaced")
    options = parser.parse_args()
    text = {"outside": outside, "share": share}.get(options.what, lambda name: study(Path(name)))(options.source)
    show_or_put(text, options.write, f"detection-{options.what}")


if __name__ == "__main__":
    main()
