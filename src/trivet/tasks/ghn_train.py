"""One meta-training run from its folder to its result: what `python -m trivet.tasks.ghn_train RUN_DIR` does.

RUN_DIR holds a `config.yaml` (`MetaConfig`). Written there: `environment.json`, `metrics.jsonl`, `log.txt`,
`checkpoint/`, the hypernetwork in `ghn/` with its recipe and model card, and `result.json` last. Exit codes are those
of `trivet.tasks.run`. Under torchrun the meta-batch is split over its processes, of which the first one writes.

Not covered: running several such runs as a study.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

import torch

from trivet.core.config import build, digest, dump_yaml, load_yaml, to_plain
from trivet.core.io import write_json, write_text
from trivet.core.logging import setup_logging
from trivet.core.runfolder import RunFolder, RunResult
from trivet.ghn.ghn import GHN
from trivet.ghn.meta.card import model_card
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.group import Group, joined
from trivet.ghn.meta.loop import MetaFit, meta_train
from trivet.ghn.meta.networks import predict
from trivet.ghn.meta.start import start_with
from trivet.tasks.ghn import Setting, new_ghn, without_denormals
from trivet.tasks.ghn_tasks import setting_of
from trivet.tasks.run import StopFlag, Stopped, run_task
from trivet.training.checkpoint import Checkpoints
from trivet.training.environment import apply_environment, describe_environment
from trivet.training.metrics import MetricsLog

logger = logging.getLogger(__name__)


def train(folder: RunFolder, stop: StopFlag, started: float) -> RunResult:
    """Train the hypernetwork of a run folder, or go on.

    Raises:
        Stopped: It was asked to stop; a checkpoint is written.
        ConfigError: The configuration is refused.
        MissingDataError: The data are not on this machine.
    """
    config = build(MetaConfig, load_yaml(folder.config_path), file=str(folder.config_path))
    realised = apply_environment(config.environment)
    device = torch.device(realised.device)
    with without_denormals(), joined(device) as group:
        if group.is_first:
            write_json(folder.environment_path, describe_environment(config.environment, realised))
        setting = setting_of(config, device, folder.path)
        fit = _fit(setting, folder, group, stop)
    if fit.outcome == "stopped":
        raise Stopped
    metrics: dict[str, float] = {}
    if group.is_first and fit.outcome == "finished" and isinstance(fit.module, GHN):
        metrics = _final_metrics(folder)
        fit.module.save_pretrained(folder.path / "ghn")
        write_text(folder.path / "ghn" / "recipe.yaml", dump_yaml(to_plain(config)))
        name, licence = setting.about
        card = model_card(config, fit, metrics, data=name, licence=licence, log=folder.read_metrics())
        write_text(folder.path / "ghn" / "README.md", card)
    return RunResult(
        outcome="finished" if fit.outcome == "finished" else "diverged",
        metrics=metrics,
        steps=fit.step,
        bitops=0.0,
        seconds=time.perf_counter() - started,
        train_seconds=fit.seconds,
    )


def _fit(setting: Setting, folder: RunFolder, group: Group, stop: StopFlag) -> MetaFit:
    config = setting.config
    training = config.training
    networks = setting.networks("train", config.pool.size, dropout=training.dropout, workers=training.workers)
    unseen = setting.networks("val", config.evaluation.networks)
    networks.prepare()  # not a part of training's time
    ghn = new_ghn(config)
    ghn.remember(min(len(networks), networks.keep))
    if training.start_std:
        shown = [setting.case("val", number, unseen[number])[0] for number in range(len(unseen))]
        start_with(ghn, shown, training.start_std)
    fit = meta_train(
        ghn.to(setting.device),
        predict,
        networks,
        setting.examples,
        training,
        seed=config.seed,
        log=MetricsLog(folder.metrics_path),
        checkpoints=Checkpoints(folder.checkpoint_path, key=_key(config)),
        evaluate=lambda ghn: _validation(setting.judge(ghn, unseen, "val", config.evaluation.images).summary()),
        group=group,
        should_stop=stop if group.size == 1 else lambda: group.total(float(stop()))[0] > 0,
    )
    networks.close()
    return fit


def _key(config: MetaConfig) -> str:
    """Digest of the configuration; what says nothing of tasks is left out, so runs of before there were tasks go on."""
    plain = to_plain(config)
    if config.tasks is None:
        del plain["tasks"], plain["ghn"]["task"]
    return digest(plain)


def _validation(summary: dict[str, float]) -> dict[str, float]:
    """The figures of unseen networks of the val split on images held out, under names of their own."""
    return {f"val_{name}": value for name, value in summary.items() if name.startswith("accuracy")}


def _final_metrics(folder: RunFolder) -> dict[str, float]:
    """The last row's figures, free of clocks."""
    last = folder.read_metrics()[-1]
    return {name: value for name, value in last.items() if name.startswith(("val_accuracy", "train_"))}


def main(arguments: list[str]) -> int:
    """Do what the command line asks and return the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m trivet.tasks.ghn_train RUN_DIR\n")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    if int(os.environ.get("RANK", "0")) == 0:
        return run_task(arguments[0], train)
    setup_logging(logging.WARNING)
    stop = StopFlag()
    with stop.installed():
        try:
            train(RunFolder(Path(arguments[0])), stop, time.perf_counter())
        except Stopped:
            return 128 + stop.signal
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
