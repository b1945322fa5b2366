"""The callback in the real Lightning Trainer, under both package names: bits, resuming, evaluation, wrong use."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trivet.core.errors import MissingExtraError, TrivetError
from trivet.precision import PrecisionConfig, PrecisionSchedule
from trivet.precision.inject import covers, quantized_sites

pytest.importorskip("lightning", reason="needs `pip install 'trivet[lightning]'`")
pytest.importorskip("pytorch_lightning", reason="needs `pip install 'trivet[lightning]'`")

from trivet.integrations.lightning import PrecisionCallback
from trivet.integrations.plainstate import to_json

# Lightning warns about small loaders, missing validation, unused GPUs and more, and torch about Lightning.
pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 8
"""11 batches in groups of 3, the last one smaller, twice."""

NAMES = ("lightning.pytorch", "pytorch_lightning")

DATA = TensorDataset(torch.randn(22, 6, generator=torch.Generator().manual_seed(1)), torch.arange(22) % 3)


def loader() -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=2)


class Resumable:
    """Knows where it is, as Lightning asks of loaders that shall go on in the middle of an epoch."""

    def __init__(self) -> None:
        self.position = 0

    def __len__(self) -> int:
        return 11

    def __iter__(self) -> Any:
        self.position %= 11  # an epoch that was ended is not resumed
        while self.position < 11:
            first = 2 * self.position
            self.position += 1
            yield DATA[first : first + 2]

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([DATA[i] for i in range(22)])


def module_of(name: str, **options: Any) -> Any:
    """A LightningModule that notes the bits of every training batch."""
    pl = importlib.import_module(name)

    class Module(pl.LightningModule):  # pyrefly: ignore
        def __init__(self, crash_at: int = -1) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.Linear(8, 3))
            self.crash_at = crash_at
            self.seen: list[int] = []
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            if self.trainer.global_step == self.crash_at:
                raise RuntimeError("power cut")
            self.seen.append(quantized_sites(self)[0].dials.weight.bits)
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        test_step = validation_step

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    return Module(**options)


def trainer_of(name: str, folder: Path, *callbacks: Any, **options: Any) -> Any:
    pl = importlib.import_module(name)
    usual = {
        "default_root_dir": folder,
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 2,
        "accumulate_grad_batches": 3,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "log_every_n_steps": 1,
    }
    return pl.Trainer(callbacks=list(callbacks), **(usual | options))


def checkpoints(name: str, folder: Path) -> Any:
    made = importlib.import_module(name).callbacks.ModelCheckpoint
    return made(dirpath=folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.fixture(scope="module", params=NAMES)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A training without interruption, with a checkpoint of every step and metrics of every logged one."""
    name = request.param
    warnings.simplefilter("ignore")  # marks do not reach fixtures
    folder = tmp_path_factory.mktemp("whole")
    pl = importlib.import_module(name)
    callback = PrecisionCallback(PrecisionConfig(schedule="LR", q_min=3, q_max=8, num_cycles=2, grad_bits=7))

    whole, evaluated = SimpleNamespace(rows=[]), []

    class Note(pl.Callback):  # pyrefly: ignore
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            found = {key: value.item() for key, value in trainer.callback_metrics.items() if key.startswith("bit")}
            if found and (not whole.rows or found != whole.rows[-1]):
                whole.rows.append(found)

        def on_validation_end(self, trainer: Any, *_: Any) -> None:
            evaluated.append(trainer.callback_metrics["val_loss"].item())

    module = module_of(name)
    whole.keys = list(module.state_dict())
    trainer = trainer_of(name, folder, callback, Note(), checkpoints(name, folder), enable_checkpointing=True,
                         num_sanity_val_steps=0)  # fmt: skip
    trainer.fit(module, Resumable(), loader())
    whole.name, whole.folder, whole.module, whole.trainer, whole.callback = name, folder, module, trainer, callback
    whole.weights, whole.state = weights(module), to_json(callback.controller.state_dict())
    whole.evaluated = tuple(evaluated)
    return whole


