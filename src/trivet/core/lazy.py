"""Lazy public names of a package (PEP 562), so that importing it loads nothing heavy."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attach(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package that load each public name on first use.

    Args:
        package: The package's `__name__`.
        names: Public name → submodule that defines it, such as `{"Study": ".study"}`; a name that
            equals its submodule (`{"audit": ".audit"}`) is the submodule itself when the submodule has no
            attribute of that name.

    Returns:
        The two functions to bind as `__getattr__` and `__dir__`.

    Examples:
        >>> get, names = attach("trivet.core", {"nearest": ".errors"})
        >>> get("nearest").__module__
        'trivet.core.errors'
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name], package)
        return getattr(module, name, module)

    def __dir__() -> list[str]:
        return sorted(names)

    return __getattr__, __dir__
