"""What a model name means, and whether there is such a model, without importing torch.

Names: `resnet8` to `resnet152` (see `resnet`), `small_cnn`, `mobilenet_v2`, `torchvision:NAME` for torchvision's
classifiers, and `python:pkg.module:function` for anything that returns a module. User code is looked for and not run;
whether the function exists in its module only shows when the model is built.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import zipfile
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from trivet.core.errors import MissingExtraError, unknown_name

RESNET_DEPTHS = (8, 20, 32, 38, 56, 74, 110, 152)
"""Depths 6n + 2 that have a name."""
RESNETS = tuple(f"resnet{depth}" for depth in RESNET_DEPTHS)
MOBILENET = "mobilenet_v2"
SMALL_CNN = "small_cnn"
"""Two convolutions without normalization; there is a second implementation of it in JAX."""
SMALL_BACKBONE = "small"
"""The residual network of a detector that no library has."""
TORCHVISION = "torchvision:"
PYTHON = "python:"
DEFAULT_WIDTH = 16
"""Channels of a ResNet's first stage, as published."""


@dataclass(frozen=True, slots=True)
class PythonName:
    """The two parts of `python:pkg.module:function`."""

    module: str
    """Dotted name of the module."""
    function: str
    """Name of the callable in it."""


def model_names() -> list[str]:
    """Names as a reader would write them, patterns included.

    Examples:
        >>> model_names()[0], model_names()[-1]
        ('resnet8', 'python:pkg.module:function')
    """
    return [*RESNETS, SMALL_CNN, MOBILENET, f"{TORCHVISION}NAME", f"{PYTHON}pkg.module:function"]


def check_model_name(name: str, *, width: int = DEFAULT_WIDTH) -> None:
    """Refuse a model that cannot be built, as far as that shows without torch.

    Args:
        name: One of the names above.
        width: Channels of the first stage; only ResNets, the small CNN and a user's callable can
            have another than 16.

    Raises:
        ValueError: No such model (with the nearest name), a user's module that is not there, or a width that would
            have no effect.
        MissingExtraError: The name needs torchvision, which is not installed.

    Examples:
        >>> check_model_name("resnet20")
        >>> check_model_name("resnet21")
        Traceback (most recent call last):
        ...
        ValueError: unknown model 'resnet21'; allowed: resnet8, ..., resnet152, ...; did you mean 'resnet20'?
    """
    if width < 1:
        raise ValueError(f"`width={width}` must be ≥ 1; it counts channels, {DEFAULT_WIDTH} is usual")
    if name in (*RESNETS, SMALL_CNN):
        return
    if name.startswith(PYTHON):
        _check_module(name, parse_python_name(name).module)
        return
    if name == MOBILENET or name.startswith(TORCHVISION):
        if importlib.util.find_spec("torchvision") is None:
            raise MissingExtraError("torchvision", "vision")
        if name != MOBILENET:
            _check_torchvision(name)
        if width != DEFAULT_WIDTH:
            raise ValueError(
                f"`width={width}` has no effect on {name!r}; remove it or take one of "
                + ", ".join((*RESNETS, SMALL_CNN))
            )
        return
    raise ValueError(_unknown(name))


def _unknown(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][\w.]*\.[A-Za-z_]\w*:[A-Za-z_]\w*", name):
        return f"unknown model {name!r}; for a callable of your own write '{PYTHON}{name}'"
    if name in torchvision_names():
        return f"unknown model {name!r}; for torchvision's model of that name write '{TORCHVISION}{name}'"
    if name.endswith(".py") or "/" in name:
        return (
            f"unknown model {name!r}, which looks like a path; for a callable of your own write '{model_names()[-1]}'"
        )
    number = re.fullmatch(r"resnet(\d{1,4})", name)
    if number is not None:
        close = min(RESNET_DEPTHS, key=lambda depth: abs(depth - int(number[1])))
        return f"unknown model {name!r}; allowed: {', '.join(model_names())}; did you mean 'resnet{close}'?"
    return unknown_name("model", name, model_names())


