"""Graphs with labelled nodes, by name or path: built in, a numpy archive, or a folder as OGB lays it out. Torch-free.

    sbm            a made-up graph inside the package, see `sbm_graph`
    FILE.npz       edge_index [2, E] or edges [E, 2]; features [N, F] or feat_row, feat_col, feat_val; labels [N]
    FOLDER         raw/edge.csv.gz, raw/node-feat.csv.gz, raw/node-label.csv.gz, split/NAME/{train,valid,test}.csv.gz

Nothing is unpickled and nothing is downloaded. The rules for edges, labels and parts: see `graph_data`.

Not covered: OGB's binary files, its graphs of several kinds of nodes.
"""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trivet.core.errors import MissingDataError
from trivet.core.places import find_place
from trivet.tasks.data.base import ROOT_HINT, roots
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.graph_data import PARTS, GraphData, checked_graph
from trivet.tasks.data.npz import read_arrays
from trivet.tasks.data.sbm import sbm_graph

BUILT_IN = "sbm"
ALLOWED = f"{BUILT_IN} (built in), an .npz file, or a folder as OGB lays it out (raw/edge.csv.gz …)"

FEATURES = ("features", "node_features", "x", "feat")
LABELS = ("labels", "node_labels", "y", "node_label")
SPARSE = ("feat_row", "feat_col", "feat_val")
PART_NAMES: Mapping[str, tuple[str, ...]] = {"train": ("train",), "valid": ("val", "valid"), "test": ("test",)}
MAX_DENSE = 2**34
"""Most numbers that sparse features are spread to: 64 GiB."""
OGB_FILES = ("edge", "node-feat", "node-label")


def find_graph(name: str) -> Path:
    """The file or folder that a name means: a path, looked up here and in the data roots when it is relative.

    Raises:
        MissingDataError: Nothing is there; says where it was looked for.
    """
    missing = f"graph {name!r} is not on this machine"
    return find_place(name, roots(None), missing=missing, allowed=ALLOWED, hint=ROOT_HINT, names=(BUILT_IN,))


def load_graph(name: str, *, split: int = 0, undirected: bool = True, row_normalize: bool = False) -> GraphData:
    """Read a graph.

    Args:
        name: `sbm`, or a path, see the module.
        split: Which one, where a file holds several.
        undirected: Whether an edge counts in both directions.
        row_normalize: Whether each node's features are divided by their sum.

    Raises:
        MissingDataError: Nothing is there, or a part of it is missing.
        UnusableDataError: It is there and cannot be used; says why.

    Examples:
        >>> graph = load_graph("sbm")
        >>> graph.features.shape, graph.num_classes, len(graph.train)
        ((1000, 200), 5, 100)
    """
    if name == BUILT_IN:
        if split:
            raise UnusableDataError(f"{name}: found split {split}; allowed: 0, the only one")
        return _built_in(undirected, row_normalize)
    found = find_graph(name)
    files = _ogb_files(found) if found.is_dir() else [found]
    marks = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return _load(str(found), marks, split, undirected, row_normalize)


@lru_cache(maxsize=2)
def _built_in(undirected: bool, row_normalize: bool) -> GraphData:
    return checked_graph(source=BUILT_IN, undirected=undirected, row_normalize=row_normalize, **sbm_graph())


@lru_cache(maxsize=4)
def _load(
    source: str, marks: tuple[tuple[str, int, int], ...], split: int, undirected: bool, row_normalize: bool
) -> GraphData:
    """Kept, because a plan asks once an arm; the marks of the files notice a change."""
    path = Path(source)
    content = _read_ogb([Path(name) for name, _, _ in marks], path, split) if path.is_dir() else _read_npz(path, split)
    return checked_graph(source=source, undirected=undirected, row_normalize=row_normalize, **content)


def _read_npz(path: Path, split: int) -> dict[str, Any]:
    """What an archive holds, as arguments of `checked_graph`."""
    if path.suffix != ".npz":
        raise UnusableDataError(f"{path}: not an .npz file; allowed: {ALLOWED}")
    arrays = read_arrays(path)
    labels = _one_of(arrays, LABELS, "labels", path)
    return {
        "features": _npz_features(arrays, len(labels), path),
        "edges": _npz_edges(arrays, path),
        "labels": labels,
        "parts": _npz_parts(arrays, len(labels), path, split),
        "num_classes": _count(arrays, "num_classes", 0, path),
    }


def _count(arrays: Mapping[str, np.ndarray], name: str, usual: int, path: Path) -> int:
    given = arrays.get(name, np.array(usual))
    if given.shape != () or given.dtype.kind not in "iu" or int(given) < 0:
        raise UnusableDataError(f"{path}: `{name}` is {given}; allowed: one whole number")
    return int(given)


def _one_of(arrays: Mapping[str, np.ndarray], names: tuple[str, ...], kind: str, path: Path) -> np.ndarray:
    for name in names:
        if name in arrays and arrays[name].ndim:
            return arrays[name]
    raise UnusableDataError(f"{path}: found the arrays {sorted(arrays)}, no {kind}; allowed: {', '.join(names)}")


