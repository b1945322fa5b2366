"""The callback in the real Trainer: bits, resuming, evaluation, wrong use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from trivet.core.errors import TrivetError
from trivet.precision import PrecisionConfig, PrecisionSchedule, RoleSchedules, dequantize_, quantize_
from trivet.precision.inject import covers, quantized_sites

transformers = pytest.importorskip("transformers", reason="needs `pip install 'trivet[huggingface]'`")
pytest.importorskip("accelerate", reason="needs `pip install 'trivet[huggingface]'`")

from trivet.integrations.huggingface import PrecisionCallback  # noqa: E402
from trivet.integrations.plainstate import to_json  # noqa: E402

STEPS = 8
"""22 examples in batches of 2 and groups of 3: 3 groups of 3 batches and one of 2, twice."""


class Examples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index >= 22:
            raise IndexError(index)
        tokens = torch.randint(0, 50, (7,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": torch.tensor(index % 2)}


class Stream(torch.utils.data.IterableDataset[dict[str, torch.Tensor]]):
    def __iter__(self) -> Any:
        return iter([Examples()[index] for index in range(22)])


class Net(nn.Module):
    """Much smaller than BERT, and multiplies in its own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(50, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.inner(self.embedding(input_ids).mean(1)).relu() @ self.weight)
        found = {"logits": logits}
        return found if labels is None else {"loss": nn.functional.cross_entropy(logits, labels), **found}


def bert() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **sizes)
    model: nn.Module = transformers.BertForSequenceClassification(config)
    return model


def net() -> nn.Module:
    torch.manual_seed(0)
    return Net()


def trainer_of(model: nn.Module, folder: Path, *callbacks: Any, data: Any = None, **options: Any) -> Any:
    usual = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_steps": 3,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    arguments = transformers.TrainingArguments(str(folder), **(usual | options))
    return transformers.Trainer(
        model, arguments, train_dataset=data or Examples(), eval_dataset=Examples(), callbacks=list(callbacks)
    )


class Watch(transformers.TrainerCallback):
    """Notes the bits of every training batch, and can crash."""

    def __init__(self, model: nn.Module, crash_at: int = 0) -> None:
        self.seen: list[int] = []
        self.crash_at = crash_at

        def note(module: nn.Module, *_: Any) -> None:
            if module.training:
                self.seen.append(quantized_sites(model)[0].dials.weight.bits)

        model.register_forward_pre_hook(note)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.crash_at:
            raise RuntimeError("power cut")


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """BERT, trained without interruption, with checkpoints of steps 3 and 6."""
    folder = tmp_path_factory.mktemp("whole")
    model = bert()
    keys = list(model.state_dict())
    callback = PrecisionCallback(PrecisionConfig(schedule="LR", q_min=3, q_max=8, num_cycles=2, grad_bits=7))
    watch = Watch(model)
    trainer = trainer_of(model, folder, callback, watch, eval_strategy="steps", eval_steps=3)
    result = trainer.train()
    return SimpleNamespace(
        folder=folder,
        model=model,
        keys=keys,
        callback=callback,
        watch=watch,
        trainer=trainer,
        result=result,
        weights=weights(model),
        state=to_json(callback.controller.state_dict()),
        losses=[row["loss"] for row in trainer.state.log_history if "loss" in row],
        evaluations=[row for row in trainer.state.log_history if "eval_loss" in row],
    )


def test_every_batch_of_a_group_runs_at_the_bits_of_its_optimizer_step(whole: SimpleNamespace) -> None:
    schedule = PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=2, total_steps=STEPS)
    groups = [3, 3, 3, 2] * 2
    expected = [bits for step, size in enumerate(groups) for bits in [schedule.bits(step)] * size]
    assert len(set(expected)) == 4
    assert whole.watch.seen == expected
    assert whole.callback.controller.schedule == schedule
    assert whole.callback.controller.last_step == whole.trainer.state.global_step == STEPS
    assert whole.callback.controller.grad_bits == 7


def test_the_report_proves_it(whole: SimpleNamespace) -> None:
    rows = {row.name: row for row in whole.callback.report()}
    row = rows["bert.encoder.layer.1.attention.self:qk"]
    assert row.quantised
    assert row.calls == 22
    assert 0 < rows["bert.encoder.layer.0.output.dense"].weight_error < 0.5
    assert not rows["classifier"].quantised
    assert whole.callback.controller.cost == sum(row.bitops for row in rows.values())