def test_every_batch_of_a_group_runs_at_the_bits_of_its_optimizer_step(whole: Any) -> None:
    schedule = PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=2, total_steps=STEPS)
    groups = [3, 3, 3, 2] * 2
    assert whole.module.seen == [bits for step, size in enumerate(groups) for bits in [schedule.bits(step)] * size]
    controller = whole.callback.controller
    assert controller.schedule == schedule
    assert controller.last_step == whole.trainer.global_step == STEPS
    assert controller.grad_bits == 7


def test_report_and_logs(whole: Any) -> None:
    rows = {row.name: row for row in whole.callback.report()}
    assert [(name, row.quantised, row.calls) for name, row in rows.items()] == [
        ("net.0", True, 22),
        ("net.2", True, 22),
        ("net.3", False, 22),
    ]
    cost = whole.callback.controller.cost
    assert cost == sum(row.bitops for row in rows.values())
    assert [row["bits"] for row in whole.rows] == whole.callback.controller.schedule.bits_array().tolist()
    assert whole.rows[-1]["bitops"] == pytest.approx(cost, rel=1e-6)


@pytest.mark.parametrize("step", [2, 4, 7])
def test_resumed_equals_uninterrupted(whole: Any, config: PrecisionConfig, step: int, tmp_path: Path) -> None:
    callback, module = PrecisionCallback(config), module_of(whole.name)
    trainer = trainer_of(whole.name, tmp_path, callback, num_sanity_val_steps=0)
    trainer.fit(module, Resumable(), loader(), ckpt_path=whole.folder / f"step={step}.ckpt")
    done = {2: 6, 4: 11, 7: 20}[step]
    assert module.losses == whole.module.losses[done:]
    assert module.seen == whole.module.seen[done:]
    assert same(weights(module), whole.weights)
    assert to_json(callback.controller.state_dict()) == whole.state
    assert trainer.callback_metrics["val_loss"].item() == whole.evaluated[-1]


def test_validation_is_at_the_most_bits_and_the_module_stays_so(whole: Any) -> None:
    controller, validate = whole.callback.controller, whole.trainer.validate
    assert controller.bits != 8
    options = {"dataloaders": loader(), "verbose": False}
    assert validate(whole.module, **options)[0]["val_loss"] == whole.evaluated[-1]
    with controller.at(8):
        assert validate(whole.module, **options)[0]["val_loss"] == whole.evaluated[-1]
    with controller.at(3):
        assert validate(whole.module, **options)[0]["val_loss"] != whole.evaluated[-1]
    earlier = whole.trainer.test(whole.module, loader(), ckpt_path=whole.folder / "step=4.ckpt", verbose=False)
    assert earlier[0]["val_loss"] == whole.evaluated[0]  # with the ranges it had then
    assert list(whole.module.state_dict()) == whole.keys
    whole.module.load_state_dict(torch.load(whole.folder / "step=8.ckpt", weights_only=False)["state_dict"])
    whole.callback._steering.restore(torch.load(whole.folder / "step=8.ckpt", weights_only=False)["callbacks"]
                                     ["PrecisionCallback"]["controller"])  # fmt: skip


def test_a_checkpoint_is_plain(whole: Any) -> None:
    state = torch.load(whole.folder / "step=4.ckpt", weights_only=True)["callbacks"]["PrecisionCallback"]
    assert state["controller"]["step"] == 4


def test_evaluating_a_checkpoint_in_a_new_process(
    whole: Any, config: PrecisionConfig, tmp_path: Path, caplog: Any
) -> None:
    path, callback = whole.folder / "step=4.ckpt", PrecisionCallback(config)
    module = callback.quantize(module_of(whole.name))
    found = trainer_of(whole.name, tmp_path, callback).test(module, loader(), ckpt_path=path, verbose=False)
    assert found[0]["val_loss"] == whole.evaluated[0]
    assert not [r for r in caplog.records if r.name.startswith("trivet")]
    trainer = trainer_of(whole.name, tmp_path, PrecisionCallback(config))
    full = trainer.test(module_of(whole.name), loader(), ckpt_path=path, verbose=False)
    assert full[0]["val_loss"] != whole.evaluated[0]
    assert [r.name for r in caplog.records if r.name.startswith("trivet")] == ["trivet.integrations.steering"]


