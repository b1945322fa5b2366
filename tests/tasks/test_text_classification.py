from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from trivet.cli.costs import answer
from trivet.core.config import build, merge
from trivet.core.errors import ConfigError, MissingDataError, MissingExtraError
from trivet.core.runfolder import RunFolder
from trivet.tasks.config import RunConfig
from trivet.tasks.run import run_task

sys.path.insert(0, str(Path(__file__).parent.parent / "models"))
from tiny_bert import POSITIONS, make_tiny_bert

sys.path.pop(0)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs `pip install 'trivet[text]'`"
)

MakeRun = Callable[..., RunFolder]
CPU = torch.device("cpu")

BASE: dict[str, Any] = {
    "task": {"name": "text-classification", "data": "films.jsonl", "model": "bert"},
    "training": {
        "steps": 50,
        "batch_size": 8,
        "optimizer": {"name": "adamw", "lr": 0.03},
        "schedule": {"name": "linear", "warmup_steps": 3},
        "log_every": 10,
        "checkpoint_every": 0,
    },
    "environment": {"device": "cpu", "threads": 1},
    "seed": 3,
}
RR = {"schedule": "RR", "q_min": 4, "q_max": 8, "num_cycles": 2}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with documents and an encoder."""
    folder = tmp_path_factory.mktemp("text")
    make_tiny_bert(folder / "bert")
    good, bad = ("good", "fine", "great"), ("bad", "poor", "awful")
    rows = []
    for i in range(200):
        word = (good if i % 2 else bad)[i // 2 % 3]
        text = " ".join((*["very"] * (i % 5), word))
        other = (good if i // 4 % 2 else bad)[i % 3]
        rows.append(
            {
                "text": text,
                "label": "pro" if i % 2 else "con",
                "other": f"a {other} book",
                "same": int(i % 2 == i // 4 % 2),
            }
        )
    (folder / "films.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(autouse=True)
def _there(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIVET_DATA_ROOT", str(bert))


def run_of(patch: dict[str, Any] | None = None) -> RunConfig:
    return build(RunConfig, merge(BASE, patch or {}))


def job_of(patch: dict[str, Any] | None = None) -> Any:
    from trivet.tasks.text_classification import build_job

    return build_job(run_of(patch), CPU)


@pytest.mark.parametrize(
    ("task", "precision"),
    [
        ({"layers": 1}, {}),
        ({"layers": 1, "train_embeddings": False}, {"schedule": "static", "bits": 8}),
        ({"layers": 1, "pair_column": "other", "pretrained": False}, RR),
    ],
)
def test_a_run_learns(task: dict[str, Any], precision: dict[str, Any], make_run: MakeRun) -> None:
    """One word tells the class; chance is 0.5."""
    folder = make_run(config=merge(BASE, {"task": {"pooling": "mean", **task}, "precision": precision}))
    assert run_task(folder.path) == 0
    metrics = folder.read_result().metrics
    assert set(metrics) == {"test_accuracy", "test_loss", "valid_accuracy", "valid_loss", "train_loss"}
    assert metrics["test_accuracy"] > 0.7
    assert "of the test occur in training" in folder.log_path.read_text()


def test_interrupted_and_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    """Stopped inside a pool of batches, in a schedule, with dropout."""
    from trivet.training.checkpoint import Checkpoints
    from trivet.training.loop import fit
    from trivet.training.metrics import MetricsLog

    run = run_of({"training": {"steps": 12}, "precision": RR})

    def train(folder: Path, stop_at: int = -1) -> Any:
        folder.mkdir(exist_ok=True)
        job, calls = job_of({"training": {"steps": 12}, "precision": RR}), iter(range(100))
        assert run.training is not None
        end = fit(
            job,
            run.training,
            device=CPU,
            log=MetricsLog(folder / "metrics.jsonl"),
            checkpoints=Checkpoints(folder, key="x"),
            should_stop=lambda: next(calls) == stop_at,
        )
        return end, job.model.state_dict()

    whole, weights = train(tmp_path / "whole")
    stopped, _ = train(tmp_path / "cut", stop_at=7)
    assert (stopped.outcome, stopped.step) == ("stopped", 7)
    resumed, same = train(tmp_path / "cut")
    assert resumed.metrics == whole.metrics
    assert all(torch.equal(weights[name], same[name]) for name in weights)


@pytest.mark.parametrize("pooling", ["head", "mean"])
def test_padding_changes_nothing(pooling: str) -> None:
    """The loss of a padded batch is that of its texts one by one; that of `head` is the library's own class."""
    from transformers import AutoModelForSequenceClassification

    from trivet.models.text_encoder import token_numbers
    from trivet.tasks.text_batches import padded

    task: Any = run_of({"task": {"pooling": pooling, "pair_column": "other"}}).task
    documents, files = task.load(), task.files()
    job = job_of({"task": {"pooling": pooling, "pair_column": "other"}})
    model = job.model.eval()
    tokens, segments = token_numbers(files, documents.train.texts[:9], documents.train.pairs[:9])
    assert len({len(text) for text in tokens}) > 2
    assert segments[0] == [0] * (tokens[0].index(3) + 1) + [1] * (len(tokens[0]) - tokens[0].index(3) - 1)
    with torch.no_grad():
        alone = torch.cat([model(*padded([a], [b], 0)) for a, b in zip(tokens, segments, strict=True)])
        torch.testing.assert_close(model(*padded(tokens, segments, 0)), alone, rtol=1e-4, atol=1e-5)
        if pooling == "head":
            theirs = AutoModelForSequenceClassification.from_pretrained(files.path, num_labels=2).eval()
            theirs.classifier.load_state_dict(model.encoder.classifier.state_dict())
            names = ("input_ids", "attention_mask", "token_type_ids")
            given = dict(zip(names, padded(tokens, segments, 0), strict=True))
            torch.testing.assert_close(theirs(**given).logits, alone, rtol=1e-4, atol=1e-5)


