from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.core.errors import MissingDataError
from trivet.tasks.data.documents import Documents, load_documents
from trivet.tasks.data.errors import UnusableDataError

ROWS = [(f"text {i}, and more", f"other {i}", "yn"[i % 2]) for i in range(40)]


def write(path: Path, rows: list[Any] = ROWS) -> Path:
    """A table in the form that its suffix says."""
    if path.suffix == ".jsonl":
        lines = [json.dumps({"text": a, "pair": b, "label": c}) for a, b, c in rows]
    elif path.suffix == ".tsv":
        lines = ["text\tpair\tlabel", *(f"{a}\t{b}\t{c}" for a, b, c in rows)]
    else:
        lines = ["label,text,pair", *(f'{c},"{a}",{b}' for a, b, c in rows)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def contents(found: Documents) -> dict[tuple[str, ...], str]:
    parts = (found.train, found.valid, found.test)
    return {
        (text, pair): found.classes[label]
        for part in parts
        for text, pair, label in zip(part.texts, part.pairs, part.labels, strict=True)
    }


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_forms_of_a_table(tmp_path: Path, suffix: str) -> None:
    """Every row once, with its class, split class by class, whatever the form."""
    found = load_documents(str(write(tmp_path / f"a{suffix}")), pair="pair")
    assert contents(found) == {(a, b): c for a, b, c in ROWS}
    assert [np.bincount(part.labels).tolist() for part in (found.train, found.valid, found.test)] == [
        [16] * 2,
        [2] * 2,
        [2] * 2,
    ]
    assert found.classes == ("n", "y")
    single = load_documents(str(tmp_path / f"a{suffix}"))
    assert not single.is_paired
    assert single.train.texts == found.train.texts


@pytest.mark.parametrize("valid", ["valid", "val", "validation", "dev", ""])
def test_a_folder_that_is_split(tmp_path: Path, valid: str) -> None:
    for name, rows in (("train", ROWS), ("test", ROWS[:4]), (valid, ROWS[4:10])):
        if name:
            write(tmp_path / f"{name}.jsonl", rows)
    found = load_documents(str(tmp_path))
    sizes = [len(part.labels) for part in (found.train, found.valid, found.test)]
    assert sizes == ([40, 6, 4] if valid else [36, 4, 4])
    assert found.shared("test") == 4 - (0 if valid else len(set(found.test.texts) - set(found.train.texts)))
    assert "4 of the test occur in training" in found.describe() or not valid


def test_the_form_of_clinc150(tmp_path: Path) -> None:
    content = {
        "oos_test": [["x", "oos"]],
        "val": [["c", "q"]],
        "train": [["a", "p"], ["B  b", "q"]],
        "test": [["b B", "p"]],
    }
    (tmp_path / "d.json").write_text(json.dumps(content))
    found = load_documents(str(tmp_path / "d.json"))
    assert (found.train.texts, found.train.labels.tolist(), found.test.labels.tolist()) == (("a", "B  b"), [0, 1], [0])
    assert (found.left_out, found.shared("test"), found.shared("valid")) == (("oos_test (1)",), 1, 0)


def test_numbers_as_classes_are_in_their_order(tmp_path: Path) -> None:
    rows = [(f"t{i}", "", str(i % 11)) for i in range(220)]
    found = load_documents(str(write(tmp_path / "n.csv", rows)))
    assert found.classes == tuple(map(str, range(11)))


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    assert len(load_documents(str(path)).train.labels) == 32
    write(path, ROWS + ROWS)
    assert len(load_documents(str(path)).train.labels) == 64


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "text,label\na,1\n ,2\n", "line 3 holds an empty text"),
        ("a.csv", "text,label\na,1\nb,c,2\n", "line 3 has 3 columns; allowed: 2, as in line 1"),
        ("a.csv", "text,label\na\n", "line 2 has 1 columns"),
        ("a.csv", "txt,label\na,1\n", "0 columns called 'text'; found txt, label; did you mean 'txt'"),
        ("a.csv", "text;label\na;1\n", "columns separated by ';'; allowed in a .csv file: commas; write it anew"),
        ("a.csv", '"text";"label"\n"a";1\n', "columns separated by ';'"),
        ("a.csv", "text\tlabel\na\t1\n", r"allowed in a .csv file: commas; write it anew, or call it a.tsv"),
        ("a.tsv", "text,label\na,1\n", r"allowed in a .tsv file: tabs; write it anew, or call it a.csv"),
        ("a.csv", "text,label\na,1\nb,0\nc,nan\n", "line 4 has the label 'nan', and all labels are numbers"),
        ("a.csv", "text,label\na,1.0\nb,0\n", "line 2 has the label '1.0', and all labels are numbers"),
        ("a.csv", "text,text,label\na,b,1\n", "2 columns called 'text'"),
        ("a.csv", "", "found nothing"),
        ("a.csv", "text,label\n", "a.csv holds no document"),
        ("a.csv", "text,label\na,1\nb,-1\n", r"line 3 has the label -1; allowed: whole numbers ≥ 0"),
        ("a.csv", "text,label\na,1\nb,\n", "line 3 has the label ''"),
        ("a.csv", "text,label\na,1\nb,1\n", "found one class, '1'"),
        ("a.csv", "text,label\na,1\nb,2\n", "too few documents for a valid part"),
        ("a.csv", 'text,label\n"a,1\n', "cannot be read"),
        ("a.csv", "text,label\na\0b,1\n", "zero byte|cannot be read"),
        ("a.csv", b"text,label\nf\xfcr,1\n", "no text in UTF-8"),
        ("a.jsonl", b'{"text": "f\xfcr", "label": 1}\n', "no text in UTF-8"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": ', "line 2 is no JSON"),
        ("a.jsonl", "[1]\n", "line 1 is a list"),
        ("a.jsonl", '{"text": "a"}\n', "line 1 has no 'label'"),
        ("a.jsonl", '{"text": 3, "label": 1}\n', "in place of a text"),
        ("a.jsonl", '{"text": "a", "label": true}\n', "the label [Tt]rue"),
        ("a.json", "{", "no JSON in UTF-8"),
        ("a.json", "[]", "allowed: {\"train\""),
        ("a.json", '{"train": 3, "test": []}', "train is 3"),
        ("a.json", '{"train": [["a"]], "test": []}', "train 1 is"),
        ("a.json", '{"train": [["a", "p"], ["b", "q"]], "test": [["c", "qq"]]}', "label 'qq'.*did you mean 'q'"),
        ("a.txt", "x", "found a .txt file"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UnusableDataError, match=words):
        load_documents(str(tmp_path / name))


def test_absent(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"documents 'no\.csv' are not on this machine"):
        load_documents("no.csv")
    with pytest.raises(MissingDataError, match=r"holds no train\.csv"):
        load_documents(str(tmp_path))
    write(tmp_path / "train.csv")
    with pytest.raises(MissingDataError, match=r"found train\.csv and no test\.csv"):
        load_documents(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "[" * 100_000, "line 1 is no JSON"),
        ("a.jsonl", '{"text": "a \\ud800", "label": 1}', "half a surrogate pair"),
        ("a.jsonl", '{"text": "a", "label": "\\ud800"}', "no name"),
        ("a.csv", "text,label\na," + "9" * 5000, "no name"),
        ("a.csv", "text,label\n", r"a\.csv holds no document"),
        ("a.csv", "text,label\na,1\n".encode("utf-16"), "iconv -f utf-16"),
    ],
)
def test_careless_files_are_refused(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UnusableDataError, match=words):
        load_documents(str(tmp_path / name))


def test_what_else_a_json_file_holds_need_not_be_a_list(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    rows = [[f"text {i}", "ab"[i % 2]] for i in range(20)]
    file.write_text(json.dumps({"train": rows, "test": rows, "oos": [["x", "a"]], "version": 1}))
    assert load_documents(str(file)).left_out == ("oos (1)", "version")


def test_the_order_of_equal_numbers_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Sorted as numbers alone, 1, 01, +1 … would come in the order of a set, which differs from process to process."""
    names = [f"{'0' * zeros}1" for zeros in range(12)]
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "".join(f"text,{name}\n" for name in names for _ in range(10)))
    assert load_documents(str(file)).classes == tuple(sorted(names))
