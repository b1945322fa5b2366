"""A plain loop under Lightning Fabric, on a precision schedule: no callback, the controller itself.

pip install 'trivet[lightning]'; python examples/fabric.py
"""

import tempfile

import torch
from lightning.fabric import Fabric
from torch import nn

from trivet.precision import PrecisionController, PrecisionSchedule, quantize_

STEPS = 60


def train(fabric: Fabric, file: str, until: int, resume: bool = False) -> tuple[nn.Module, PrecisionController]:
    """Train up to a step, from the start or from a file, and save."""
    torch.manual_seed(0)
    patterns = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    quantize_(model)  # 1: before Fabric wraps it
    schedule = PrecisionSchedule.named("RR", q_min=4, q_max=8, num_cycles=4, total_steps=STEPS)
    ctl = PrecisionController(model, schedule)  # 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = fabric.setup(model, optimizer)
    state = {"model": model, "optimizer": optimizer, "precision": ctl}  # Fabric saves and loads it like the others
    if resume:
        fabric.load(file, state)
    for step in range(ctl.last_step, until):
        generator = torch.Generator().manual_seed(step)
        labels = torch.randint(0, 10, (32,), generator=generator)
        loss = nn.functional.cross_entropy(model(patterns[labels] + torch.randn(32, 64, generator=generator)), labels)
        optimizer.zero_grad()
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        ctl.step()  # 3: once per optimizer step
    fabric.save(file, state)
    return model, ctl


fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
with tempfile.TemporaryDirectory() as folder:
    whole, ctl = train(fabric, f"{folder}/whole.ckpt", until=STEPS)
    train(fabric, f"{folder}/part.ckpt", until=25)
    resumed, _ = train(fabric, f"{folder}/part.ckpt", until=STEPS, resume=True)

equal = all(torch.equal(p, q) for p, q in zip(whole.parameters(), resumed.parameters(), strict=True))
print(f"{len([row for row in ctl.report() if row.quantised])} products quantized, {ctl.cost:.3g} BitOPs")
print(f"resumed after 25 steps, equal: {equal}")