def test_metrics_by_hand() -> None:
    """Accuracy and loss of the test part, a text at a time."""
    from trivet.models.text_encoder import token_numbers
    from trivet.tasks.text_batches import padded

    job, task = job_of(), run_of().task
    documents: Any = task.load()  # type: ignore[attr-defined]
    tokens, segments = token_numbers(task.files(), documents.test.texts)  # type: ignore[attr-defined]
    model, labels = job.model.eval(), torch.from_numpy(documents.test.labels)
    with torch.no_grad():
        logits = torch.cat([model(*padded([a], [b], 0)) for a, b in zip(tokens, segments, strict=True)])
        found = job.evaluate()
    assert found["test_accuracy"] == (logits.argmax(1) == labels).double().mean().item()
    assert found["test_loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)


def test_what_is_quantized_is_what_is_counted() -> None:
    """Every batch at its own length; multiply-accumulates of a BERT layer by hand."""
    job = job_of({"task": {"layers": 1}, "training": {"steps": 8}, "precision": RR})
    controller: Any = job.steppers["precision"]
    for step in range(8):
        job.loss(job.model, step).backward()
        if step == 0:
            exact = [row.name for row in controller.report() if not row.quantised]
            assert all("embeddings" in name for name in exact)
        controller.step()
        assert controller.cost == job.observe(step + 1)["bitops"]
    from trivet.tasks.text_classification import _layers

    for length in (5, 9):
        products = 4 * 16 * 16 + 2 * 16 * 32
        by_hand = length * products + 2 * length * length * 16 + 16 * 16 + 16 * 2
        assert sum(layer.macs for layer in _layers(job.model, CPU, length)) == by_hand


def test_cost_before_the_run_is_near_that_of_the_run() -> None:
    runs = [
        {"name": name, "config": merge(BASE, {"precision": precision, "curvature": {}, "noise": {}})}
        for name, precision in (("fp32", {}), ("static8", {"schedule": "static", "bits": 8}))
    ]
    rows = {row["name"]: row for row in answer({"runs": runs})["runs"]}
    assert rows["static8"]["bitops"] == rows["fp32"]["bitops"] * 192 / 3072
    assert rows["fp32"]["bitops"] == pytest.approx(job_of().observe(50)["bitops"], rel=0.1)


def test_frozen_embeddings_and_random_parameters() -> None:
    frozen = job_of({"task": {"train_embeddings": False}}).model
    still = [name for name, value in frozen.named_parameters() if not value.requires_grad]
    assert still == [name for name, _ in frozen.named_parameters() if "embeddings" in name and "Norm" not in name]
    name = "encoder.bert.encoder.layer.0.output.dense.weight"
    one, other = (job_of({"seed": seed}).model.state_dict()[name] for seed in (1, 2))
    assert torch.equal(one, other)
    one, other = (job_of({"seed": seed, "task": {"pretrained": False}}).model.state_dict()[name] for seed in (1, 2))
    assert not torch.equal(one, other)


def test_a_hypernetwork_predicts_a_random_encoder_and_not_a_pretrained_one(tmp_path: Path, caplog: Any) -> None:
    from trivet.ghn import GHN, GHNConfig

    ghn = str(GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0).save_pretrained(tmp_path / "g"))
    for init in ({"ghn": ghn, "head": "keep"}, {"method": "orthogonal"}):
        with pytest.raises(ConfigError, match="written over what was learned"):
            run_of({"init": init}).check()
    random = {"task": {"pretrained": False}}
    run_of({"init": {"ghn": ghn, "head": "keep"}, **random}).check()
    before = dict(job_of(random).model.named_parameters())
    with caplog.at_level("INFO"):
        model = job_of({"init": {"ghn": ghn, "head": "keep"}, **random}).model
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert {f"encoder.bert.encoder.layer.{k}.intermediate.dense.weight" for k in (0, 1)} <= changed
    assert "init: " in caplog.text