def test_a_crash_in_the_middle(whole: Any, config: PrecisionConfig, tmp_path: Path) -> None:
    name = whole.name
    broken = trainer_of(name, tmp_path, PrecisionCallback(config), checkpoints(name, tmp_path),
                        enable_checkpointing=True)  # fmt: skip
    with pytest.raises(RuntimeError, match="power cut"):
        broken.fit(module_of(name, crash_at=5), Resumable(), loader())
    module = module_of(name)
    trainer_of(name, tmp_path, PrecisionCallback(config)).fit(
        module, Resumable(), loader(), ckpt_path=tmp_path / "step=5.ckpt"
    )
    assert same(weights(module), whole.weights)


def test_one_callback_serves_both_names(config: PrecisionConfig) -> None:
    for name in NAMES:
        assert isinstance(PrecisionCallback(config), importlib.import_module(name).Callback)


def test_autocast_clipping_early_stop_and_the_module_as_it_was(config: PrecisionConfig, tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import EarlyStopping

    module, seen = module_of(NAMES[0]), set()
    module.net[2].register_forward_hook(lambda _, inputs, output: seen.add(output.dtype))
    callback = PrecisionCallback(config, dequantize=True)
    stop = EarlyStopping("val_loss", patience=1, stopping_threshold=100.0)
    trainer = trainer_of(NAMES[0], tmp_path, callback, stop, precision="bf16-mixed", gradient_clip_val=0.1)
    trainer.fit(module, loader(), loader())
    assert trainer.global_step == callback.controller.last_step == 4
    assert seen == {torch.bfloat16}
    assert not covers(module)
    assert callback.report()[0].calls == 11


def test_fitting_twice_goes_on(config: PrecisionConfig, tmp_path: Path) -> None:
    module, callback = module_of(NAMES[0]), PrecisionCallback(config, total_steps=STEPS)
    trainer = trainer_of(NAMES[0], tmp_path, callback, max_epochs=1)
    trainer.fit(module, loader())
    assert callback.controller.last_step == 4
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, loader())
    schedule = callback.controller.schedule
    assert callback.controller.last_step == STEPS
    assert module.seen[::11] == [schedule.bits(0), schedule.bits(4)]
    assert callback.report()[0].calls == 22


class TestLength:
    def test_a_stream_with_a_number_of_steps(self, config: PrecisionConfig, tmp_path: Path) -> None:
        callback = PrecisionCallback(config)
        data = DataLoader(Stream(), batch_size=2)
        trainer_of(NAMES[0], tmp_path, callback, max_epochs=-1, max_steps=5).fit(module_of(NAMES[0]), data)
        assert callback.controller.schedule.total_steps == callback.controller.last_step == 5

    @pytest.mark.parametrize("options", [{"max_epochs": -1, "max_time": "00:00:00:05"}, {"max_epochs": 2}])
    def test_unknown(self, config: PrecisionConfig, options: dict[str, Any], tmp_path: Path) -> None:
        data = DataLoader(Stream(), batch_size=2)
        message = r"cannot tell how many optimizer steps .*max_steps=\.\.\..*total_steps=\.\.\."
        with pytest.raises(TrivetError, match=message):
            trainer_of(NAMES[0], tmp_path, PrecisionCallback(config), **options).fit(module_of(NAMES[0]), data)

    def test_of_another_schedule(self, tmp_path: Path) -> None:
        schedule = PrecisionSchedule.static(8, total_steps=100)
        with pytest.raises(ValueError, match="total_steps=100, but this training takes 8 optimizer steps"):
            trainer_of(NAMES[0], tmp_path, PrecisionCallback(schedule)).fit(module_of(NAMES[0]), loader())

    def test_a_trial_run_of_one_step(self, tmp_path: Path) -> None:
        config = PrecisionConfig(schedule="RR", num_cycles=8)
        callback = PrecisionCallback(config)
        trainer_of(NAMES[0], tmp_path, callback, fast_dev_run=True).fit(module_of(NAMES[0]), loader())
        assert callback.controller.last_step == 1
        callback = PrecisionCallback(PrecisionSchedule.static(4, total_steps=50))
        trainer_of(NAMES[0], tmp_path, callback, fast_dev_run=True).fit(module_of(NAMES[0]), loader())
        assert callback.controller.last_step == 1

    def test_a_checkpoint_without_the_callback(self, config: PrecisionConfig, tmp_path: Path) -> None:
        saving = checkpoints(NAMES[0], tmp_path)
        module = module_of(NAMES[0])
        PrecisionCallback(config).quantize(module)  # the module wants to note bits
        trainer_of(NAMES[0], tmp_path, saving, enable_checkpointing=True, max_epochs=1).fit(module, loader())
        with pytest.raises(TrivetError, match="checkpoint of step 4 has no state of a PrecisionCallback"):
            trainer_of(NAMES[0], tmp_path, PrecisionCallback(config)).fit(
                module_of(NAMES[0]), loader(), ckpt_path=tmp_path / "step=4.ckpt"
            )


