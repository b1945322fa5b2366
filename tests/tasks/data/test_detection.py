from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pytest

from trivet.core.errors import MissingDataError, TrivetError
from trivet.tasks.data.detection import check_detection, check_pixels, load_detection
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.shapes import shapes

pytestmark = pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="needs `pip install 'trivet[vision]'`")

Boxes = list[tuple[str, tuple[float, float, float, float]]]
WHOLE: Boxes = [("car", (10, 10, 30, 20)), ("dog", (0, 4, 40, 24))]


def write_picture(path: Path, color: int, size: tuple[int, int] = (40, 24)) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (color, 20, 30)).save(path)


def write_voc(folder: Path, parts: dict[str, dict[str, Boxes]], *, difficult: str = "0") -> Path:
    for number, (part, pictures) in enumerate(parts.items()):
        listing = folder / "ImageSets" / "Main" / f"{part}.txt"
        listing.parent.mkdir(parents=True, exist_ok=True)
        listing.write_text("".join(f"{name}\n" for name in pictures))
        for index, (name, boxes) in enumerate(pictures.items()):
            write_picture(folder / "JPEGImages" / f"{name}.png", 50 * number + index)
            objects = "".join(
                f"<object><name>{escape(label)}</name><difficult>{difficult}</difficult><bndbox><xmin>{box[0]}</xmin>"
                f"<ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
                for label, box in boxes
            )
            path = folder / "Annotations" / f"{name}.xml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"<annotation><size><width>40</width><height>24</height></size>{objects}</annotation>")
    return folder


def write_coco(folder: Path, change: Callable[[dict[str, Any]], object] = lambda content: None) -> Path:
    for number, part in enumerate(("train2017", "val2017")):
        write_picture(folder / part / "one.png", number)
        content: dict[str, Any] = {
            "images": [{"id": 7, "file_name": "one.png", "height": 24, "width": 40}],
            "categories": [{"id": 3, "name": "dog"}, {"id": 90, "name": "car"}],
            "annotations": [
                {"id": 1, "image_id": 7, "category_id": 90, "bbox": [10, 10, 20, 10], "iscrowd": 0},
                {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 4, 40, 20], "iscrowd": 1},
            ],
        }
        change(content)
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))
    return folder


def test_a_voc_folder_is_scaled_to_fit_with_its_boxes(tmp_path: Path) -> None:
    """40 × 24 into 40 × 20 (width × height): scale 5/6, so 33 × 20 pixels of the picture and black to the right."""
    folder = write_voc(tmp_path / "voc", {"train": {"a": WHOLE, "empty": []}, "test": {"b": WHOLE}})
    assert check_detection(str(folder)) == 2
    data = load_detection(str(folder), height=20, width=40)
    assert data.classes == ("car", "dog")
    assert data.train.images.shape == (2, 3, 20, 40)
    np.testing.assert_allclose(data.train.boxes[0], np.array([[10, 10, 30, 20], [0, 4, 40, 24]]) * 5 / 6, rtol=1e-6)
    assert [labels.tolist() for labels in data.train.labels] == [[0, 1], []]
    assert data.train.boxes[1].shape == (0, 4)
    assert data.train.images[1, :, :, :33].tolist() == np.broadcast_to([[[1]], [[20]], [[30]]], (3, 20, 33)).tolist()
    assert not data.train.images[:, :, :, 33:].any()
    assert "2 pictures to learn from (2 boxes, 1 without any)" in data.describe()


def test_boxes_are_cut_and_those_under_two_pixels_dropped_counted_and_said(tmp_path: Path) -> None:
    boxes: Boxes = [("car", (-5, -5, 100, 12)), ("car", (8, 8, 8, 20)), ("car", (39, 0, 60, 20)), ("car", (3, 3, 5, 5))]
    folder = write_voc(tmp_path / "voc", {"train": {"a": boxes}, "val": {"b": WHOLE[:1]}})
    data = load_detection(str(folder), height=24, width=40)
    assert data.train.boxes[0].tolist() == [[0, 0, 40, 12], [3, 3, 5, 5]]
    assert data.dropped == 2
    assert "2 boxes under 2 pixels dropped" in data.describe()


def test_coco_and_voc_of_one_set_are_read_alike(tmp_path: Path) -> None:
    voc = load_detection(
        str(write_voc(tmp_path / "voc", {"train": {"a": WHOLE}, "test": {"b": WHOLE}})), height=24, width=40
    )
    coco = load_detection(str(write_coco(tmp_path / "coco")), height=24, width=40)
    assert coco.classes == voc.classes
    for one, other in ((coco.train, voc.train), (coco.test, voc.test)):
        assert one.boxes[0].tolist() == other.boxes[0].tolist()
        assert one.labels[0].tolist() == other.labels[0].tolist()
    assert coco.train.ignored[0].tolist() == [False, True]
    assert not voc.train.ignored[0].any()