def test_logs(whole: SimpleNamespace) -> None:
    rows = [row for row in whole.trainer.state.log_history if "loss" in row]
    schedule = whole.callback.controller.schedule
    assert [row["bits"] for row in rows] == schedule.bits_array().tolist()
    costs = [row["bitops"] for row in rows]
    assert costs == sorted(costs)
    assert costs[0] > 0
    assert costs[-1] == whole.callback.controller.cost == whole.result.metrics["bitops"]
    assert [row["eval_bits"] for row in whole.evaluations] == [8, 8, 8]
    assert not any("bits" in row for row in whole.evaluations)


def test_evaluation_is_at_the_most_bits_and_the_model_stays_so(whole: SimpleNamespace) -> None:
    controller = whole.callback.controller
    assert controller.bits != 8
    metrics = whole.trainer.evaluate()
    assert metrics["eval_loss"] == whole.evaluations[-1]["eval_loss"]
    assert metrics["eval_bits"] == 8
    with controller.at(8):
        assert whole.trainer.evaluate()["eval_loss"] == metrics["eval_loss"]
    with controller.at(3):
        assert whole.trainer.evaluate()["eval_loss"] != metrics["eval_loss"]
    assert list(whole.model.state_dict()) == whole.keys


@pytest.mark.parametrize("restored", [False, True])
def test_resumed_equals_uninterrupted(
    whole: SimpleNamespace, restored: bool, config: PrecisionConfig, tmp_path: Path
) -> None:
    callback = PrecisionCallback(config)
    options = {"restore_callback_states_from_checkpoint": restored, "eval_strategy": "steps", "eval_steps": 3}
    trainer = trainer_of(bert(), tmp_path, callback, **options)
    trainer.train(resume_from_checkpoint=str(whole.folder / "checkpoint-3"))
    assert same(weights(trainer.model), whole.weights)
    history = trainer.state.log_history
    assert [row["loss"] for row in history if "loss" in row] == whole.losses
    assert [row["eval_loss"] for row in history if "eval_loss" in row] == [
        row["eval_loss"] for row in whole.evaluations
    ]
    found = trainer.pop_callback(PrecisionCallback)
    assert (found is callback) == (not restored)  # the Trainer makes a new one when it restores callbacks
    assert to_json(found.controller.state_dict()) == whole.state


def test_other_steps_or_seeds_would_show(whole: SimpleNamespace, config: PrecisionConfig, tmp_path: Path) -> None:
    trainer = trainer_of(bert(), tmp_path, PrecisionCallback(config, seed=1), save_strategy="no")
    trainer.train()
    assert not same(weights(trainer.model), whole.weights)


def test_a_crash_in_the_middle(config: PrecisionConfig, tmp_path: Path) -> None:
    reference = trainer_of(net(), tmp_path / "a", PrecisionCallback(config), save_strategy="no")
    reference.train()
    model, callback = net(), PrecisionCallback(config)
    with pytest.raises(RuntimeError, match="power cut"):
        trainer_of(model, tmp_path / "b", callback, Watch(model, crash_at=5)).train()
    again = trainer_of(net(), tmp_path / "b", PrecisionCallback(config))
    again.train(resume_from_checkpoint=True)
    assert same(weights(again.model), weights(reference.model))


def test_evaluating_a_checkpoint_in_a_new_process(
    whole: SimpleNamespace, config: PrecisionConfig, tmp_path: Path, caplog: Any
) -> None:
    checkpoint = whole.folder / "checkpoint-6"
    load = transformers.BertForSequenceClassification.from_pretrained
    callback = PrecisionCallback(config)
    model = callback.quantize(load(checkpoint), checkpoint)
    metrics = trainer_of(model, tmp_path, callback).evaluate()
    assert metrics["eval_loss"] == whole.evaluations[1]["eval_loss"]
    assert metrics["eval_bits"] == 8
    assert not caplog.records
    full = trainer_of(load(checkpoint), tmp_path, PrecisionCallback(config)).evaluate()
    assert full["eval_loss"] != metrics["eval_loss"]
    assert "eval_bits" not in full
    assert [r.name for r in caplog.records] == ["trivet.integrations.steering"]
    assert "full precision" in caplog.text


