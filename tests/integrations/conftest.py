"""Nothing here loads the libraries; each test file does, and skips without them."""

from __future__ import annotations

import pytest

from trivet.precision import PrecisionConfig


@pytest.fixture
def config() -> PrecisionConfig:
    """A schedule that moves at almost every step of a short training."""
    return PrecisionConfig(schedule="LR", q_min=3, q_max=8, num_cycles=2, grad_bits=7)