def test_classes_may_be_named_in_another_order(tmp_path: Path) -> None:
    folder = write_voc(tmp_path / "voc", {"train": {"a": WHOLE}, "test": {"b": WHOLE}}, difficult="1")
    with pytest.raises(UnusableDataError, match="no usable box in any picture of the training part"):
        load_detection(str(folder), height=24, width=40, classes=["dog", "cat", "car"])
    folder = write_voc(tmp_path / "other", {"train": {"a": WHOLE}, "test": {"b": WHOLE}})
    data = load_detection(str(folder), height=24, width=40, classes=["dog", "cat", "car"])
    assert data.classes == ("dog", "cat", "car")
    assert data.train.labels[0].tolist() == [2, 0]


def broken(folder: Path, name: str) -> None:
    """Damage one thing of a sound VOC folder."""
    annotation, picture = folder / "Annotations" / "a.xml", folder / "JPEGImages" / "a.png"
    listing = folder / "ImageSets" / "Main"
    if name == "no picture":
        picture.unlink()
    elif name == "no annotation":
        annotation.unlink()
    elif name == "not xml":
        annotation.write_text("<annotation>")
    elif name == "not a picture":
        picture.write_bytes(b"nothing")
    elif name == "half a picture":
        noise = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)
        from PIL import Image

        Image.fromarray(noise).save(picture)
        picture.write_bytes(picture.read_bytes()[:1500])
    elif name == "other size":
        write_picture(picture, 1, (20, 24))
    elif name == "overlap by name":
        (listing / "test.txt").write_text("b\na\n")
    elif name == "overlap by content":
        (folder / "JPEGImages" / "b.png").write_bytes(picture.read_bytes())
    elif name == "empty part":
        (listing / "test.txt").write_text("\n")
    elif name == "twice":
        (listing / "train.txt").write_text("a\na\n")
    elif name == "no parts":
        for path in listing.iterdir():
            path.unlink()
    elif name == "no usual part":
        (listing / "train.txt").rename(listing / "learn.txt")
    elif name == "no boxes":
        annotation.write_text("<annotation></annotation>")
    else:
        annotation.write_text(annotation.read_text().replace(*name.split(" -> ")))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no picture", r"lists 'a', whose picture .*a\.jpg is not there"),
        ("no annotation", r"whose annotations .*a\.xml are not there"),
        ("not xml", r"a\.xml: not a readable XML file"),
        ("not a picture", r"a\.png: cannot be decoded as PNG or JPEG"),
        ("half a picture", r"a\.png: cannot be decoded as PNG or JPEG"),
        ("other size", "20 × 24 pixels, and its annotations, .*a.xml, say 40 × 24"),
        ("overlap by name", "1 pictures are in both parts, train and test: a"),
        ("overlap by content", "1 pictures are in both parts, train and test: a = b"),
        ("empty part", "the part 'test' lists no picture"),
        ("twice", "lists a more than once"),
        ("no parts", "found no parts; allowed: shapes"),
        ("no usual part", "no single one that begins with train; name one in `task.train_part`"),
        ("no boxes", "no box in any picture of the training part"),
        ("car -> cars", r"b\.xml: object 1, a box \(car\) .*class 'car'; allowed: cars, dog .*did you mean 'cars'"),
        (
            "<xmin>10 -> <xmin>31",
            r"a\.xml: object 1, a box \(car\) of the picture 'a': found \[31.0, 10.0, 30.0, 20.0\]; .* left ≤ right",
        ),
        ("<xmin>10 -> <xmin>nan", "all finite"),
        ("<xmin>10 -> <xmin>ten", "allowed: four numbers"),
        ("<name>car</name> -> ", "object 1 has no `name`"),
    ],
)
def test_refused_with_the_reason(tmp_path: Path, name: str, words: str) -> None:
    folder = write_voc(tmp_path / "voc", {"train": {"a": WHOLE}, "test": {"b": WHOLE}})
    broken(folder, name)
    with pytest.raises(TrivetError, match=words):
        _ = check_detection(str(folder)), load_detection(str(folder), height=24, width=40)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content["annotations"][0].update(category_id=4), r"category 4, .*allowed: 3 \(dog\), 90"),
        (lambda content: content["annotations"][0].update(image_id=8), "the image 8, which `images` does not list"),
        (lambda content: content["annotations"][0].update(bbox=[1, 2, 3]), r"bbox: \[1, 2, 3\]; allowed: \[left"),
        (
            lambda content: content["annotations"][0].update(bbox=[9, 9, -2, 3]),
            r"train2017\.json: annotation 1 of the picture 'one\.png': found bbox: \[9, 9, -2, 3\]; .*and height ≥ 0",
        ),
        (lambda content: content["annotations"][0].update(bbox=[9, float("nan"), 2, 3]), "annotation 1 .*finite"),
        (lambda content: content["annotations"][1].update(bbox=[True, 1, 2, 3]), "annotation 2 .*found bbox"),
        (lambda content: content["categories"][0].update(name=" "), r"json: the category 3 has an empty name"),
        (lambda content: content["images"][0].update(file_name="two.png"), r"'two\.png' is not there; looked for in"),
        (
            lambda content: content["annotations"][1].update(iscrowd="0"),
            "annotation 2 has iscrowd: '0'; allowed: 0 or 1",
        ),
        (
            lambda content: content["images"][0].update(width="40"),
            r"json: image 7 has the width '40'; allowed: a whole",
        ),
        (
            lambda content: content["images"].append({"id": 8, "file_name": "one.png"}),
            r"images 7 and 8 are both 'one\.png'",
        ),
        (
            lambda content: content["annotations"][0].update(bbox=[90, 9, 2, 3]),
            "coco: no usable box in any picture of the tr",
        ),
        (lambda content: content["images"][0].pop("file_name"), "found file_name: None"),
        (lambda content: content.pop("images"), "allowed: an object with the lists images"),
        (lambda content: content.update(images=[1]), "must be lists of objects"),
    ],
)
def test_refused_coco(tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str) -> None:
    folder = write_coco(tmp_path / "coco", change)
    with pytest.raises(TrivetError, match=words):
        check_detection(str(folder))


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"looked for the folder .*nothing"):
        check_detection(str(tmp_path / "nothing"))
    folder = write_voc(tmp_path / "voc", {"train": {"a": WHOLE}, "test": {"b": WHOLE}})
    with pytest.raises(MissingDataError, match="no part 'tran'; allowed: test, train; did you mean 'train'"):
        check_detection(str(folder), train_part="tran")
    with pytest.raises(UnusableDataError, match="'test' is both the training and the test part"):
        check_detection(str(folder), train_part="test")
    with pytest.raises(UnusableDataError, match="shapes: found train_part 'a'"):
        check_detection("shapes", train_part="a")
    json_file = write_coco(tmp_path / "coco") / "annotations" / "instances_val2017.json"
    json_file.write_text("{")
    with pytest.raises(UnusableDataError, match="not a readable json file"):
        check_detection(str(tmp_path / "coco"))


