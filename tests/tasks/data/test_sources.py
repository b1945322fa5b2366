"""Names, places and messages of the image sources."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trivet.core.errors import MissingDataError
from trivet.tasks.data import check_images, describe, load_images
from trivet.tasks.data.base import default_root
from trivet.tasks.data.fashion_mnist import FULL
from trivet.tasks.data.sources import SOURCES

NAMES = ["fashion-mnist", "fashion-mnist:full", "digits", "mnist", "cifar10", "cifar100"]


def test_names() -> None:
    assert SOURCES.names() == NAMES


@pytest.mark.parametrize("folder", ["FashionMNIST/raw", "fashion-mnist", "fashion_mnist", "."])
@pytest.mark.parametrize("gz", [True, False])
def test_full_fashion_mnist_from_a_data_root(
    tmp_path: Path, make_idx: Callable[..., dict], folder: str, gz: bool
) -> None:
    expected = make_idx(tmp_path / folder, gz=gz)
    for name in ("fashion-mnist", "fashion-mnist:full"):
        check_images(name, data_root=str(tmp_path))
        data = load_images(name, data_root=tmp_path)
        assert data.name == "fashion-mnist:full"
        np.testing.assert_array_equal(data.train_images[:, 0], expected["train_images"])
        np.testing.assert_array_equal(data.test_labels, expected["test_labels"])


def test_without_a_data_root_the_environment_does_not_change_the_default(
    tmp_path: Path, make_idx: Callable[..., dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_idx(tmp_path / "fashion-mnist")
    monkeypatch.setenv("TRIVET_DATA_ROOT", str(tmp_path))
    assert len(load_images("fashion-mnist").train_images) == 10_000
    assert len(load_images("fashion-mnist:full").train_images) == 30


def test_order_of_the_roots(tmp_path: Path, make_idx: Callable[..., dict], monkeypatch: pytest.MonkeyPatch) -> None:
    make_idx(default_root() / "MNIST" / "raw", num_train=10)
    try:
        assert len(load_images("mnist").train_images) == 10
        make_idx(tmp_path / "env" / "MNIST" / "raw", num_train=20)
        monkeypatch.setenv("TRIVET_DATA_ROOT", str(tmp_path / "env"))
        assert len(load_images("mnist").train_images) == 20
        make_idx(tmp_path / "given" / "mnist", num_train=30)
        assert len(load_images("mnist", data_root=tmp_path / "given").train_images) == 30
        assert len(load_images("mnist", data_root=tmp_path / "empty").train_images) == 20
    finally:
        for path in (default_root() / "MNIST" / "raw").iterdir():
            path.unlink()


def test_a_data_root_without_the_set_is_not_replaced_by_the_embedded_part(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="without a data root is the part inside the package") as caught:
        load_images("fashion-mnist", data_root=tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10", "cifar100"])
def test_missing_data_say_where_and_how(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.tasks.data.digits.installed_file", lambda: None)
    monkeypatch.setenv("TRIVET_DATA_ROOT", str(tmp_path / "from-environment"))
    for action in (check_images, load_images):
        with pytest.raises(MissingDataError) as caught:
            action(name, data_root=tmp_path / "given")
        text = str(caught.value)
        assert f"data set '{name}' is not on this machine" in text
        for place in (tmp_path / "given", tmp_path / "from-environment", default_root()):
            assert str(place) in text
        assert "to get it: `" in text
        assert "TRIVET_DATA_ROOT" in text
    assert caught.value.exit_code == 2


def test_missing_full_set_names_the_debian_package() -> None:
    absent = replace(FULL, more_roots=(Path("/no/such/folder"),))
    with pytest.raises(MissingDataError, match="apt-get install dataset-fashion-mnist") as caught:
        absent.locate(None)
    assert "/no/such/folder (no such folder)" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fashion-mnits", "did you mean 'fashion-mnist'?"),
        ("CIFAR10", "did you mean 'cifar10'?"),
        ("imagefolder", "image-folder:PATH"),
        ("", "unknown data source ''"),
        ("./images", "write 'image-folder:./images'"),
        ("/data/flowers", "write 'image-folder:/data/flowers'"),
        ("~/flowers", "looks like a path"),
        ("a/b", "looks like a path"),
        ("image-folder:", "names no folder"),
        ("image-folder:x@4", r"size 4 must lie in [8, 1024]"),
        ("image-folder:x@99999", r"must lie in"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    for action in (check_images, load_images):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked below)
            action(name)
        assert message in str(caught.value)


def test_a_folder_that_exists_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flowers").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="image-folder:flowers"):
        load_images("flowers")


def test_describe(tmp_path: Path, make_idx: Callable[..., dict]) -> None:
    make_idx(tmp_path / "mnist")
    rows = {row.name: row for row in describe(data_root=tmp_path)}
    assert list(rows) == [*NAMES, "image-folder:PATH"]
    assert rows["mnist"].found == str(tmp_path / "mnist")
    assert rows["cifar10"].found == ""
    for row in rows.values():
        assert row.licence
        assert row.how_to_get
    assert rows["cifar100"].to_dict() == {
        "name": "cifar100", "title": rows["cifar100"].title, "num_train": 50_000, "num_test": 10_000,
        "shape": "3 × 32 × 32", "num_classes": 100, "licence": rows["cifar100"].licence,
        "how_to_get": rows["cifar100"].how_to_get, "found": "",
    }  # fmt: skip
    assert {row.name: row.found for row in describe()}["fashion-mnist"] == "inside the package"


def test_no_torch_is_imported() -> None:
    code = (
        "import sys; from trivet.tasks.data import load_images, check_images, describe, fetch; "
        "check_images('fashion-mnist'); load_images('fashion-mnist'); describe(); "
        "print(sorted({'torch', 'torchvision', 'scipy', 'PIL', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
