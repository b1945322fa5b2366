"""DeepNets: any number of networks, drawn from the distributions of DeepNets-1M, by index.

`DeepNets("test")[17]` is a description (`Architecture`) that is the same for ever and on every machine; `.build()`
makes the module. Drawing and counting need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.ghn.deepnets.architecture import (
        DARTS_NETWORK,
        VIT_NETWORK,
        Architecture,
        CellArchitecture,
        ResNet50Architecture,
    )
    from trivet.ghn.deepnets.budget import Budget
    from trivet.ghn.deepnets.dataset import DeepNets
    from trivet.ghn.deepnets.genotype import DARTS, VIT, Genotype

__all__ = [
    "DARTS",
    "DARTS_NETWORK",
    "VIT",
    "VIT_NETWORK",
    "Architecture",
    "Budget",
    "CellArchitecture",
    "DeepNets",
    "Genotype",
    "ResNet50Architecture",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "DARTS": ".genotype",
        "DARTS_NETWORK": ".architecture",
        "VIT": ".genotype",
        "VIT_NETWORK": ".architecture",
        "Architecture": ".architecture",
        "Budget": ".budget",
        "CellArchitecture": ".architecture",
        "DeepNets": ".dataset",
        "Genotype": ".genotype",
        "ResNet50Architecture": ".architecture",
    },
)