def manual_of(optimizers: int, repeats: int = 1) -> Any:
    """A module that steps its first optimizer `repeats` times a batch, and the others once."""
    base = type(module_of(NAMES[0]))

    class Manual(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> None:
            found = self.optimizers()
            for number, optimizer in enumerate(found if isinstance(found, list) else [found]):
                for _ in range(repeats if number == 0 else 1):
                    optimizer.zero_grad()
                    self.manual_backward(super().training_step(batch, index))
                    optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.net[i].parameters(), lr=0.1) for i in (0, 2)[:optimizers]]

    return Manual()


class TestManualOptimization:
    def test_every_step_counts(self, config: PrecisionConfig, tmp_path: Path) -> None:
        module, callback = manual_of(1, repeats=2), PrecisionCallback(config, total_steps=22)
        trainer = trainer_of(NAMES[0], tmp_path, callback, max_epochs=1, accumulate_grad_batches=1)
        trainer.fit(module, loader())
        assert callback.controller.last_step == trainer.global_step == 22
        assert module.seen == callback.controller.schedule.bits_array().tolist()
        assert trainer.callback_metrics["bits"] == callback.controller.schedule.bits(21)
        trainer.optimizers[0].step()
        assert callback.controller.last_step == 22  # no longer counted

    def test_the_steps_of_the_named_optimizer_count(self, config: PrecisionConfig, tmp_path: Path) -> None:
        callback = PrecisionCallback(config, total_steps=11, optimizer=1)
        options = {"max_epochs": 1, "accumulate_grad_batches": 1}
        trainer_of(NAMES[0], tmp_path, callback, **options).fit(manual_of(2, repeats=2), loader())
        assert callback.controller.last_step == 11

    @pytest.mark.parametrize(
        ("optimizers", "given", "message"),
        [
            (1, {}, r"under manual optimization .* total_steps=\.\.\."),
            (2, {"total_steps": 11}, "`optimizer=-1` must name one of the 2 optimizers, 0 to 1"),
            (1, {"total_steps": 11, "optimizer": 3}, "`optimizer=3` must name one of the 1 optimizers"),
        ],
    )
    def test_what_must_be_said(
        self, config: PrecisionConfig, optimizers: int, given: dict[str, int], message: str, tmp_path: Path
    ) -> None:
        trainer = trainer_of(NAMES[0], tmp_path, PrecisionCallback(config, **given), accumulate_grad_batches=1)
        with pytest.raises(TrivetError, match=message):
            trainer.fit(manual_of(optimizers), loader())


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="got str"):
        PrecisionCallback("RR")  # pyrefly: ignore[bad-argument-type]
    with pytest.raises(TrivetError, match="no training has begun with this PrecisionCallback"):
        PrecisionCallback(PrecisionConfig(schedule="RR")).report()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None)
    monkeypatch.delitem(sys.modules, "trivet.integrations.lightning")
    with pytest.raises(MissingExtraError, match=r"'lightning'.*pip install 'trivet\[lightning\]'"):
        importlib.import_module("trivet.integrations.lightning")
