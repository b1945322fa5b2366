"""Graph hypernetworks: networks that read the graph of another one and predict all of its parameters at once.

`GHN.from_pretrained` or `GHN.from_reference_checkpoint` loads one, `ghn.predict` gives the parameters of any module.
`GHNConfig` loads without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.ghn.config import GHNConfig
    from trivet.ghn.deepnets import Architecture, DeepNets
    from trivet.ghn.diagnosis import diagnose
    from trivet.ghn.findings import Diagnosis
    from trivet.ghn.ghn import GHN
    from trivet.ghn.init import InitReport, init_
    from trivet.ghn.ranking import Ranking, rank_architectures
    from trivet.ghn.recalibrate import recalibrate_bn
    from trivet.ghn.targets import Coverage

__all__ = [
    "GHN",
    "Architecture",
    "Coverage",
    "DeepNets",
    "Diagnosis",
    "GHNConfig",
    "InitReport",
    "Ranking",
    "diagnose",
    "init_",
    "rank_architectures",
    "recalibrate_bn",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "GHN": ".ghn",
        "Architecture": ".deepnets",
        "Coverage": ".targets",
        "DeepNets": ".deepnets",
        "Diagnosis": ".findings",
        "GHNConfig": ".config",
        "InitReport": ".init",
        "Ranking": ".ranking",
        "diagnose": ".diagnosis",
        "init_": ".init",
        "rank_architectures": ".ranking",
        "recalibrate_bn": ".recalibrate",
    },
)
