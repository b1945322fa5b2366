"""Whole numbers that both eager and compiled code can raise.

Eager code adds to a Python number, which costs nothing; compiled code must not depend on one, so it adds to a tensor.
The value is the sum of the two.

Not covered: counting from several threads at once.
"""

from __future__ import annotations

import torch


class Counter:
    """A count that only grows until it is set.

    Examples:
        >>> counter = Counter(torch.device("cpu"))
        >>> counter.add(3)
        >>> counter.value
        3
    """

    def __init__(self, device: torch.device) -> None:
        self.plain = 0
        """What eager code has added."""
        self.tensor = torch.zeros((), dtype=torch.int64, device="cpu" if device.type == "meta" else device)
        """What compiled code has added: 0-d int64."""

    @property
    def value(self) -> int:
        """The count."""
        return self.plain + int(self.tensor)

    def add(self, amount: int | torch.Tensor) -> None:
        """Raise the count; by a tensor only where that is cheap or cannot be avoided."""
        if isinstance(amount, torch.Tensor) or torch.compiler.is_compiling():
            self.tensor.add_(amount)
        else:
            self.plain += amount

    def set(self, value: int) -> None:
        """Change the count."""
        self.plain = value
        self.tensor.zero_()

    def state(self) -> list[int]:
        """Both parts, for saving."""
        return [self.plain, int(self.tensor)]

    def load(self, state: list[int]) -> None:
        """Take over what `state` gave."""
        self.plain = state[0]
        self.tensor.fill_(state[1])

    def move(self, device: torch.device) -> None:
        """Bring the tensor to a device."""
        if self.tensor.device != device and device.type != "meta":
            self.tensor = self.tensor.to(device)