def test_a_changed_annotation_is_read_anew(tmp_path: Path) -> None:
    folder = write_voc(tmp_path / "voc", {"train": {"a": WHOLE}, "test": {"b": WHOLE}})
    assert load_detection(str(folder), height=24, width=40).train.num_boxes == 2
    write_voc(folder, {"train": {"a": WHOLE[:1]}, "test": {"b": WHOLE[:1]}})
    assert load_detection(str(folder), height=24, width=40).train.num_boxes == 1


def test_made_up_shapes_lie_in_their_boxes() -> None:
    data = shapes(train=30, test=1)
    assert {label for labels in data.train.labels for label in labels.tolist()} == {0, 1, 2}
    for image, boxes in zip(data.train.images, data.train.boxes, strict=True):
        assert (boxes[:, :2] >= 0).all()
        assert (boxes[:, 2:] <= [80, 64]).all()
        outside = np.ones((64, 80), bool)
        for left, top, right, bottom in boxes.astype(int):
            outside[top:bottom, left:right] = False
        assert image[:, outside].std(1).max() < 14  # the ground: one color and noise of 12


def test_bccd_as_it_is(shared_dir: Path) -> None:
    folder = shared_dir / "data" / "bccd"
    if not folder.is_dir():
        pytest.skip(f"needs the folder {folder}")
    assert check_detection(str(folder)) == 205
    from trivet.tasks.data.detection import _index
    from trivet.tasks.data.detection_data import checked_boxes

    train, test, classes = _index(str(folder), "trainval", "test", ())
    assert (len(train), len(test), classes) == (292, 72, ("Platelets", "RBC", "WBC"))
    kept = [checked_boxes(item, 480, 640)[1] for item in (*train, *test)]
    assert sum(map(len, kept)) == 4888
    assert sum(int((~some).sum()) for some in kept) == 2


