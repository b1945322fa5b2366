"""Downloads, with a stand-in for torchvision: no test touches the network."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from trivet.core.errors import MissingDataError, MissingExtraError
from trivet.tasks.data import fetch, load_images
from trivet.tasks.data.base import default_root


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch, make_idx: Callable[..., dict]) -> list[tuple[str, bool, bool]]:
    calls: list[tuple[str, bool, bool]] = []

    def fashion(*, root: str, train: bool, download: bool) -> None:
        calls.append((root, train, download))
        make_idx(Path(root) / "FashionMNIST" / "raw")

    def offline(*, root: str, train: bool, download: bool) -> None:
        raise RuntimeError("connection refused")

    module = ModuleType("torchvision")
    module.datasets = SimpleNamespace(FashionMNIST=fashion, CIFAR10=offline)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", module)
    return calls


def test_fetched_data_are_found(tmp_path: Path, torchvision: list[tuple[str, bool, bool]]) -> None:
    for name in ("fashion-mnist", "fashion-mnist:full"):
        assert fetch(name, tmp_path / "new") == str(tmp_path / "new" / "FashionMNIST" / "raw")
    assert torchvision == [(str(tmp_path / "new"), train, True) for train in (True, False)] * 2
    assert load_images("fashion-mnist", data_root=tmp_path / "new").name == "fashion-mnist:full"


def test_default_folder(torchvision: list[tuple[str, bool, bool]]) -> None:
    place = Path(fetch("fashion-mnist"))
    try:
        assert place.is_relative_to(default_root())
        assert load_images("fashion-mnist:full").source == str(place)
    finally:
        for path in place.iterdir():
            path.unlink()


def test_failed_download(tmp_path: Path, torchvision: list[tuple[str, bool, bool]]) -> None:
    with pytest.raises(MissingDataError, match=r"could not be downloaded.*connection refused.*train\.npz"):
        fetch("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["digits", "image-folder:x", "cifar11"])
def test_what_cannot_be_fetched(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown data set to fetch"):
        fetch(name, tmp_path)


def test_without_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingExtraError, match=r"trivet\[vision\]"):
        fetch("mnist", tmp_path)


def test_names_exist_in_torchvision() -> None:
    from trivet.tasks.data.download import CLASSES

    datasets = pytest.importorskip("torchvision.datasets", reason="needs torchvision (extra vision)")
    assert all(hasattr(datasets, name) for name in CLASSES.values())
