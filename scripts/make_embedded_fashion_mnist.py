"""Make the Fashion-MNIST subset that ships inside the package.

    apt-get install dataset-fashion-mnist
    python scripts/make_embedded_fashion_mnist.py /usr/share/datasets/fashion-mnist

Writes `fashion_mnist.npz`, `manifest.json`, `README.md` and `LICENSE.fashion-mnist` into
`src/trivet/tasks/data/embedded/` (or `--out`): 1,000 train and 200 test images of each of the ten classes.

Which images: within each class, those with the smallest SHA-256 of the text "SEED/SPLIT/INDEX", where INDEX counts
from 0 in the original file. That needs no random generator, so any language and any version gives the same list.
In what order: first the best-ranked image of class 0, 1, …, 9, then the second-ranked of each, and so on; so the first
10·k images are k of every class. Running it twice gives the same bytes (with the same zlib; with any zlib the same
arrays).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from trivet.tasks.data.idx import read_idx
from trivet.tasks.data.select import hash_ranked

OUT = Path(__file__).resolve().parents[1] / "src" / "trivet" / "tasks" / "data" / "embedded"
SEED = 2017
PER_CLASS = {"train": 1000, "test": 200}
FILES = {"train": "train", "test": "t10k"}
NUM_CLASSES = 10
RULE = (
    "within each class the images with the smallest SHA-256 of 'SEED/SPLIT/INDEX' (INDEX from 0 in the original "
    "file), stored class by class in turn: rank 1 of classes 0 to 9, rank 2 of classes 0 to 9, ..."
)

LICENSE = """\
The files fashion_mnist.npz and manifest.json hold a part of Fashion-MNIST
(https://github.com/zalandoresearch/fashion-mnist), under the MIT (Expat) licence:

Copyright (c) 2017 Zalando SE, https://tech.zalando.com

Permission is hereby granted, free of charge, to any person obtaining a
copy of this software and associated documentation files (the "Software"),
to deal in the Software without restriction, including without limitation
the rights to use, copy, modify, merge, publish, distribute, sublicense,
and/or sell copies of the Software, and to permit persons to whom the
Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included
in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS
OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT.
IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT,
TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

README = """\
# Embedded part of Fashion-MNIST

`fashion_mnist.npz` ({size:.1f} MB): {num_train:,} train and {num_test:,} test images of Fashion-MNIST, 28 × 28, gray,
the same number of each of the ten classes. Arrays: `train_images`, `test_images` uint8 [N, 28, 28], `train_labels`,
`test_labels` uint8 [N], `train_index`, `test_index` int32 [N], the position of each image in the original file.

Source: Debian package `dataset-fashion-mnist` (https://github.com/zalandoresearch/fashion-mnist). Licence: MIT,
© 2017 Zalando SE, text in `LICENSE.fashion-mnist`.

Choice: {rule} SEED = {seed}.

Made by `scripts/make_embedded_fashion_mnist.py`; `manifest.json` holds the checksums. Results on this subset cannot be
set beside published results, which use all 60,000 and 10,000 images.
"""


def select(labels: np.ndarray, *, split: str, per_class: int, seed: int = SEED) -> np.ndarray:
    """Positions of the chosen images, in the order they are stored: int32 [per_class · classes]."""
    ranked = []
    for label in range(NUM_CLASSES):
        members = np.flatnonzero(labels == label)
        if len(members) < per_class:
            raise SystemExit(f"{split}: found {len(members)} images of class {label}; needed: {per_class}")
        ranked.append(hash_ranked(members, f"{seed}/{split}")[:per_class])
    return np.array(ranked, np.int32).T.reshape(-1)


def read_split(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """All images and labels of one split of the Debian folder (or any folder with the same IDX files)."""
    arrays = []
    for kind, num_dims in (("images-idx3", 3), ("labels-idx1", 1)):
        name = f"{FILES[split]}-{kind}-ubyte"
        found = [path for path in (folder / f"{name}.gz", folder / name) if path.is_file()]
        if not found:
            raise SystemExit(f"{folder}: no {name}.gz; install the Debian package dataset-fashion-mnist")
        arrays.append(read_idx(found[0], num_dims=num_dims))
    return arrays[0], arrays[1]


def make(folder: Path, out: Path, *, per_class: dict[str, int] | None = None) -> dict[str, Any]:
    """Write the four files into `out` and return the manifest."""
    arrays: dict[str, np.ndarray] = {}
    for split, count in (per_class or PER_CLASS).items():
        images, labels = read_split(folder, split)
        index = select(labels, split=split, per_class=count)
        arrays |= {f"{split}_images": images[index], f"{split}_labels": labels[index], f"{split}_index": index}
    packed = pack(arrays)
    manifest = {
        "name": "fashion-mnist",
        "source": "Debian package dataset-fashion-mnist; https://github.com/zalandoresearch/fashion-mnist",
        "licence": "MIT, (c) 2017 Zalando SE; see LICENSE.fashion-mnist",
        "seed": SEED,
        "rule": RULE,
        "arrays": {
            name: {
                "shape": list(array.shape),
                "dtype": str(array.dtype),
                "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
            }
            for name, array in arrays.items()
        },
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "fashion_mnist.npz").write_bytes(packed)
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    (out / "LICENSE.fashion-mnist").write_text(LICENSE, encoding="utf-8")
    sizes = {"num_train": len(arrays["train_labels"]), "num_test": len(arrays["test_labels"])}
    text = README.format(size=len(packed) / 1e6, rule=RULE, seed=SEED, **sizes)
    (out / "README.md").write_text(text, encoding="utf-8")
    return manifest


def pack(arrays: dict[str, np.ndarray]) -> bytes:
    """An `.npz` archive with nothing in it that depends on the time or the machine."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            archive.writestr(entry, content.getvalue(), compresslevel=9)
    return target.getvalue()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Make the Fashion-MNIST subset that ships inside the package.")
    parser.add_argument("folder", type=Path, help="folder with the four IDX files, plain or .gz")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write (default: the package's)")
    options = parser.parse_args()
    make(options.folder, options.out)
    for path in sorted(options.out.iterdir()):
        print(f"{path}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
