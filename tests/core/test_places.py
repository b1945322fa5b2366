"""Files and folders that are found, and what is said where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from trivet.core.errors import MissingDataError
from trivet.core.places import files_below, find_place
from trivet.core.tensorfile import check_tensor_file


def test_here_first_then_the_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root" / "films").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    roots = [tmp_path / "nothing", tmp_path / "root"]
    assert find_place("films", roots, missing="", allowed="") == tmp_path / "root" / "films"
    (tmp_path / "here" / "films").touch()
    assert find_place("films", roots, missing="", allowed="") == tmp_path / "here" / "films"
    assert find_place("films", roots, missing="", allowed="", only_folders=True) == tmp_path / "root" / "films"
    assert find_place(str(tmp_path / "root"), [], missing="", allowed="") == tmp_path / "root"


def test_what_lies_beside_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "films.csv").touch()
    with pytest.raises(MissingDataError, match=r"no x; did you mean '.*films\.csv'\?\n  looked for .*\n  allowed: y$"):
        find_place(str(tmp_path / "film.csv"), [], missing="no x", allowed="y", hint="z")
    with pytest.raises(MissingDataError, match=r"^no x\n  looked for the folder .*films\.csv, which is a file\n"):
        find_place(str(tmp_path / "films.csv"), [], missing="no x", allowed="y", only_folders=True)
    with pytest.raises(MissingDataError, match=r"^no x\n  looked for .*x+ \(File name too long\)\n"):
        find_place("x" * 5000, [], missing="no x", allowed="y")


def test_files_of_the_library_itself_are_whole_and_cut_ones_are_not(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"a": np.ones((2, 3)), "none": np.ones((0, 4)), "one": np.array(1.0)}, path)
    assert check_tensor_file(path) == {"a": (2, 3), "none": (0, 4), "one": ()}
    content = path.read_bytes()
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"a\.safetensors"):
            check_tensor_file(path)


def test_what_may_not_be_read_is_refused_when_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's answer is replaced, since an administrator may read everything."""
    (tmp_path / "films").mkdir()
    monkeypatch.setattr("trivet.core.places.os.access", lambda *_: False)
    with pytest.raises(MissingDataError, match=r"films: the folder may not be read \(permission denied\)"):
        find_place(str(tmp_path / "films"), [], missing="", allowed="")


def test_nothing_below_a_folder_is_left_out_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "sub/b.TXT", "sub/c.csv", ".hidden/d.txt", "sub/._b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    assert {path.name for path in files_below(tmp_path, (".txt",))} == {"a.txt", "b.TXT"}
    (tmp_path / "e.txt").mkdir()
    assert len(files_below(tmp_path, (".txt",))) == 2
    (tmp_path / "f.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"f\.txt"):
        files_below(tmp_path, (".txt",))

    def closed(path: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", closed)
    with pytest.raises(PermissionError, match="Permission denied"):
        files_below(tmp_path, (".txt",))
