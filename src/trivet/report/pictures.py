"""Pictures that runs leave in their folders, `pictures/*.png`, one arm beside the other.

Those of one seed are shown, the first one that finished in the most arms. A picture that is the same in several arms,
such as what was shown to all of them, appears once. File names sort the rows; a number in front is left out.

Not covered: other formats; files above 200 kB and more than eight a run, which are left out.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.core.runfolder import RunFolder

if TYPE_CHECKING:
    from trivet.study.results import Results

MOST_BYTES = 200_000
MOST_FILES = 8
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def pictures(results: Results) -> list[dict[str, Any]]:
    """What is shown, row by row.

    Args:
        results: Records of the study.

    Returns:
        Rows with `label`, `arms` that have this very picture, `seed`, and `png` in base64; none when no run has one.
    """
    arms = list(results.arms)
    found: dict[int, dict[str, list[Path]]] = {}
    for record in results.records:
        if record.state == "finished":
            files = sorted(RunFolder(record.folder).pictures_path.glob("*.png"))[:MOST_FILES]
            if files:
                found.setdefault(record.seed, {})[record.arm] = files
    if not found:
        return []
    seed = min(found, key=lambda number: (-len(found[number]), number))
    rows: dict[tuple[str, bytes], list[str]] = {}
    for arm in sorted(found[seed], key=arms.index):
        for path in found[seed][arm]:
            content = path.read_bytes()
            if content.startswith(SIGNATURE) and len(content) <= MOST_BYTES:
                rows.setdefault((path.stem, content), []).append(arm)
    ordered = sorted(rows.items(), key=lambda item: (item[0][0], arms.index(item[1][0])))
    return [
        {
            "label": re.sub(r"^\d+ ", "", label),
            "arms": owners,
            "seed": seed,
            "png": base64.b64encode(content).decode("ascii"),
        }
        for (label, content), owners in ordered
    ]
