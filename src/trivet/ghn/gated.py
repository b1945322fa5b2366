"""The gated graph network of GHN-1 and GHN-2, and the baseline that looks at each node alone.

Equations 3 and 4 of Knyazev et al. (2021): one forward and one backward sweep, with the same weights. How a sweep runs
is in `sweep.py`.

Not covered: more than one pair of sweeps; published networks have one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.ghn.batch import GraphBatch
from trivet.ghn.config import GHNConfig
from trivet.ghn.sweep import sweep


class TwoLayers(nn.Module):
    """Two linear layers with ReLU after both."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Transform rows [n, inputs] into [n, outputs]."""
        return F.relu(self.second(F.relu(self.first(x))))


class GatedEncoder(nn.Module):
    """Node states that have heard of the whole graph, by gated updates in the order of the computation and back."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        d = config.hid
        self.message = TwoLayers(d, d // 2 if config.virtual else d, d)
        self.virtual_message = TwoLayers(d, d // 2, d) if config.virtual else None
        self.gru = nn.GRUCell(d, d)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """New states [nodes, hid]."""
        messages = [self.message] if self.virtual_message is None else [self.message, self.virtual_message]
        gru = self.gru
        weights = (
            torch.cat([message.first.weight for message in messages]),
            torch.cat([message.first.bias for message in messages]),
            torch.block_diag(*(message.second.weight for message in messages)),
            torch.cat([message.second.bias for message in messages]),
            gru.weight_ih,
            gru.weight_hh,
            gru.bias_ih,
            gru.bias_hh,
        )
        for plan in batch.sweeps:
            x = sweep(x, plan, weights)
        return x


class MLPEncoder(TwoLayers):
    """Node states that know nothing of the graph: the MLP baseline."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__(config.hid, config.hid, config.hid)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:  # pyrefly: ignore[bad-override]
        """New states [nodes, hid]."""
        return super().forward(x)