def test_declared_bits_of_evaluation_and_the_model_as_it_was(tmp_path: Path) -> None:
    model = net()
    schedule = PrecisionSchedule.named("CR", q_min=3, q_max=8, num_cycles=2, total_steps=STEPS)
    callback = PrecisionCallback(schedule, evaluate_bits=4, grad_bits=6, dequantize=True)
    trainer = trainer_of(model, tmp_path, callback, save_strategy="no", eval_strategy="epoch")
    trainer.train()
    assert [row["eval_bits"] for row in trainer.state.log_history if "eval_loss" in row] == [4, 4]
    assert callback.controller.grad_bits == 6
    assert not covers(model)
    assert callback.report()[0].calls == 22
    with pytest.raises(TrivetError, match="not quantized"):
        dequantize_(model)


def test_the_best_model_is_loaded_with_its_ranges(config: PrecisionConfig, tmp_path: Path) -> None:
    options = {"eval_strategy": "steps", "eval_steps": 1, "save_steps": 1, "load_best_model_at_end": True}
    stop = transformers.EarlyStoppingCallback(early_stopping_patience=2)
    callback = PrecisionCallback(config)
    trainer = trainer_of(net(), tmp_path, callback, stop, learning_rate=0.5, metric_for_best_model="loss", **options)
    trainer.train()
    assert trainer.state.global_step < STEPS  # stopped early
    assert trainer.state.best_global_step < trainer.state.global_step
    assert callback.controller.last_step == trainer.state.global_step
    assert trainer.evaluate()["eval_loss"] == trainer.state.best_metric


@pytest.mark.parametrize("bf16", [False, True])
def test_a_model_that_multiplies_in_its_own_forward(config: PrecisionConfig, bf16: bool, tmp_path: Path) -> None:
    model, callback = net(), PrecisionCallback(config)
    trainer = trainer_of(model, tmp_path, callback, bf16=bf16, save_strategy="no")
    trainer.train()
    rows = {row.name: row for row in callback.report()}
    assert rows[":matmul"].quantised
    assert rows[":matmul"].calls == 22
    wrapped = vars(model)["forward"].wrapped
    assert (wrapped is not None) == bf16  # Accelerate has covered the forward before
    assert model(**{k: v[None] for k, v in Examples()[0].items()})["logits"].dtype == torch.float32
    dequantize_(model)
    assert vars(model).get("forward") == wrapped


def test_autocast_reaches_the_quantized_layers(config: PrecisionConfig, tmp_path: Path) -> None:
    model, callback = net(), PrecisionCallback(config)
    seen: set[torch.dtype] = set()
    model.get_submodule("inner").register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    trainer_of(model, tmp_path, callback, bf16=True, save_strategy="no").train()
    assert seen == {torch.bfloat16}


