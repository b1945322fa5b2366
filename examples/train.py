"""A plain training script that knows nothing of trivet: a small network on digits it draws itself.

python examples/train.py --seed 0 --lr 0.1
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=200)
options = parser.parse_args()

torch.manual_seed(options.seed)
prototypes = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

loss = torch.tensor(0.0)
for _ in range(options.steps):
    labels = torch.randint(0, 10, (64,))
    images = prototypes[labels] + 2 * torch.randn(64, 64)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()

print(f"final loss: {loss.item():.4f}")
