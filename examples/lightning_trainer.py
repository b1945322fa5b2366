"""A small network in the Lightning Trainer, on a precision schedule, stopped and resumed.

pip install 'trivet[lightning]'; python examples/lightning_trainer.py
"""

import tempfile
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trivet.integrations.lightning import PrecisionCallback
from trivet.precision import PrecisionConfig

warnings.filterwarnings("ignore", message=".*(workers|logging interval|tree_spec|dirpath).*")


def data(number: int, seed: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Noisy copies of ten patterns."""
    patterns = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (number,), generator=generator)
    return DataLoader(TensorDataset(patterns[labels] + torch.randn(number, 64, generator=generator), labels), 32)


class Classifier(lightning.LightningModule):
    """Nothing here knows of trivet."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """One batch."""
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """One batch."""
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def fit(folder: str, callback: PrecisionCallback, resume: str | None = None) -> float:
    """Train a new model with a new Trainer, as a new process would, and return the validation loss."""
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback, ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)],
    )
    trainer.fit(Classifier(), data(640, seed=1), data(200, seed=2), ckpt_path=resume)
    return trainer.callback_metrics["val_loss"].item()


schedule = PrecisionConfig(schedule="RR", q_min=4, q_max=8, num_cycles=4)
with tempfile.TemporaryDirectory() as folder:
    callback = PrecisionCallback(schedule)
    loss = fit(folder, callback)
    resumed = fit(f"{folder}/again", PrecisionCallback(schedule), resume=f"{folder}/epoch=1.ckpt")

quantized = [row for row in callback.report() if row.quantised]
print(f"{len(quantized)} products quantized, {callback.controller.cost:.3g} BitOPs")
print(f"loss {loss:.4f}, resumed after 2 epochs {resumed:.4f}, equal: {loss == resumed}")
