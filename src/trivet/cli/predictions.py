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


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Predict, write and report; see the module for the forms."""
    import torch

    from trivet.core.seeding import derive, seed_everything
    from trivet.ghn import GHN, init_
    from trivet.models import build_model

    name = request["ghn"]
    ghn = GHN.from_reference_checkpoint(name) if request["is_file"] else GHN.from_pretrained(name)
    channels, height, width = request["input"]
    seed_everything(derive(request["seed"], "init"))
    model = build_model(
        request["model"],
        num_classes=request["classes"],
        in_channels=channels,
        image_size=(height, width),
        width=request["width"],
    )
    example = torch.zeros(1, channels, height, width)
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
