"""Where a file or folder that a user names by path lies, or a message that helps to find it.

Not covered: what is in it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn

from trivet.core.errors import MissingDataError, nearest


def find_place(
    name: str,
    roots: Sequence[Path],
    *,
    missing: str,
    allowed: str,
    hint: str = "",
    names: Sequence[str] = (),
    only_folders: bool = False,
) -> Path:
    """The file or folder of a name: in the current folder, then in each root; an absolute path is looked up alone.

    Args:
        name: A path, or a misspelt name of something else.
        roots: Folders that are searched after the current one.
        missing: What to say when nothing is there.
        allowed: What may be given, for the same message.
        hint: One more line of it for relative paths.
        names: What else could have been meant.
        only_folders: Whether a file does not count.

    Raises:
        MissingDataError: Nothing is there; says where it was looked for, and the nearest name that is there.

    Examples:
        >>> find_place("jsno", [], missing="no such", allowed="a folder", names=["json"])
        Traceback (most recent call last):
        ...
        trivet.core.errors.MissingDataError: no such; did you mean 'json'?
          looked for ...
          allowed: a folder
    """
    path = Path(name).expanduser()
    places = [path] if path.is_absolute() else [Path.cwd() / path, *(root / path for root in roots)]
    lines: list[str] = []
    found_file = False
    for place in places:
        try:
            if place.is_dir() or (not only_folders and place.exists()):
                _refuse_closed(place)
                return place
            is_file = only_folders and place.exists()
            found_file |= is_file
            kind = ", which is a file" if is_file else ""
            lines.append(f"  looked for {'the folder ' if only_folders else ''}{place}{kind}")
        except OSError as error:  # a folder that may not be entered, a name that is too long
            lines.append(f"  looked for {str(place)[:200]} ({error.strerror})")
    beside = _beside(path, places, only_folders=only_folders) if len(path.name) > 2 and not found_file else []
    close = nearest(name, [*names, *beside]) if not found_file else None
    first = f"{missing}; did you mean {close!r}?" if close else missing
    lines.append(f"  allowed: {allowed}")
    raise MissingDataError("\n".join([first, *lines, *([hint] if hint and not path.is_absolute() else [])]))


def _refuse_closed(place: Path) -> None:
    if not os.access(place, os.R_OK | os.X_OK if place.is_dir() else os.R_OK):
        kind = "the folder" if place.is_dir() else "the file"
        raise MissingDataError(
            f"{place}: {kind} may not be read (permission denied); change its mode, such as chmod u+rX"
        )


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files of these suffixes in a folder and below, in no order; hidden ones and linked folders are left out.

    Raises:
        OSError: A folder cannot be read, or a link to a file leads nowhere; `filename` names it.
    """
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(place) / name
            if name.startswith(".") or path.suffix.lower() not in suffixes:
                continue
            if not path.is_file():
                raise FileNotFoundError(errno.ENOENT, "not a file, or a link to one that is not there", str(path))
            found.append(path)
    return found


def _raise(error: OSError) -> NoReturn:
    raise error


def _beside(path: Path, places: Sequence[Path], *, only_folders: bool, most: int = 2000) -> list[str]:
    """What lies where something was looked for, written like the path that was given."""
    found: list[str] = []
    for place in places:
        try:
            inside = [one for one in place.parent.iterdir() if not one.name.startswith(".")][:most]
            found += [str(path.parent / one.name) for one in inside if not only_folders or one.is_dir()]
        except OSError:
            continue
    return found
