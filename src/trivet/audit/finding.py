"""What an audit found: what, where, how large, and what to do about it.

Not covered: whether the finding changes the outcome of a training; only a study can say that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is not as it seems.

    Examples:
        >>> print(Finding(check="repeat", what="two runs differ", where="step 3", size="1 element", advice="seed it"))
        repeat: two runs differ
          where: step 3
          size: 1 element
          do: seed it
    """

    check: str
    """Which audit says so: alias, gradient, repeat, resume, order or workers."""
    what: str
    """What is wrong, in one sentence."""
    where: str
    """Module and tensor, step, or worker."""
    size: str
    """How large it is, with its unit."""
    advice: str
    """What to do."""

    def __str__(self) -> str:
        return f"{self.check}: {self.what}\n  where: {self.where}\n  size: {self.size}\n  do: {self.advice}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return asdict(self)
