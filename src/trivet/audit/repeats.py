"""The same computation twice: are the bits equal? And does an interrupted run end where an uninterrupted one does?

Not covered: what differs between machines, processes or numbers of threads; both runs are in this process.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trivet.audit.finding import Finding
from trivet.audit.leaves import Leaf, first_difference, leaves
from trivet.core.seeding import derive, seed_everything
from trivet.training.checkpoint import rng_state, set_rng_state

REPEAT_ADVICE = (
    "draw every random number from seeded generators (random_state=, generator=), keep nothing from the first run, and "
    "try torch.use_deterministic_algorithms(True), which names the operation that is not deterministic"
)
RESUME_ADVICE = (
    "save and load with the model: the optimizer, learning-rate schedulers, the gradient scaler, the random states of "
    "Python, numpy and torch, and the position in the data"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualityAudit:
    """What `repeat` and `resume` found."""

    check: str
    """`repeat` or `resume`."""
    compared: int
    """Values that were compared, a tensor counts as one."""
    findings: tuple[Finding, ...]
    """Empty when all bits are equal."""

    @property
    def equal(self) -> bool:
        """Whether all bits are equal."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return asdict(self)

    def __str__(self) -> str:
        verdict = "all bits are equal" if self.equal else "not equal"
        return "\n".join([f"{self.check}: {self.compared} values compared, {verdict}", *map(str, self.findings)])


def repeat(fn: Callable[[], Any], *, seed: int = 0) -> EqualityAudit:
    """Call a function twice from the same seed and compare what it returns bit by bit.

    Args:
        fn: A short training. It builds everything itself and returns what shall be equal: a model, tensors, losses,
            in any nesting. A generator function may yield such values step by step; then the first step that differs
            is named.
        seed: Python, numpy and torch are seeded with it before each call.

    Examples:
        >>> import torch
        >>> from trivet import audit
        >>> audit.repeat(lambda: torch.randn(3)).equal
        True
        >>> kept = []
        >>> def forgetful():
        ...     for step in range(3):
        ...         kept.append(step)
        ...         yield {"loss": float(len(kept)) if step else 0.0}
        >>> audit.repeat(forgetful).findings[0].where
        'step 1, loss'
    """
    runs = [_run(fn, seed) for _ in range(2)]
    what = "two runs from the same seed differ"
    return _audit("repeat", *runs, what=what, advice=REPEAT_ADVICE)


def resume(fn: Callable[[Path, int | None], Any], *, stop: int, seed: int = 0) -> EqualityAudit:
    """Compare a run that was interrupted and resumed with one that was not, bit by bit.

    Before the resumed part the global random states are set to others, as in a new process: a resume must restore them.

    Args:
        fn: `fn(folder, stop)` trains, going on from what lies in the folder, which is empty at first. It stops after
            `stop` steps and leaves there what a resume needs; `None` means to the end. It returns what shall be equal,
            as for `repeat`, at the end at least.
        stop: Steps after which the run is interrupted.
        seed: Of the global random states at the start.

    Examples:
        >>> import torch
        >>> from trivet import audit
        >>> def train(folder, stop):
        ...     file, w = folder / "w.pt", torch.zeros(2)
        ...     first, w = torch.load(file) if file.exists() else (0, w)
        ...     for step in range(first, stop or 6):
        ...         w = w + torch.randn(2)
        ...     torch.save((step + 1, w), file)
        ...     return w
        >>> audit.resume(train, stop=3).findings[0].what
        'a resumed run ends elsewhere than an uninterrupted one'
    """
    if stop < 1:
        raise ValueError(f"`stop={stop}` must be ≥ 1 and less than the steps of the run")
    with tempfile.TemporaryDirectory() as root:

        def whole(name: str) -> list[Leaf]:
            return _run(lambda: fn(_made(Path(root) / name), None), seed)

        first = whole("whole")
        parts = _made(Path(root) / "parts")
        _run(lambda: fn(parts, stop), seed)
        second = _run(lambda: fn(parts, None), derive(seed, "another process"))
        what, advice = "a resumed run ends elsewhere than an uninterrupted one", RESUME_ADVICE
        if first_difference(first, second) is not None and first_difference(first, whole("again")) is not None:
            what, advice = f"{what}, but an uninterrupted one does not repeat either", REPEAT_ADVICE
    return _audit("resume", first, second, what=what, advice=advice)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _run(fn: Callable[[], Any], seed: int) -> list[Leaf]:
    """What a call returns, as values; the global random states are put back."""
    state = rng_state()
    seed_everything(seed)
    try:
        value = fn()
        if not inspect.isgenerator(value):
            return list(leaves(value))
        return [
            (f"step {step}, {name}" if name else f"step {step}", leaf)
            for step, item in enumerate(value)
            for name, leaf in leaves(item)
        ]
    finally:
        set_rng_state(state)


def _audit(check: str, a: list[Leaf], b: list[Leaf], *, what: str, advice: str) -> EqualityAudit:
    if not a:
        raise ValueError("`fn` returned nothing to compare; return the model, losses or tensors that shall be equal")
    found = first_difference(a, b)
    findings = () if found is None else (
        Finding(check=check, what=what, where=found.where, size=found.size, advice=advice),
    )  # fmt: skip
    return EqualityAudit(check=check, compared=min(len(a), len(b)), findings=findings)