def test_long_texts_are_cut_and_said_so(caplog: Any) -> None:
    """Two marks and a word a token."""
    from trivet.tasks.text_classification import Texts

    task: Any = run_of({"task": {"max_length": 5}}).task
    documents = task.load()
    longer = sum(len(text.split()) + 2 > 5 for text in documents.train.texts)
    with caplog.at_level("INFO"):
        texts = Texts(task, task.files(), documents)
    assert (texts.max_length, max(texts.lengths("train"))) == (5, 5)
    assert f"train: {longer} of 160 texts are cut to 5 tokens" in caplog.text
    assert all(text[-1] == 3 for text in texts.numbers["train"][0])
    whole: Any = run_of().task
    assert Texts(whole, whole.files(), documents).max_length == 7


@pytest.mark.parametrize(
    ("patch", "key", "words"),
    [
        ({"task": {"data": ""}}, "task", "`data` is missing"),
        ({"task": {"model": ""}}, "task", "`model` is missing"),
        ({"task": {"pair_column": "text"}}, "task", "must differ; found text, text, label"),
        ({"task": {"label_column": ""}}, "task", "must name a column"),
        ({"task": {"max_length": 3}}, "task", "`max_length=3` must lie in"),
        ({"task": {"layers": -1}}, "task", "`layers=-1`"),
        ({"task": {"pooling": "men"}}, "task.pooling", "did you mean 'mean'"),
        ({"task": {"poling": "x"}}, "task.poling", "did you mean 'pooling'"),
    ],
)
def test_refused_when_built(patch: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(RunConfig, merge(BASE, patch), file="s.yaml")
    assert [problem.key for problem in caught.value.problems] == [key]


def test_refused_by_check(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = {"task": {"max_length": 17, "train_examples": 161}, "training": {"batch_size": 161}}
    with pytest.raises(ConfigError, match=f"found 17; allowed: at most {POSITIONS}") as found:
        run_of(patch).check(file="s.yaml")
    keys = [problem.key for problem in found.value.problems]
    assert keys == ["task.max_length", "task.train_examples", "training.batch_size"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"task\.model: .*holds no config\.json(.|\n)*task\.data: .*'texts'") as found:
        run_of({"task": {"model": str(tmp_path / "empty"), "text_column": "texts"}}).check()
    with pytest.raises(MissingDataError, match="encoder 'brt' is not on this machine"):
        run_of({"task": {"model": "brt"}}).check()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"trivet\[text\]"):
        run_of().check()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "no-such-kind", "num_hidden_layers": 3}, "transformers cannot make a no-such-kind encoder"),
        ({}, "task.layers: found 3; allowed: at most 2"),
    ],
)
def test_what_only_transformers_can_tell(
    changes: dict[str, Any], words: str, bert: Path, tmp_path: Path, make_run: MakeRun
) -> None:
    """Exit code 2, and nothing but the error is written."""
    folder = tmp_path / "other"
    folder.mkdir()
    for file in (bert / "bert").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    run = make_run(config=merge(BASE, {"task": {"model": str(folder), "layers": 3}}))
    assert run_task(run.path) == 2
    error = run.read_error()
    assert error is not None
    assert words in error["message"]
    assert not run.result_path.exists()
    assert not run.metrics_path.exists()
