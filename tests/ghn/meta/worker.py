"""One process of a distributed test: trains the tiny hypernetwork, whole or in halves, and saves its parameters."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

from trivet.ghn.meta.config import MetaDataConfig, MetaTrainingConfig
from trivet.ghn.meta.group import Group, joined
from trivet.ghn.meta.images import Images, Split
from trivet.ghn.meta.loop import meta_train
from trivet.training.checkpoint import Checkpoints
from trivet.training.metrics import MetricsLog


def train(folder: Path, group: Group, steps: int = 6) -> None:
    """Train in a folder, from its checkpoint if there is one, until so many steps are done."""
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    tiny = importlib.util.module_from_spec(spec)
    sys.modules["tiny"] = tiny
    spec.loader.exec_module(tiny)
    pixels = torch.randint(256, (64, 1, 12, 12), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    split = Split(pixels, torch.arange(64) % 4)
    images = Images(split, split, MetaDataConfig(image_size=12, channels=1, validation_images=8))
    config = MetaTrainingConfig(steps=6, warmup_steps=2, meta_batch=4, images=8, checkpoint_every=3, log_every=2)
    networks = [tiny.make_network(8, dropout=0.5), tiny.make_network(16, norm=False), tiny.make_network(24)]
    asked = iter(range(steps + 1))
    fit = meta_train(
        tiny.TinyHypernetwork(),
        tiny.tiny_predict,
        networks,
        images,
        config,
        seed=0,
        log=MetricsLog(folder / "metrics.jsonl"),
        checkpoints=Checkpoints(folder / "checkpoint"),
        group=group,
        should_stop=lambda: next(asked) >= steps,
    )
    folder.mkdir(exist_ok=True)
    torch.save(fit.module.state_dict(), folder / f"rank-{group.rank}-of-{group.size}.pt")


def main(root: Path) -> None:
    with joined(torch.device("cpu")) as group:
        train(root / "two", group)
        train(root / "half", group, steps=3)
        train(root / "begun", group)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
