"""The transformer over nodes of GHN-3, with edges as a bias of its attention.

Knyazev et al. (2023), after Graphormer: pre-normalized layers; node states start with embeddings of the number of edges
in and out and of the distance from the input; the bias of a pair (u, v) is a small network of its two shortest
distances, s(u, v) and s(v, u), and is the same in all layers. In a graph without cycles one of the two is 0, so there
are at most 2·reach + 1 different pairs: the network runs on these, and pairs of nodes look them up. Nothing of the size
nodes² · hid is ever made.

Not covered: attention between graphs of a batch; each has its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.ghn.batch import MAX_DEGREE, MAX_INPUT_DISTANCE, GraphBatch
from trivet.ghn.config import GHNConfig

DISTANCES = 257
"""Entries of the table of distances; a distance s is entry s + 2, as in published checkpoints."""


class EdgeBias(nn.Module):
    """Attention bias of a pair of nodes, from their distances in both directions."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        d = config.hid
        self.reach = config.reach
        self.distances = nn.Embedding(DISTANCES, d)
        self.first = nn.Linear(2 * d, d)
        self.second = nn.Linear(d, config.heads)

    def forward(self) -> Tensor:
        """Biases [2 · reach + 1, heads] of the relations that `GraphBatch.relations` counts."""
        distance = torch.arange(self.reach + 1, device=self.first.weight.device)
        zero = torch.zeros_like(distance)
        pairs = torch.stack((torch.cat((distance, zero[1:])), torch.cat((zero, distance[1:]))), 1)
        return self.second(F.relu(self.first(self.distances(pairs + 2).flatten(1))))


class GraphormerLayer(nn.Module):
    """Attention, then two layers at each node, both added to what they read."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        d = config.hid
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d)
        self.expand, self.contract = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor, counts: tuple[int, ...], biases: list[Tensor]) -> Tensor:
        """New states [nodes, hid], from biases [heads, nodes, nodes] of each graph."""
        d = x.shape[1] // self.heads
        qkv = self.qkv(self.norm1(x)).view(len(x), 3, self.heads, d).permute(1, 2, 0, 3)
        heard = []
        for (query, key, value), bias in zip(qkv.split(counts, 2), biases, strict=True):
            weights = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=d**-0.5).softmax(2)
            heard.append(weights @ value)
        x = x + self.out(torch.cat(heard, 1).transpose(0, 1).flatten(1))
        return x + self.contract(F.gelu(self.expand(self.norm2(x))))


class GraphormerEncoder(nn.Module):
    """Node states that have attended to all nodes of their graph."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        d = config.hid
        self.edge_bias = EdgeBias(config)
        self.in_degree = nn.Embedding(MAX_DEGREE + 1, d)
        self.out_degree = nn.Embedding(MAX_DEGREE + 1, d)
        self.input_distance = nn.Embedding(MAX_INPUT_DISTANCE + 1, d)
        self.layers = nn.ModuleList(GraphormerLayer(config) for _ in range(config.layers))

    def reset_distances(self) -> None:
        """Set the table of distances to sines and cosines, with zeros at its beginning."""
        table = self.edge_bias.distances.weight
        d = table.shape[1]
        position = torch.arange(DISTANCES).unsqueeze(1)
        angle = position * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        waves = torch.stack((angle.sin(), angle.cos()), 2).flatten(1)
        waves[0] = 0
        with torch.no_grad():
            table.copy_(waves)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """New states [nodes, hid]."""
        if batch.degrees is None:
            raise ValueError("a batch for a graphormer must hold degrees; join it with the graphormer's configuration")
        into, out_of, distance = batch.degrees
        x = x + self.in_degree(into) + self.out_degree(out_of) + self.input_distance(distance)
        table = self.edge_bias()
        biases = [
            table.index_select(0, relation).view(count, count, -1).permute(2, 0, 1).contiguous()
            for count, relation in zip(batch.counts, batch.relations, strict=True)
        ]
        for layer in self.layers:
            x = layer(x, batch.counts, biases)
        return x
