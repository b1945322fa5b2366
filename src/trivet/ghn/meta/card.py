"""The model card of a trained hypernetwork: what it is, how it was trained and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trivet.core.config import dump_yaml, to_plain
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.loop import MetaFit

LOG_ROWS = 16
"""Rows of the training log that a card shows."""


def model_card(
    config: MetaConfig,
    fit: MetaFit,
    metrics: Mapping[str, float],
    *,
    data: str,
    licence: str = "",
    log: Sequence[Mapping[str, float]] = (),
) -> str:
    """Markdown.

    Args:
        config: The whole recipe.
        fit: How training ended.
        metrics: Figures of networks of the val split on held-out training images.
        data: Name of the data set.
        licence: Licence of the data, if one is stated.
        log: Rows of metrics.jsonl, of which some are shown.
    """
    count = sum(parameter.numel() for parameter in fit.module.parameters())
    classes, scaled_by, held_out = _tasks(config)
    training = config.training
    lines = [
        f"# A graph hypernetwork for {data}",
        "",
        f"Predicts all parameters of an image classifier from its graph in one pass: `{config.ghn.encoder}` encoder, "
        f"`{config.ghn.decoder}` decoder, {count:,} parameters.",
        "",
        f"Input of the networks: {config.data.channels} × {config.data.image_size} × {config.data.image_size}, "
        f"{classes}; each channel shifted and scaled by the mean and deviation of {scaled_by} "
        "images. Batch normalisation takes the statistics of each batch of 64; none are predicted.",
        "",
        "## Training",
        "",
        f"{fit.step:,} steps of {training.meta_batch} networks, {fit.cpu_seconds:,.0f} processor seconds, "
        f"{fit.skipped} steps skipped. {held_out}.",
        *([f"It started from the hypernetwork `{training.start_from}`."] if training.start_from else []),
        *([f"Licence of the data: {licence}."] if licence else []),
        "",
        "## Measured at the end of training",
        "",
        f"Networks of the val split (none of their cells occur in training), the first {config.evaluation.images:,} "
        f"held-out images{' of a task' if config.tasks else ''}, one prediction each, no training. "
        "Accuracy as a fraction.",
        "",
        "| | mean | s.e. | n |",
        "|---|---|---|---|",
    ]
    rows = (("all", "accuracy"), ("with batch norm", "accuracy_bn"), ("without", "accuracy_bn_free"))
    for label, name in rows:
        if f"val_{name}" in metrics:
            error = metrics.get(f"val_{name}_se", 0.0)
            number = metrics.get(f"val_{name}_n", 0.0)
            lines.append(f"| {label} | {metrics[f'val_{name}']:.3f} | {error:.3f} | {number:.0f} |")
    lines += _log(log)
    lines += ["", "## Recipe", "", "```yaml", dump_yaml(to_plain(config)).rstrip(), "```", ""]
    return "\n".join(lines)


def _tasks(config: MetaConfig) -> tuple[str, str, str]:
    """Classes, the images that decide the scale, and what was held out."""
    tasks = config.tasks
    if tasks is None:
        held_out = f"The last {config.data.validation_images:,} training images were held out"
        return f"{config.ghn.num_classes} classes", "the training", held_out
    if config.ghn.task == "set":
        classes = f"any number of classes, {tasks.ways} in training, of which it is shown labelled images"
    else:
        classes = f"{tasks.ways} classes, of which it is shown nothing"
    share = f"A share of {tasks.held_out:g} of each source's classes was held out"
    return classes, "the task's labelled", f"{share}, and a tenth of the other classes' training images"


def _log(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Some rows of the log, the last one among them; accuracies of training networks on the images of their step."""
    if not rows:
        return []
    every = max(1, len(rows) // LOG_ROWS)
    shown = [row for place, row in enumerate(rows) if (len(rows) - 1 - place) % every == 0 or "val_accuracy" in row]
    lines = [
        "",
        "## Training log",
        "",
        "| step | processor s | training accuracy | val accuracy |",
        "|---|---|---|---|",
    ]
    for row in shown:
        validated = f"{row['val_accuracy']:.3f}" if "val_accuracy" in row else ""
        training = f"{row['train_accuracy']:.3f}" if "train_accuracy" in row else ""
        lines.append(f"| {row['step']:.0f} | {row.get('cpu_seconds', 0.0):.0f} | {training} | {validated} |")
    return lines