def unknown_backbone(name: str) -> str:
    """Message for a backbone of a detector that does not exist.

    Examples:
        >>> unknown_backbone("smal")
        "unknown backbone 'smal'; allowed: small, torchvision:NAME, python:pkg.module:function; did you mean 'small'?"
    """
    allowed = [SMALL_BACKBONE, f"{TORCHVISION}NAME", f"{PYTHON}pkg.module:function"]
    if name in torchvision_names():
        return f"unknown backbone {name!r}; for torchvision's model of that name write '{TORCHVISION}{name}'"
    return unknown_name("backbone", name, allowed)


def check_torch_file(path: Path) -> None:
    """Refuse a file of parameters that cannot be one that torch wrote, without unpickling anything.

    Raises:
        ValueError: It is not there, empty, cut short, or of another kind.

    Examples:
        >>> check_torch_file(Path("no-such.pth"))
        Traceback (most recent call last):
        ...
        ValueError: no-such.pth: cannot be read (No such file or directory); allowed: a file that torch.save wrote
    """
    try:
        with path.open("rb") as file:
            start = file.read(2)
        if start == b"PK":
            with zipfile.ZipFile(path) as archive:  # its list of contents stands at the end
                if not any(name.endswith("data.pkl") for name in archive.namelist()):
                    raise ValueError("a zip archive without data.pkl")
        elif start[:1] != b"\x80":  # how the older format, a pickle, begins
            raise ValueError(f"begins with {start!r}" if start else "empty")
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{path}: cannot be read ({reason}); allowed: a file that torch.save wrote") from error


def parse_python_name(name: str) -> PythonName:
    """Module and function of `python:pkg.module:function`.

    Raises:
        ValueError: The name is not of that form.

    Examples:
        >>> parse_python_name("python:mypkg.nets:small")
        PythonName(module='mypkg.nets', function='small')
    """
    match = re.fullmatch(r"python:([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", name)
    if match is None:
        fix = "; a module is named with dots and without .py" if "/" in name or ".py" in name else ""
        raise ValueError(f"model {name!r}: write 'python:pkg.module:function', such as 'python:mynets:small'{fix}")
    return PythonName(match[1], match[2])


def torchvision_names() -> list[str]:
    """Classifiers of the installed torchvision, read from its source text; empty when there is none to read."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations))) / "models"
    pattern = re.compile(r"^@register_model\(\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)
    found: set[str] = set()
    for path in folder.glob("*.py"):
        found.update(pattern.findall(path.read_text(encoding="utf-8")))
    return sorted(found)


def _check_torchvision(name: str) -> None:
    wanted = name.removeprefix(TORCHVISION)
    known = torchvision_names()
    if known and wanted not in known:
        raise ValueError(unknown_name("model of torchvision", wanted, known))


def _check_module(name: str, module: str) -> None:
    """Whether the module can be imported, as far as that shows without running any of it."""
    parts = module.split(".")
    spec = find_top_level(parts[0])
    for depth in range(1, len(parts) + 1):
        if spec is None:
            raise ValueError(
                f"model {name!r}: found no module {'.'.join(parts[:depth])!r}; it must be installed or lie in the "
                f"folder in which trivet is started, {Path.cwd()}"
            )
        if depth == len(parts):
            return
        if spec.submodule_search_locations is None:
            raise ValueError(
                f"model {name!r}: {'.'.join(parts[:depth])!r} is no package, so there is no "
                f"{'.'.join(parts[: depth + 1])!r} in it"
            )
        spec = PathFinder.find_spec(".".join(parts[: depth + 1]), list(spec.submodule_search_locations))


def find_top_level(package: str) -> ModuleSpec | None:
    """Spec of an installed package or module, or of one in the current folder; nothing is imported.

    Examples:
        >>> find_top_level("json").name, find_top_level("no_such_package")
        ('json', None)
    """
    if package in sys.modules and sys.modules[package].__spec__ is None:
        return None
    return importlib.util.find_spec(package) or PathFinder.find_spec(package, [str(Path.cwd())])
