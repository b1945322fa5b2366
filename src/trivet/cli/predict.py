"""`trivet predict`: the parameters of a model from a hypernetwork, written to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import emit_json, show, table, talk, verb
from trivet.cli.options import ClassesOption, InputOption, ModelArgument, WidthOption, image_shape

if TYPE_CHECKING:
    from trivet.ghn.config import Head

SUFFIX = ".safetensors"


@verb
def predict(
    model: ModelArgument,
    ghn: Annotated[
        str, typer.Option("--ghn", metavar="NAME|FOLDER|FILE", help="Hypernetwork, or a published checkpoint (.pt).")
    ],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the weights (.safetensors).")] = None,
    head: Annotated[str, typer.Option("--head", help="The classifier: predict, resize or keep.")] = "predict",
    strict: Annotated[bool, typer.Option("--strict", help="Refuse unless every parameter can be predicted.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of what is not predicted.")] = 0,
    input_: InputOption = "",
    classes: ClassesOption = 0,
    width: WidthOption = 16,
    layers: Annotated[bool, typer.Option("--layers", help="List every parameter tensor.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Predict all parameters of a model in one pass, and say what was predicted and what was not."""
    from trivet.cli.child import ask
    from trivet.models.names import check_model_name

    check_model_name(model, width=width)
    _check_head(head)
    is_file = _check_ghn(ghn)
    shape, outputs = image_shape(model, input_, classes)
    if out is not None:
        _check_place(out)
    talk("predicting …")
    request = {
        "model": model, "width": width, "input": shape, "classes": outputs, "ghn": ghn, "is_file": is_file,
        "head": head, "strict": strict, "seed": seed, "out": "" if out is None else str(out.absolute()),
    }  # fmt: skip
    answer = ask("trivet.cli.predictions", request, "nothing was predicted")
    if out is not None:
        talk(f"written to {out}: `model.load_state_dict(safetensors.torch.load_file({str(out)!r}))`")
    if json:
        emit_json({"model": model, "ghn": ghn, **answer["report"]})
        return
    show(answer["text"])
    if layers:
        show("", _table(answer["report"]["rows"]))


def _check_head(head: str) -> Head:
    from typing import get_args

    from trivet.core.errors import unknown_name
    from trivet.ghn.config import Head

    if head not in get_args(Head):
        raise ValueError(unknown_name("head", head, get_args(Head)))
    return head  # pyrefly: ignore[bad-return]


def _check_ghn(name: str) -> bool:
    """Refuse a hypernetwork that is not there; whether it is a published checkpoint in a file."""
    from trivet.ghn.folder import find_folder, read_config

    if Path(name).is_file():
        return True
    read_config(find_folder(name))
    return False


def _check_place(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is predicted."""
    if path.suffix != SUFFIX:
        raise ValueError(
            f"`--out {path}`: must end in {SUFFIX}, the one format that is written; such as weights{SUFFIX}"
        )
    folder = path.absolute().parent
    if path.is_dir():
        raise ValueError(f"`--out {path}` is a folder; name a file in it")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"`--out {path}`: nothing can be written to {folder}; make it, or choose another folder")


def _table(rows: list[dict[str, Any]]) -> Any:
    body = [
        [
            row["name"],
            "×".join(map(str, row["shape"])) or "1",
            row["op"],
            "predicted" if row["predicted"] else row["reason"],
        ]
        for row in rows
    ]
    return table(["tensor", "shape", "operation", ""], body, left=(0, 2, 3))
