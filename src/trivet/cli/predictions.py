"""The side of `trivet predict` that needs torch, in a process of its own.

`python -m trivet.cli.predictions` reads one JSON request on standard input and writes one JSON answer on standard
output: the report of `init_`, as plain values and as text. The weights go to a file: all of `state_dict()`, so that
`load_state_dict` takes them as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trivet.cli.child import serve
from trivet.cli.classifier import classifier


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Predict, write and report; see the module for the forms."""
    from trivet.core.seeding import derive, seed_everything
    from trivet.ghn import GHN, init_

    name = request["ghn"]
    ghn = GHN.from_reference_checkpoint(name) if request["is_file"] else GHN.from_pretrained(name)
    seed_everything(derive(request["seed"], "init"))
    model, example = classifier(request)
    report = init_(model, ghn, example, head=request["head"], strict=request["strict"])
    if request["out"]:
        _write(model, Path(request["out"]), {"ghn": str(name), "model": request["model"]})
    return {"report": report.to_dict(), "text": str(report)}


def _write(model: Any, path: Path, about: Mapping[str, str]) -> None:
    from safetensors.torch import save

    from trivet.core.io import write_bytes

    state = {key: value.detach().clone().contiguous() for key, value in model.state_dict().items()}
    write_bytes(path, save(state, metadata=dict(about)))


if __name__ == "__main__":
    sys.exit(serve(answer))
