from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trivet.core.config import build, merge
from trivet.core.errors import ConfigError, MissingDataError, MissingExtraError
from trivet.core.runfolder import RunFolder
from trivet.ghn import GHN, GHNConfig
from trivet.tasks.config import RunConfig
from trivet.tasks.data.detection_data import Part
from trivet.tasks.detection import average_precision, build_job, counted, flipped
from trivet.tasks.run import run_task
from trivet.training.checkpoint import Checkpoints
from trivet.training.loop import Fit, fit
from trivet.training.metrics import MetricsLog

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torchvision", "pycocotools")),
    reason="needs `pip install 'trivet[vision,detection]'`",
)

MakeRun = Callable[..., RunFolder]
CPU = torch.device("cpu")

BASE: dict[str, Any] = {
    "task": {
        "name": "detection",
        "data": "tiny",
        "height": 32,
        "width": 48,
        "backbone_width": 4,
        "strides": [8, 16],
        "anchors": [8, 16],
        "channels": 16,
    },
    "training": {
        "steps": 60,
        "batch_size": 4,
        "optimizer": {"name": "adam", "lr": 0.005},
        "clip_norm": 1.0,
        "log_every": 20,
        "checkpoint_every": 0,
    },
    "environment": {"device": "cpu", "threads": 1},
    "seed": 3,
}
LEARN = {"steps": 70, "batch_size": 8, "optimizer": {"lr": 0.01}, "schedule": {"name": "cosine"}}
RR = {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 2}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with `tiny`, a VOC folder: one or two bright rectangles, red ones lying, blue ones standing."""
    from PIL import Image

    root = tmp_path_factory.mktemp("root")
    folder = root / "tiny"
    for name in ("ImageSets/Main", "Annotations", "JPEGImages"):
        (folder / name).mkdir(parents=True)
    random = np.random.default_rng(0)
    for part, numbers in (("train", range(36)), ("test", range(36, 48))):
        (folder / "ImageSets" / "Main" / f"{part}.txt").write_text("".join(f"p{number}\n" for number in numbers))
        for number in numbers:
            pixels = random.integers(60, 90, (32, 48, 3), np.uint8)
            objects = ""
            for half in range(number % 3):  # none, one or two, in the left and the right half
                label = (number + half) % 2
                width, height = (16, 8) if label else (8, 16)
                left, top = 24 * half + int(random.integers(0, 25 - width)), int(random.integers(0, 33 - height))
                pixels[top : top + height, left : left + width] = (240, 20, 20) if label else (20, 20, 240)
                corners = zip(("xmin", "ymin", "xmax", "ymax"), (left, top, left + width, top + height), strict=True)
                box = "".join(f"<{corner}>{value}</{corner}>" for corner, value in corners)
                name = "red" if label else "blue one"
                objects += f"<object><name>{name}</name><bndbox>{box}</bndbox></object>"
            Image.fromarray(pixels).save(folder / "JPEGImages" / f"p{number}.png")
            (folder / "Annotations" / f"p{number}.xml").write_text(f"<annotation>{objects}</annotation>")
    return root


@pytest.fixture(autouse=True)
def _root(tiny: Path, _tiny_data: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIVET_DATA_ROOT", str(tiny))


def run_of(patch: dict[str, Any] | None = None) -> RunConfig:
    return build(RunConfig, merge(BASE, patch or {}))


def trained(run: RunConfig, folder: Path, stop: int | None = None) -> tuple[Fit, dict[str, Tensor]]:
    """Train, from where the folder stands, up to the end or to a step."""
    job, asked = build_job(run, CPU), iter(range(10**6))
    assert run.training is not None
    end = fit(
        job,
        run.training,
        device=CPU,
        log=MetricsLog(folder / "metrics.jsonl"),
        checkpoints=Checkpoints(folder / "checkpoint", key="x"),
        should_stop=lambda: next(asked) == stop,
    )
    return end, job.model.state_dict()


def test_a_run_learns_rectangles(make_run: MakeRun) -> None:
    folder = make_run(config=merge(BASE, {"precision": {"schedule": "static", "bits": 8}, "training": LEARN}))
    assert run_task(folder.path) == 0
    metrics = folder.read_result().metrics
    assert set(metrics) == {
        *("test_map50", "test_map75", "test_map", "test_ap50_red", "test_ap50_blue_one", "train_loss")
    }
    assert metrics["test_map50"] > 0.2  # 0 with random parameters
    assert metrics["test_map50"] == pytest.approx((metrics["test_ap50_red"] + metrics["test_ap50_blue_one"]) / 2)
    assert metrics["test_map"] < metrics["test_map50"]
    assert "36 pictures to learn from (36 boxes, 12 without any)" in folder.log_path.read_text()


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    run = run_of({"task": {"flip": "both"}, "precision": RR, "training": {"steps": 13}})
    whole, weights = trained(run, tmp_path / "whole")
    stopped, _ = trained(run, tmp_path / "cut", stop=7)
    assert (stopped.outcome, stopped.step) == ("stopped", 7)
    resumed, same = trained(run, tmp_path / "cut")
    assert resumed.metrics == whole.metrics
    assert weights.keys() == same.keys()
    assert all(torch.equal(value, same[name]) for name, value in weights.items())


def test_what_is_quantized_is_what_is_counted() -> None:
    """Everything that multiplies, by hand; the heads run once a level, with 9 anchors and 2 classes."""
    job = build_job(run_of({"precision": {"schedule": "static", "bits": 8}}), CPU)
    job.loss(job.model, 0).backward()
    controller: Any = job.steppers["precision"]
    rows = controller.report()
    assert all(row.quantised for row in rows)
    assert len(rows) == 1 + 3 * 3 + 4 + 8 + 2 + 3  # stem; blocks up to 16, and 32, which no level takes; pyramid; heads
    controller.step()
    assert controller.cost == job.observe(1)["bitops"]
    model, example = counted(run_of())
    assert example.shape == (1, 3, 32, 48)
    heads = (24 + 6) * 9 * (8 * 16 * 16 + 16 * 18 + 16 * 36)
    pyramid = 24 * 16 * 16 + 6 * 32 * 16 + (24 + 6) * 9 * 16 * 16
    from trivet.precision.cost import layer_macs

    found = {layer.name: layer.macs for layer in layer_macs(model, example)}
    assert sum(macs for name, macs in found.items() if ".head." in name) == heads
    assert sum(macs for name, macs in found.items() if ".fpn." in name) == pyramid
    assert job.observe(1)["bitops"] == sum(found.values()) * 4 * 192


def test_evaluation_is_at_the_declared_precision() -> None:
    job = build_job(run_of({"precision": {**RR, "q_min": 2}}), CPU)
    job.loss(job.model, 0)
    job.model.eval()
    controller: Any = job.steppers["precision"]
    seen: list[int] = []
    job.model.register_forward_pre_hook(lambda module, inputs: seen.append(controller.bits))
    assert controller.bits == 2
    with torch.no_grad():
        images = torch.randn(1, 3, 32, 48)
        with controller.at(8):
            high = job.model(images)[0]
        with controller.at(2):
            assert not torch.equal(job.model(images)[0], high)
        assert torch.equal(job.model(images)[0], high)
        wanted = job.evaluate()
        with controller.at(8):
            assert job.evaluate() == wanted


def test_a_hypernetwork_predicts_what_it_covers(tmp_path: Path, caplog: Any) -> None:
    ghn = str(GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0).save_pretrained(tmp_path / "g"))
    random = dict(build_job(run_of(), CPU).model.named_parameters())
    with caplog.at_level("INFO"):
        model = build_job(run_of({"init": {"ghn": ghn, "head": "resize"}}), CPU).model
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, random[name])}
    assert "init: " in caplog.text
    assert {"net.backbone.backbone.body.conv.weight", "net.head.regression_head.conv.0.0.weight"} <= changed
    job = build_job(run_of({"init": {"ghn": ghn, "head": "keep"}}), CPU)
    kept = dict(job.model.named_parameters())
    last = [name for name in kept if ".cls_logits." in name or ".bbox_reg." in name]
    assert len(last) == 4
    assert all(torch.equal(kept[name], random[name]) for name in last)
    assert job.extra["init"]["kept"]["the classifier is kept, as asked"] == last
    assert job.extra["init"]["predicted_tensors"] == len(kept) - sum(map(len, job.extra["init"]["kept"].values()))
    assert "net.head.regression_head.conv.0.0.weight" in {n for n, p in kept.items() if not torch.equal(p, random[n])}


def test_batches_are_the_same_whoever_asks_and_mirrored_with_their_boxes() -> None:
    images = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)
    boxes = [torch.tensor([[1.0, 0.0, 3.0, 2.0]]), torch.zeros(0, 4)]
    both, moved = flipped(images, boxes, torch.tensor([[True, False], [True, False]]))
    assert torch.equal(both[0], images[0].flip(1, 2))
    assert torch.equal(both[1], images[1])
    assert moved[0].tolist() == [[3, 2, 5, 4]]
    assert torch.equal(both[0][:, 2:4, 3:5].flip(1, 2), images[0][:, 0:2, 1:3])
    run = run_of({"task": {"flip": "horizontal"}})
    one, other = build_job(run, CPU), build_job(run, CPU)
    one.loss(one.model, 0)
    other.model.load_state_dict(one.model.state_dict())
    assert torch.equal(one.loss(one.model, 5), other.loss(other.model, 5))


def by_hand(found: list[dict[str, np.ndarray]], truth: Part, label: int, threshold: float) -> float:
    """Average precision of one class: greedy matching from the best score down, 101 recalls, best precision beyond."""
    guesses: list[tuple[float, bool]] = []
    names = ("scores", "boxes", "labels")
    for one, boxes, labels in zip(found, truth.boxes, truth.labels, strict=True):
        free = [tuple(box) for box in boxes[labels == label].astype(float)]
        mine = [(score, box) for score, box, kind in zip(*(one[name] for name in names), strict=True) if kind == label]
        for score, (a, b, c, d) in sorted(mine, key=lambda pair: -pair[0]):
            overlaps = []
            for e, f, g, h in free:
                inside = max(min(c, g) - max(a, e), 0) * max(min(d, h) - max(b, f), 0)
                overlaps.append(inside / ((c - a) * (d - b) + (g - e) * (h - f) - inside))
            best = int(np.argmax(overlaps)) if overlaps else -1
            hit = best >= 0 and overlaps[best] >= threshold
            if hit:
                free.pop(best)
            guesses.append((score, hit))
    hits = np.array([hit for _, hit in sorted(guesses, key=lambda pair: -pair[0])], float)
    number = sum(int((labels == label).sum()) for labels in truth.labels)
    recall, precision = hits.cumsum() / number, hits.cumsum() / np.arange(1, len(hits) + 1)
    beyond = [precision[recall >= level].max(initial=0.0) for level in np.linspace(0, 1, 101) - 1e-12]
    return float(np.mean(beyond))


def test_average_precision_against_one_by_hand() -> None:
    random = np.random.default_rng(1)
    boxes, labels, found = [], [], []
    for _ in range(12):
        corners = random.integers(0, 60, (5, 2)).astype(float)
        true = np.concatenate([corners, corners + random.integers(8, 30, (5, 2))], 1)
        boxes.append(true.astype(np.float32))
        labels.append(random.integers(0, 2, 5))
        guessed = np.concatenate([true + random.normal(0, 2, true.shape), true + random.normal(0, 9, true.shape)])
        guessed[:, 2:] = np.maximum(guessed[:, 2:], guessed[:, :2] + 1)
        kinds = np.concatenate([labels[-1], random.integers(0, 2, 5)])
        found.append({"boxes": guessed, "scores": random.random(10), "labels": kinds})
    ignored = tuple(np.zeros(5, bool) for _ in boxes)
    truth = Part(images=np.zeros((12, 3, 1, 1), np.uint8), boxes=tuple(boxes), labels=tuple(labels), ignored=ignored)
    values = average_precision(found, truth, ["a b", "c", "never"])
    assert set(values) == {"map50", "map75", "map", "ap50_a_b", "ap50_c"}
    assert values["ap50_a_b"] == pytest.approx(by_hand(found, truth, 0, 0.5))
    assert values["ap50_c"] == pytest.approx(by_hand(found, truth, 1, 0.5))
    assert values["map75"] == pytest.approx((by_hand(found, truth, 0, 0.75) + by_hand(found, truth, 1, 0.75)) / 2)
    assert 0.2 < values["map"] < values["map50"] < 0.95
    nothing = {"boxes": np.zeros((0, 4)), "scores": np.zeros(0), "labels": np.zeros(0, int)}
    assert average_precision([nothing] * 12, truth, ["a b", "c"])["map"] == 0


def test_ignored_boxes_count_neither_way() -> None:
    box = np.array([[0, 0, 10, 10], [20, 20, 40, 40]], np.float32)
    truth = Part(
        images=np.zeros((1, 3, 1, 1), np.uint8),
        boxes=(box,),
        labels=(np.array([0, 0]),),
        ignored=(np.array([False, True]),),
    )
    both = {"boxes": box, "scores": np.array([0.5, 0.9]), "labels": np.array([0, 0])}
    one = {name: value[:1] for name, value in both.items()}
    for found in (both, one):
        assert average_precision([found], truth, ["a"])["map"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"task": {"height": 8}}, r"`height=8` must lie in \[16, 4096\]"),
        ({"task": {"channels": 0}}, "`channels=0`"),
        ({"task": {"strides": [8, 32]}}, r"`strides=\[8, 32\]` must follow one another"),
        ({"task": {"strides": [32, 64], "anchors": []}}, "hold both or none of 64 and 128"),
        ({"task": {"strides": []}}, "must follow one another"),
        ({"task": {"anchors": [8]}}, "one size for each of the 2 `strides`"),
        ({"task": {"anchors": [16, 8]}}, "growing sizes in pixels"),
        ({"task": {"pretrained": "x.pth"}}, "no effect with `backbone: small`"),
        ({"task": {"classes": ["a", "a"]}}, "names one twice"),
        ({"task": {"flip": "vertical"}}, "none, horizontal, both"),
        ({"task": {"backbne": "small"}}, "did you mean 'backbone'"),
        ({"task": {"command": "x"}}, "belong to a command"),
    ],
)
def test_refused_when_built(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(RunConfig, merge(BASE, patch), file="s.yaml")


def test_refused_by_check(monkeypatch: pytest.MonkeyPatch) -> None:
    patch = {
        "task": {"backbone": "torchvision:resnet19", "pretrained": "no.pth", "classes": ["red", "blue"]},
        "training": {"batch_size": 37},
    }
    with pytest.raises(
        ConfigError, match=r"resnet18(.|\n)*no such file(.|\n)*'blue one'; allowed: red, blue"
    ) as caught:
        run_of(patch).check(file="s.yaml")
    assert [item.key for item in caught.value.problems] == ["task.backbone", "task.pretrained", "task.data"]
    with pytest.raises(ConfigError, match="found 37; allowed: at most 36"):
        run_of({"training": {"batch_size": 37}}).check()
    with pytest.raises(ConfigError, match=r"unknown backbone 'resnet18'; .* write 'torchvision:resnet18'"):
        run_of({"task": {"backbone": "resnet18"}}).check()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pycocotools" else object())
    with pytest.raises(MissingExtraError, match=r"trivet\[detection\]"):
        run_of().check()


def test_data_that_cannot_be_used_end_with_code_2_and_no_result(make_run: MakeRun) -> None:
    with pytest.raises(MissingDataError, match="'nowhere' are not on this machine"):
        run_of({"task": {"data": "nowhere"}}).check()
    folder = make_run(config=merge(BASE, {"task": {"data": "nowhere"}}))
    assert run_task(folder.path) == 2
    assert not folder.result_path.exists()
    assert not folder.metrics_path.exists()


def test_a_study_is_planned_counted_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trivet.__main__ import main

    base = {key: value for key, value in BASE.items() if key != "seed"}
    study = {
        "name": "boxes",
        "base": {**base, "training": {**BASE["training"], "steps": 2}},
        "factors": {"precision": {"fp32": {}, "RR": RR}},
        "seeds": 1,
        "metric": {"name": "test_map50", "margin": 0.1},
    }
    (tmp_path / "boxes.yaml").write_text(json.dumps(study))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["trivet", "run", "boxes.yaml", "--json", "--no-report", "--slots", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert not ended.value.code, shown.err
    result = json.loads(shown.out)
    assert [arm["runs"]["finished"] for arm in result["arms"]] == [1, 1]
