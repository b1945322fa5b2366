from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from trivet.core.errors import MissingDataError
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.text import load_text, words


def _ptb(folder: Path, name: str = "{}.txt") -> Path:
    folder.mkdir()
    for split, text in (("train", "a b a\n\nb c a\n"), ("valid", "a d\n"), ("test", "c c e")):
        (folder / name.format(split)).write_text(text)
    return folder


@pytest.mark.parametrize("name", ["{}.txt", "ptb.{}.txt", "wiki.{}.tokens"])
def test_a_split_text_numbered_by_hand(tmp_path: Path, name: str) -> None:
    """Lines end in <eos> = 1, empty ones are left out; a, b, c occur 3, 2, 1 times; d and e are not in train."""
    text = load_text(str(_ptb(tmp_path / "t", name)))
    assert text.vocabulary == ("<unk>", "<eos>", "a", "b", "c")
    assert text.train.tolist() == [2, 3, 2, 1, 3, 4, 2, 1]
    assert text.valid.tolist() == [2, 0, 1]
    assert text.test.tolist() == [4, 4, 0, 1]
    assert text.unknown("test") == 0.25


def test_limits_of_the_vocabulary(tmp_path: Path) -> None:
    name = str(_ptb(tmp_path / "t"))
    assert load_text(name, vocabulary=3).vocabulary == ("<unk>", "<eos>", "a")
    assert load_text(name, min_count=2).vocabulary == ("<unk>", "<eos>", "a", "b")
    assert load_text(name, vocabulary=3).train.tolist() == [2, 0, 2, 1, 0, 0, 2, 1]
    assert load_text(name, train_tokens=3).vocabulary == ("<unk>", "<eos>", "a", "b")


def test_words_and_spaces(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("Don't <unk> STOP.\n" * 100, encoding="utf-8-sig")
    assert words("It's _one_ — Ωmega!") == ["it's", "_", "one", "_", "—", "ωmega", "!"]
    assert set(load_text(str(file)).vocabulary) == {"<unk>", "<eos>", "don't", "stop", "."}
    assert set(load_text(str(file), split_by="spaces").vocabulary) == {"<unk>", "<eos>", "Don't", "STOP."}


def test_one_text_is_split_the_same_way_everywhere(tmp_path: Path) -> None:
    """Every word lands in exactly one part; the stretches are those that the hash names, worked out once."""
    file = tmp_path / "a.txt"
    file.write_text(" ".join(f"w{i}" for i in range(999)))
    text = load_text(str(file), held_out=0.2)
    assert (len(text.train), len(text.valid), len(text.test)) == (600, 200, 200)
    numbers = [text.vocabulary[number] for number in text.train]
    assert len(set(numbers)) == 600
    ranked = sorted(range(100), key=lambda index: hashlib.sha256(f"text/{index}".encode()).digest())
    assert {int(word[1:]) // 10 for word in numbers if word != "<eos>"} == set(ranked[40:])
    again = load_text(str(file), held_out=0.2)
    assert again is text  # kept, as long as the file is the same
    file.write_text("other " * 2000)
    assert len(load_text(str(file)).vocabulary) == 3


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.txt").write_text("two " * 300)
    (tmp_path / "a.txt").write_text("one " * 300)
    (tmp_path / "c.md").write_text("three " * 300)
    text = load_text(str(tmp_path))
    assert set(text.vocabulary) == {"<unk>", "<eos>", "one", "two"}
    one, two = ((text.train == text.vocabulary.index(word)).nonzero()[0] for word in ("one", "two"))
    assert one.max() < two.min()


def test_a_relative_path_is_looked_up_in_the_data_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _ptb(tmp_path / "t")
    with pytest.raises(MissingDataError, match=r"text 't' is not on this machine\n(  looked for .*\n){2}  allowed"):
        load_text("t")
    monkeypatch.setenv("TRIVET_DATA_ROOT", str(tmp_path))
    assert len(load_text("t").vocabulary) == 5


@pytest.mark.parametrize(
    ("content", "words_"),
    [
        (b"", "the train part holds no word"),
        (b"\n \n\n", "holds no word"),
        (b"one", "the train part holds no word|the valid part holds no word|the test part holds no word"),
        (b"a\0b\n" * 100, "line 1 holds a zero byte"),
        (b"\xe9t\xe9\n" * 100, "no text in UTF-8 .*iconv"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, words_: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(content)
    with pytest.raises(UnusableDataError, match=words_) as caught:
        load_text(str(file))
    assert str(file) in str(caught.value)


def test_a_vocabulary_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableDataError, match="no word occurs 9 times in the 8 words of the training part; lower"):
        load_text(str(_ptb(tmp_path / "t")), min_count=9)


def test_incomplete_folders_are_refused(tmp_path: Path) -> None:
    folder = _ptb(tmp_path / "t")
    (folder / "valid.txt").unlink()
    with pytest.raises(MissingDataError, match=r"found train.txt and no valid.txt"):
        load_text(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingDataError, match=r"holds no .txt file"):
        load_text(str(tmp_path / "empty"))