def test_training_twice_is_the_same_twice(config: PrecisionConfig, tmp_path: Path) -> None:
    callback = PrecisionCallback(config)
    trainer = trainer_of(net(), tmp_path, callback, save_strategy="no")
    trainer.model_init = net
    trainer.call_model_init = lambda trial: net()
    ends = []
    for _ in range(2):
        transformers.set_seed(0)
        trainer.train()
        ends.append((weights(trainer.model), to_json(callback.controller.state_dict())))
    assert same(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_the_same_model_trained_again_forgets_its_ranges(config: PrecisionConfig, tmp_path: Path) -> None:
    model, callback = net(), PrecisionCallback(config)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    trainer_of(model, tmp_path, callback, save_strategy="no").train()
    first = to_json(callback.controller.state_dict())
    model.load_state_dict(start)
    trainer_of(model, tmp_path, callback, save_strategy="no").train()
    assert to_json(callback.controller.state_dict()) == first


def test_an_empty_configuration_changes_nothing_but_counts(tmp_path: Path) -> None:
    plain, counted, callback = net(), net(), PrecisionCallback(PrecisionConfig())
    trainer_of(plain, tmp_path, save_strategy="no").train()
    trainer = trainer_of(counted, tmp_path, callback, save_strategy="no")
    trainer.train()
    assert same(weights(plain), weights(counted))
    macs = 22 * 2 * (8 * 8 + 8 * 8 + 2 * 8)
    assert callback.controller.cost == macs * 3 * 32**2
    assert trainer.state.log_history[0]["bits"] == 32


def test_a_stream_of_unknown_length_and_roles(tmp_path: Path) -> None:
    wide = PrecisionSchedule.named("LT", q_min=6, q_max=8, num_cycles=2, total_steps=5)
    roles = RoleSchedules(weight=wide, activation=PrecisionSchedule.static(5, total_steps=5), gradient=wide)
    callback = PrecisionCallback(roles, overrides={"inner": {"weight": 4}})
    trainer = trainer_of(net(), tmp_path, callback, data=Stream(), max_steps=5)
    trainer.train()
    assert [row["bits"] for row in trainer.state.log_history if "loss" in row] == wide.bits_array().tolist()
    again = trainer_of(
        net(), tmp_path, PrecisionCallback(roles), data=Stream(), max_steps=5,
        restore_callback_states_from_checkpoint=True,
    )  # fmt: skip
    again.train(resume_from_checkpoint=True)  # with the overrides of the checkpoint
    assert same(weights(again.model), weights(trainer.model))


def test_a_model_that_is_quantized_already(config: PrecisionConfig, tmp_path: Path) -> None:
    model = quantize_(net(), lambda module, name: name == "head")
    callback = PrecisionCallback(config)
    trainer_of(model, tmp_path, callback, save_strategy="no").train()
    assert [row.name for row in callback.report() if row.quantised] == ["head"]
    for options in ({"filter_fn": lambda module, name: True}, {"quantizer": "published"}):
        schedule = PrecisionSchedule.static(8, total_steps=STEPS)
        with pytest.raises(ValueError, match=r"`(filter_fn|quantizer)` has no effect: the model is quantized already"):
            trainer_of(model, tmp_path, PrecisionCallback(schedule, **options)).train()


def test_a_schedule_of_another_length(tmp_path: Path) -> None:
    schedule = PrecisionSchedule.static(8, total_steps=100)
    with pytest.raises(ValueError, match=r"total_steps=100, but this training takes 8 .* say total_steps=100 here too"):
        trainer_of(net(), tmp_path, PrecisionCallback(schedule)).train()
    callback = PrecisionCallback(schedule, total_steps=100)
    trainer_of(net(), tmp_path, callback, save_strategy="no").train()
    assert callback.controller.last_step == STEPS


def test_a_checkpoint_without_the_callback(config: PrecisionConfig, tmp_path: Path) -> None:
    trainer_of(net(), tmp_path).train()
    with pytest.raises(TrivetError, match=r"checkpoint of step 8 has no state of one PrecisionCallback"):
        trainer_of(net(), tmp_path, PrecisionCallback(config)).train(resume_from_checkpoint=True)


def test_a_checkpoint_of_another_schedule(config: PrecisionConfig, tmp_path: Path) -> None:
    trainer_of(net(), tmp_path, PrecisionCallback(config)).train()
    other = PrecisionCallback(PrecisionConfig(schedule="static", bits=8))
    with pytest.raises(ValueError, match="another precision schedule"):
        trainer_of(net(), tmp_path, other).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


def test_several_gpus_in_one_process_are_refused(config: PrecisionConfig) -> None:
    from transformers.training_args import ParallelMode

    args = SimpleNamespace(parallel_mode=ParallelMode.NOT_DISTRIBUTED, n_gpu=2)
    with pytest.raises(TrivetError, match=r"2 GPUs with torch.nn.DataParallel.*torchrun"):
        PrecisionCallback(config).on_train_begin(args, SimpleNamespace(), SimpleNamespace())  # pyrefly: ignore


def test_a_model_that_never_trains_is_told_at_once(config: PrecisionConfig, tmp_path: Path) -> None:
    model = net()
    model.eval().train = lambda mode=True: model  # type: ignore[method-assign]
    with pytest.raises(TrivetError, match="nothing of the quantized model ran in the first optimizer step"):
        trainer_of(model, tmp_path, PrecisionCallback(config)).train()


def test_a_layer_that_never_ran_is_named_at_the_end(config: PrecisionConfig, tmp_path: Path, caplog: Any) -> None:
    model = net()
    model.add_module("spare", nn.Linear(3, 3))
    callback = PrecisionCallback(config, filter_fn=lambda module, name: True)
    trainer_of(model, tmp_path, callback, save_strategy="no").train()
    assert [r.levelname for r in caplog.records if r.name.startswith("trivet")] == ["WARNING"]
    assert "never quantized, though chosen: spare" in caplog.text
