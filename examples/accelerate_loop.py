"""A plain loop under Hugging Face Accelerate, on a precision schedule: no callback, the controller itself.

pip install 'trivet[huggingface]'; python examples/accelerate_loop.py
"""

import tempfile

import torch
from accelerate import Accelerator
from torch import nn

from trivet.precision import PrecisionController, PrecisionSchedule, quantize_

STEPS = 60


def train(folder: str, until: int, resume: bool = False) -> tuple[nn.Module, PrecisionController]:
    """Train up to a step, from the start or from a folder, and save."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    patterns = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    quantize_(model)  # 1: before Accelerate prepares it
    schedule = PrecisionSchedule.named("RR", q_min=4, q_max=8, num_cycles=4, total_steps=STEPS)
    ctl = PrecisionController(model, schedule)  # 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.register_for_checkpointing(ctl)  # saved and loaded with the rest
    if resume:
        accelerator.load_state(folder)
    for batch in range(2 * ctl.last_step, 2 * until):
        generator = torch.Generator().manual_seed(batch)
        labels = torch.randint(0, 10, (16,), generator=generator)
        with accelerator.accumulate(model):
            images = patterns[labels] + torch.randn(16, 64, generator=generator)
            accelerator.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                ctl.step()  # 3: once per optimizer step
    accelerator.save_state(folder)
    return model, ctl


with tempfile.TemporaryDirectory() as folder:
    whole, ctl = train(f"{folder}/whole", until=STEPS)
    train(f"{folder}/part", until=25)
    resumed, _ = train(f"{folder}/part", until=STEPS, resume=True)

equal = all(torch.equal(p, q) for p, q in zip(whole.parameters(), resumed.parameters(), strict=True))
print(f"{len([row for row in ctl.report() if row.quantised])} products quantized, {ctl.cost:.3g} BitOPs")
print(f"resumed after 25 steps, equal: {equal}")