def _npz_edges(arrays: Mapping[str, np.ndarray], path: Path) -> np.ndarray:
    edges = _one_of(arrays, ("edge_index", "edges"), "edges", path)
    pairs = edges.ndim == 2 and edges.shape[1] == 2
    return edges.T if pairs and ("edge_index" not in arrays or edges.shape[0] != 2) else edges


def _npz_features(arrays: Mapping[str, np.ndarray], nodes: int, path: Path) -> np.ndarray:
    """Features of a dense array, or of the three lists of a sparse one."""
    if not set(SPARSE) <= arrays.keys():
        return _one_of(arrays, FEATURES, f"features (or {', '.join(SPARSE)})", path)
    row, column, value = (arrays[name] for name in SPARSE)
    if not (row.ndim == 1 and row.shape == column.shape == value.shape) or {row.dtype.kind, column.dtype.kind} - set(
        "iu"
    ):
        shapes = [list(part.shape) for part in (row, column, value)]
        raise UnusableDataError(f"{path}: {', '.join(SPARSE)} are {shapes}; allowed: three lists of equal length")
    if value.dtype.kind not in "fiub":
        raise UnusableDataError(f"{path}: found feat_val {value.dtype}; allowed: numbers")
    width = _count(arrays, "num_features", int(column.max(initial=0)) + 1, path)
    rows = _count(arrays, "num_nodes", nodes, path)
    if ((row < 0) | (row >= rows) | (column < 0) | (column >= width)).any():
        raise UnusableDataError(
            f"{path}: feat_row or feat_col lie outside the {rows} nodes and {width} features that the file names"
        )
    if rows * width > MAX_DENSE:
        raise UnusableDataError(
            f"{path}: {rows:,} nodes × {width:,} features are more than {MAX_DENSE:,} numbers; allowed: what fits in "
            "memory"
        )
    dense = np.zeros((rows, width), np.float32)
    np.add.at(dense, (row, column), value)
    return dense


def _npz_parts(arrays: Mapping[str, np.ndarray], nodes: int, path: Path, split: int) -> dict[str, np.ndarray] | None:
    """Nodes of each part, by numbers or by one of several masks; None where the file has no split."""
    parts: dict[str, np.ndarray] = {}
    several = 0
    for part, names in PART_NAMES.items():
        for name in (f"{name}_{ending}" for name in names for ending in ("idx", "mask", "masks")):
            if name not in arrays or part in parts:
                continue
            found = arrays[name]
            if found.ndim == 2:
                found = found if found.shape[1] == nodes else found.T
                several = len(found)
                if not 0 <= split < several:
                    raise UnusableDataError(
                        f"{path}: `split={split}` must lie in [0, {several - 1}]; {name} holds {several}"
                    )
                found = found[split]
            if not name.endswith("idx") and found.dtype != np.bool_ and np.isin(found, (0, 1)).all():
                found = found.astype(np.bool_)
            parts[part] = found
    if split and not several:
        raise UnusableDataError(f"{path}: `split={split}`, but the file holds no several splits; allowed: 0")
    return parts or None


def _ogb_files(folder: Path) -> list[Path]:
    """The files of an OGB folder: edges, features, labels, and the three parts of its split."""
    raw = [folder / "raw" / f"{name}.csv.gz" for name in OGB_FILES]
    splits = sorted(path for path in folder.glob("split/*") if path.is_dir())
    parts = [splits[0] / f"{name}.csv.gz" for name in PARTS] if splits else [folder / "split" / "NAME" / "train.csv.gz"]
    lacking = [str(path.relative_to(folder)) for path in [*raw, *parts] if not path.is_file()]
    if lacking:
        raise MissingDataError(
            f"graph {str(folder)!r}: the folder has no {', no '.join(lacking)}; allowed: {ALLOWED}; OGB's own loader "
            "puts these files there, its processed/ is not read"
        )
    if len(splits) > 1:
        raise UnusableDataError(
            f"{folder}: found the splits {', '.join(path.name for path in splits)}; keep one of them"
        )
    return [*raw, *parts]


def _read_ogb(files: list[Path], folder: Path, split: int) -> dict[str, Any]:
    if split:
        raise UnusableDataError(f"{folder}: found split {split}; allowed: 0, the only one of an OGB folder")
    edges, features, labels, *parts = files
    return {
        "edges": _table(edges, np.int64).T,
        "features": _table(features, np.float32),
        "labels": _table(labels, np.float64),
        "parts": {name: _table(path, np.int64)[:, 0] for name, path in zip(PARTS, parts, strict=True)},
    }


def _table(path: Path, dtype: Any) -> np.ndarray:
    """Numbers of a compressed table without a header."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an empty file; whoever needs a row refuses it
            return np.loadtxt(file, dtype=dtype, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UnusableDataError(f"{path}: not a readable table of numbers ({error})") from error
