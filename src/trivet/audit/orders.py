"""The data in the order in which they come, as one hash: equal hashes are equal batches in equal order.

Not covered: what happens to a batch after the loader; augmentation on the device is not seen.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from trivet.audit.checksum import flat_bytes
from trivet.audit.finding import Finding
from trivet.audit.leaves import leaves


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderAudit:
    """The hash of a stream of batches."""

    digest: str
    """SHA-256 over all batches, the first 16 hex digits: put it beside the result of a run."""
    batches: tuple[str, ...]
    """The same for each batch."""
    findings: tuple[Finding, ...]
    """Batches that repeat the one before."""

    def first_difference(self, other: OrderAudit) -> int | None:
        """Number of the first batch that differs, from 0; None if all are equal.

        Examples:
            >>> import torch
            >>> order([torch.ones(1), torch.ones(2)]).first_difference(order([torch.ones(1), torch.zeros(2)]))
            1
        """
        pairs = enumerate(itertools.zip_longest(self.batches, other.batches))
        return next((number for number, (one, another) in pairs if one != another), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join([f"order: {len(self.batches)} batches, hash {self.digest}", *map(str, self.findings)])


def order(batches: Iterable[Any], *, count: int = 0) -> OrderAudit:
    """Hash the batches of a loader, or of any iterable, in their order.

    Args:
        batches: Each a tensor, array, number or any nesting of them.
        count: Look at so many; 0 for all.

    Raises:
        ValueError: There is no batch.

    Examples:
        >>> import torch
        >>> from torch.utils.data import DataLoader
        >>> from trivet import audit
        >>> def epoch(seed):
        ...     shuffled = torch.Generator().manual_seed(seed)
        ...     return DataLoader(torch.arange(100), batch_size=10, shuffle=True, generator=shuffled)
        >>> audit.order(epoch(0)).digest == audit.order(epoch(0)).digest
        True
        >>> audit.order(epoch(0)).first_difference(audit.order(epoch(1)))
        0
        >>> buffer = torch.zeros(2)
        >>> kept = [buffer.fill_(step) for step in range(3)]  # all of them are the last one
        >>> audit.order(kept).findings[0].size
        '2 of 2 batches after the first'
    """
    if count < 0:
        raise ValueError(f"`count={count}` must be ≥ 0; 0 looks at all batches")
    digests = tuple(batch_digest(batch) for batch in itertools.islice(batches, count or None))
    if not digests:
        raise ValueError("there is no batch; give a loader or an iterable with one or more")
    same = [number for number, (one, other) in enumerate(itertools.pairwise(digests), 1) if one == other]
    whole = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    return OrderAudit(digest=whole, batches=digests, findings=_findings(same, len(digests) - 1))


def _findings(same: list[int], later: int) -> tuple[Finding, ...]:
    if not same:
        return ()
    found = Finding(
        check="order",
        what="a batch holds the same bytes as the one before",
        where=f"batch {same[0]}, counted from 0",
        size=f"{len(same)} of {later} batches after the first",
        advice="look whether one buffer is filled for all batches, or one batch is drawn again and again",
    )
    return (found,)


def batch_digest(batch: Any) -> str:
    """SHA-256 of a batch's values, types, shapes and names, the first 16 hex digits.

    Examples:
        >>> import torch
        >>> batch_digest([torch.ones(2), 3]) == batch_digest([torch.ones(2), 3.0])
        False
    """
    found = hashlib.sha256()
    for name, leaf in leaves(batch):
        if isinstance(leaf, Tensor):
            found.update(f"{name}\0{leaf.dtype}\0{list(leaf.shape)}\0".encode())
            found.update(flat_bytes(leaf).numpy().tobytes())
        else:
            found.update(f"{name}\0{leaf!r}\0".encode())
    return found.hexdigest()[:16]
