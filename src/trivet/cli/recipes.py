"""Recipes: study files that come with trivet, found in the installed package or in a source checkout."""

from __future__ import annotations

from pathlib import Path

import trivet
from trivet.core.errors import TrivetError, unknown_name


def folder() -> Path:
    """Where the recipes lie: `trivet/recipes` of the installed package, else `recipes/` of the checkout.

    Raises:
        TrivetError: Neither exists.

    Examples:
        >>> folder().name
        'recipes'
    """
    package = Path(trivet.__file__).resolve().parent
    checkout = package.parents[1]
    for candidate in (package / "recipes", checkout / "recipes"):
        if candidate.is_dir():
            return candidate
    raise TrivetError(f"no recipes in {package / 'recipes'}: this installation is incomplete; install trivet again")


def recipes() -> dict[str, Path]:
    """Every recipe by name.

    Examples:
        >>> "demo" in recipes()
        True
    """
    root = folder()
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.yaml"))}


def find(name: str) -> Path:
    """The file of one recipe; `ValueError` with the nearest name when there is none.

    Examples:
        >>> find("demo").name
        'demo.yaml'
    """
    known = recipes()
    key = name.removesuffix(".yaml")
    if key not in known:
        raise ValueError(unknown_name("recipe", name, known))
    return known[key]


def command(path: Path) -> str:
    """What runs a recipe: `trivet run`, or `trivet ghn train` for those whose names begin with `ghn-train-`.

    Examples:
        >>> command(Path("full/ghn-train-cifar10.yaml")), command(Path("demo.yaml"))
        ('trivet ghn train', 'trivet run')
    """
    return "trivet ghn train" if path.name.startswith("ghn-train-") else "trivet run"


def summary(path: Path) -> str:
    """The first comment of a recipe, in one line."""
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.removeprefix("#").strip()
        if not line.startswith("#") or not text:
            break
        words.append(text)
    return " ".join(words)
