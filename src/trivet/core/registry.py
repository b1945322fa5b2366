"""A registry: names to things, with a did-you-mean for names that are not there."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from trivet.core.errors import unknown_name

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind, by name.

    Examples:
        >>> colours: Registry[int] = Registry("colour")
        >>> colours.add("red", 1)
        >>> colours.get("red"), colours.names("r*")
        (1, ['red'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> None:
        """Add one thing; a name that is taken raises `ValueError`."""
        if name in self._items:
            raise ValueError(f"{self.kind} {name!r} is registered already; choose another name")
        self._items[name] = item

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator form of `add`."""

        def decorate(item: T) -> T:
            self.add(name, item)
            return item

        return decorate

    def get(self, name: str) -> T:
        """The thing called `name`; an unknown name raises `ValueError` with the nearest one."""
        if name not in self._items:
            raise ValueError(unknown_name(self.kind, name, self._items))
        return self._items[name]

    def names(self, pattern: str = "*") -> list[str]:
        """Names that match a shell pattern, in the order they were added."""
        return [name for name in self._items if fnmatch.fnmatchcase(name, pattern)]

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)
