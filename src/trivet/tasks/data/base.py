"""What an image source is, and how a source that lives in a folder is found.

A source answers two questions: where is it (cheap, no file is opened) and what is in it. Sources that are plain folders
list their layouts: sub-folder names and the files that must be there. Every data root is searched for every layout.

Not covered: downloads (see `download`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from trivet.core.errors import MissingDataError
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.image_data import ImageData

ROOT_VARIABLE = "TRIVET_DATA_ROOT"
ROOT_HINT = f"  a data root is a folder given with --data-root or in the environment variable {ROOT_VARIABLE}"


class Splits(NamedTuple):
    """Arrays as a file layout gives them, before they are checked."""

    train_images: np.ndarray
    """uint8 [N, C, H, W]."""
    train_labels: np.ndarray
    """Whole numbers [N]."""
    test_images: np.ndarray
    """uint8 [M, C, H, W]."""
    test_labels: np.ndarray
    """Whole numbers [M]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceInfo:
    """What `trivet data` shows of one source.

    Examples:
        >>> info = SourceInfo(name="toy", title="Toy", num_train=4, num_test=2, shape="1 × 8 × 8", num_classes=2,
        ...                   licence="none", how_to_get="make it")
        >>> info.to_dict()["num_train"], info.found
        (4, '')
    """

    name: str
    """Name to write in a study file."""
    title: str
    """What it is, in a few words."""
    num_train: int
    """Number of train images; 0 where it depends on the folder."""
    num_test: int
    """Number of test images; 0 where it depends on the folder."""
    shape: str
    """Channels × height × width."""
    num_classes: int
    """Number of classes; 0 where it depends on the folder."""
    licence: str
    """Licence of the data, or that none is stated."""
    how_to_get: str
    """One sentence: how to bring it onto the machine."""
    found: str = ""
    """Where it is on this machine; empty when it is not."""

    def to_dict(self) -> dict[str, str | int]:
        """Plain values, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Located:
    """A source that was found."""

    place: str
    """Where, for a reader."""
    read: Callable[[], ImageData]
    """Read it; raises `UnusableDataError` for damaged files."""
    files: tuple[Path, ...] = ()
    """Where it is read from; none for what comes with a package."""
    check: Callable[[], int] | None = None
    """Find what `read` would refuse, as far as that takes seconds; returns the number of training images. None where
    there is nothing to find."""


class ImageSource(Protocol):
    """Anything that can be found and read by name."""

    @property
    def info(self) -> SourceInfo:
        """What it is, without looking whether it is there."""
        ...

    def locate(self, data_root: Path | None) -> Located:
        """Find it without opening a file; raises `MissingDataError` or `MissingExtraError`."""
        ...


def _nothing_to_check(paths: list[Path]) -> None:
    """The check of layouts that need nothing but their files."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way in which a data set lies in a folder."""

    folders: tuple[str, ...]
    """Sub-folders of a data root to look in, the best first; `.` is the root itself."""
    files: tuple[tuple[str, ...], ...]
    """Files that must be there; each entry lists names that will do, the best first."""
    read: Callable[[list[Path]], Splits]
    """Read the arrays from the files, in the order of `files`."""
    check: Callable[[list[Path]], None] = _nothing_to_check
    """Cheap check whether `read` has what it needs, such as an optional package; raises when it has not."""
    glance: Callable[[list[Path]], Splits] | None = None
    """What stands in for `read` in a check before work, where that takes long; not all of its images are true."""


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A named data set that lies in a folder in one of several layouts."""

    info: SourceInfo
    """What it is."""
    classes: tuple[str, ...]
    """Class names."""
    layouts: tuple[Layout, ...]
    """Layouts, tried in order in each root."""
    more_roots: tuple[Path, ...] = ()
    """Roots to search after the user's, such as a system package's folder."""

    def locate(self, data_root: Path | None) -> Located:
        """Search the given root, the one named by the environment, the cache folder and `more_roots`."""
        return self.locate_in([*roots(data_root), *self.more_roots])

    def locate_in(self, searched: list[Path]) -> Located:
        """Search these roots; raises `MissingDataError` that lists what was looked for in each."""
        for root in searched:
            for layout in self.layouts:
                for folder in layout.folders:
                    paths = _present(root / folder, layout)
                    if len(paths) == len(layout.files):
                        layout.check(paths)
                        return self._located(paths, layout)
        raise MissingDataError(self._missing(searched))

    def _located(self, paths: list[Path], layout: Layout) -> Located:
        place = str(paths[0].parent)

        def read(way: Callable[[list[Path]], Splits] = layout.read) -> ImageData:
            return checked(way(paths), info=self.info, classes=self.classes, place=place)

        def check() -> int:
            return len(read(layout.glance or layout.read).train_labels)

        return Located(place, read, tuple(paths), check)

    def _missing(self, searched: list[Path]) -> str:
        wanted = []
        for layout in self.layouts:
            folders = " or ".join("the folder itself" if name == "." else f"{name}/" for name in layout.folders)
            wanted.append(f"{', '.join(names[0] for names in layout.files)} in {folders}")
        lines = [f"data set {self.info.name!r} is not on this machine"]
        lines += [f"  looked in {_state(root, self.layouts)}" for root in searched]
        lines += [f"  looked for {text}" for text in wanted]
        lines.append(f"  to get it: {self.info.how_to_get}")
        lines.append(ROOT_HINT)
        return "\n".join(lines)


def _present(folder: Path, layout: Layout) -> list[Path]:
    """The files of the layout that are in the folder."""
    hits: list[Path] = []
    for names in layout.files:
        found = [folder / name for name in names if (folder / name).is_file()]
        hits += found[:1]
    return hits


def _state(root: Path, layouts: tuple[Layout, ...]) -> str:
    """A root and what speaks against it."""
    if not root.is_dir():
        return f"{root} (no such folder)"
    for layout in layouts:
        for name in layout.folders:
            folder = root / name
            hits = _present(folder, layout)
            if hits:
                have = {path.name for path in hits}
                lacking = [names[0] for names in layout.files if have.isdisjoint(names)]
                return f"{root} ({folder} is incomplete: no {', '.join(lacking)})"
    return str(root)


def checked(splits: Splits, *, info: SourceInfo, classes: tuple[str, ...], place: str) -> ImageData:
    """Arrays as `ImageData`; what does not fit raises `UnusableDataError` with the place it came from."""
    try:
        data = ImageData(
            name=info.name,
            source=place,
            licence=info.licence,
            classes=classes,
            train_images=np.require(splits.train_images, requirements=["C", "W"]),
            train_labels=splits.train_labels.astype(np.int64),
            test_images=np.require(splits.test_images, requirements=["C", "W"]),
            test_labels=splits.test_labels.astype(np.int64),
        )
    except ValueError as error:
        raise UnusableDataError(f"{place}: not usable as {info.name}: {error}") from error
    shape = " × ".join(map(str, data.image_shape))
    present = len(np.unique(data.train_labels))
    if present != len(classes):
        raise UnusableDataError(
            f"{place}: found train images of {present} classes; {info.name} has {len(classes)}, and each must occur"
        )
    if info.num_train and shape != info.shape:
        raise UnusableDataError(
            f"{place}: found images of {shape} (channels × height × width); allowed for {info.name}: {info.shape}"
        )
    return data


def default_root() -> Path:
    """Folder that downloads go to: `trivet/data` in the user's cache folder.

    Examples:
        >>> default_root().parts[-2:]
        ('trivet', 'data')
    """
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "trivet" / "data"


def roots(data_root: Path | None) -> list[Path]:
    """Folders that are searched for data sets, in order: given, `TRIVET_DATA_ROOT`, the cache folder.

    Examples:
        >>> roots(Path("/data"))[0] == Path("/data")
        True
    """
    named = os.environ.get(ROOT_VARIABLE)
    given = [data_root] if data_root is not None else []
    given += [Path(named)] if named else []
    return [path.expanduser() for path in given] + [default_root()]
