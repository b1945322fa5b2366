"""What every statistical result can do: become a plain dictionary that JSON can hold.

Not covered: reading a dictionary back into a result (results are recomputed from the runs, never trusted from a file).
"""

import dataclasses
import math
from typing import Any

import numpy as np

__all__ = ["Result", "plain"]


def plain(value: object) -> Any:
    """Turn a value into JSON's own types; numbers that JSON lacks (NaN, infinity) become `None`.

    Args:
        value: A number, string, boolean, `None`, array, dataclass, or a mapping or sequence of these.

    Raises:
        TypeError: The value is of a kind that has no plain form.

    Examples:
        >>> plain({"n": 8, "interval": (0.5, float("inf"))})
        {'n': 8, 'interval': [0.5, None]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"a {type(value).__name__} has no plain form; use numbers, strings, lists or mappings.")


class Result:
    """Base of all result classes: adds `to_dict`.

    Examples:
        >>> from trivet.stats import estimate
        >>> estimate([1.0, 2.0, 3.0]).to_dict()["mean"]
        2.0
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON's own types (`None` where a number is not defined)."""
        return plain(self)