def test_changed_annotations_are_read_anew_and_checked_again(tmp_path: Path) -> None:
    """The pictures stay as they are, so only the annotations tell."""
    folder = write_coco(tmp_path / "coco")
    file = folder / "annotations" / "instances_train2017.json"
    assert check_detection(str(folder)) == 1
    before = load_detection(str(folder), height=24, width=40).train.boxes[0]
    file.write_text(file.read_text().replace("[10, 10, 20, 10]", "[10, 10, 20, 8.5]"))
    after = load_detection(str(folder), height=24, width=40).train.boxes[0]
    assert (before[0].tolist(), after[0].tolist()) == ([10, 10, 30, 20], [10, 10, 30, 18.5])
    file.write_text(file.read_text().replace("[10, 10, 20, 8.5]", "[10, 10, -20, 8.5]"))
    with pytest.raises(UnusableDataError, match="width and height ≥ 0"):
        check_detection(str(folder))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content["categories"].append({"id": 3, "name": "cat"}), "`categories` has the id 3 more"),
        (lambda content: content["images"].append(content["images"][0]), "`images` has the id 7 more than once"),
        (lambda content: content["annotations"][0].update(bbox=[10**400, 0, 1, 1]), "a number too large"),
        (lambda content: content["images"][0].update(file_name="x" * 5000), "is not there; looked for in"),
    ],
)
def test_careless_coco_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str) -> None:
    with pytest.raises(TrivetError, match=words):
        check_detection(str(write_coco(tmp_path / "coco", change)))


def test_careless_voc_is_refused(tmp_path: Path) -> None:
    folder = write_voc(tmp_path / "voc", {"train": {"a": WHOLE}, "test": {"b": WHOLE}})
    (folder / "Annotations" / "a.xml").write_text('<?xml version="1.0" encoding="foo-9"?><annotation/>')
    with pytest.raises(UnusableDataError, match="not a readable XML file"):
        check_detection(str(folder))
    (folder / "ImageSets" / "Main" / "train.txt").write_text("x" * 5000)
    with pytest.raises(MissingDataError, match="are not there; add or strike it"):
        check_detection(str(folder))


def test_a_json_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    folder = write_coco(tmp_path / "coco")
    file = folder / "annotations" / "instances_train2017.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert check_detection(str(folder)) == 1


def test_sixteen_bits_a_pixel_are_scaled(tmp_path: Path) -> None:
    """65,280 of 65,535 is 255 of 255, and 4,000 is 15; cut in place of scaled, both would be white."""
    from PIL import Image

    folder = write_voc(tmp_path / "voc", {"train": {"a": WHOLE}, "test": {"b": WHOLE}})
    pixels = np.full((24, 40), 4000, np.uint16)
    pixels[0] = 65280
    Image.fromarray(pixels).save(folder / "JPEGImages" / "a.png")
    image = load_detection(str(folder), height=24, width=40).train.images[0]
    assert sorted({int(value) for value in image[:, 0].ravel()}) == [255]
    assert sorted({int(value) for value in image[:, 2:].ravel()}) == [15]


@pytest.mark.parametrize(
    ("stated", "size", "boxes"),
    [
        ((40, 24), (24, 40), "turned"),  # width and height of the upright picture
        ((24, 40), (24, 40), "stored"),  # those of the file: its boxes count there
        (None, (24, 40), "turned"),
    ],
)
def test_boxes_belong_to_the_upright_picture_unless_the_stated_size_says_otherwise(
    tmp_path: Path, stated: tuple[int, int] | None, size: tuple[int, int], boxes: str
) -> None:
    """A picture stored 24 wide and 40 high that is to be turned a quarter to the right, so 40 wide and 24 high."""
    from PIL import Image

    def change(content: dict[str, Any]) -> None:
        content["images"][0].update(
            {"width": stated[0], "height": stated[1]} if stated else {"width": None, "height": None}
        )
        content["annotations"] = [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [2, 3, 10, 12]}]

    folder = write_coco(tmp_path / "coco", change)
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[30:] = 200  # the bottom of the file is the left of the turned picture
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(folder / "train2017" / "one.png", exif=exif)
    write_picture(folder / "val2017" / "one.png", 9, stated or (40, 24))
    assert check_detection(str(folder)) == 1
    image = load_detection(str(folder), height=40, width=40).train.images[0, 0]
    if boxes == "turned":
        assert (image[:24, :10].min(), image[:24, 11:].max(), image[24:].max()) == (200, 0, 0)
    else:
        assert (image[30:40, :24].min(), image[:30].max(), image[:, 24:].max()) == (200, 0, 0)


def test_pixels_are_decoded_before_work(tmp_path: Path) -> None:
    from PIL import Image

    folder = write_voc(tmp_path / "voc", {"train": {"a": WHOLE}, "test": {"b": WHOLE}})
    picture = folder / "JPEGImages" / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)).save(picture)
    check_pixels(str(folder))
    picture.write_bytes(picture.read_bytes()[:1500])
    check_detection(str(folder))
    with pytest.raises(UnusableDataError, match=r"a\.png: cannot be decoded"):
        check_pixels(str(folder))
