"""Is this training what it seems? Checks that take seconds and come before any statistics.

`alias` finds tensors that change between forward and backward, `gradient` compares one window's gradient with float64,
`repeat` and `resume` ask for equal bits, `order` hashes the data in the order they come, `workers` looks at the random
numbers of loader workers. Each works on a loop of the user's own. Importing the package loads no torch.

Not covered: why a training that passes all of them is bad at what it should learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.audit.curvatures import Curvature, curvature
    from trivet.audit.finding import Finding
    from trivet.audit.gradients import GradientAudit, WindowError, gradient
    from trivet.audit.loaders import WorkersAudit, workers
    from trivet.audit.orders import OrderAudit, order
    from trivet.audit.repeats import EqualityAudit, repeat, resume
    from trivet.audit.saved import AliasAudit, AliasFinding, alias

__all__ = [
    "AliasAudit",
    "AliasFinding",
    "Curvature",
    "EqualityAudit",
    "Finding",
    "GradientAudit",
    "OrderAudit",
    "WindowError",
    "WorkersAudit",
    "alias",
    "curvature",
    "gradient",
    "order",
    "repeat",
    "resume",
    "workers",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "AliasAudit": ".saved",
        "AliasFinding": ".saved",
        "Curvature": ".curvatures",
        "EqualityAudit": ".repeats",
        "Finding": ".finding",
        "GradientAudit": ".gradients",
        "OrderAudit": ".orders",
        "WindowError": ".gradients",
        "WorkersAudit": ".loaders",
        "alias": ".saved",
        "curvature": ".curvatures",
        "gradient": ".gradients",
        "order": ".orders",
        "repeat": ".repeats",
        "resume": ".repeats",
        "workers": ".loaders",
    },
)
