"""What Slurm has, as `sinfo` tells it."""

from __future__ import annotations

import re
import subprocess

from trivet.study.executors.base import WorkerError
from trivet.study.resources import Machine

SINFO_SECONDS = 60
"""Longest wait for `sinfo`."""

ELSEWHERE = "run trivet on a login node of Slurm, or with `--executor local`"


def largest_machine(partition: str = "") -> Machine:
    """The most cores and GPUs of a node of a partition, or of all.

    Raises:
        WorkerError: Slurm does not answer.
    """
    words = ["sinfo", "--noheader", "--format=%c %G"]
    words += [f"--partition={partition}"] if partition else []
    try:
        listing = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=SINFO_SECONDS)
    except subprocess.TimeoutExpired:
        raise WorkerError(f"executor slurm: {unanswered(f'sinfo gave no answer in {SINFO_SECONDS} s')}") from None
    except OSError as error:
        raise WorkerError(f"executor slurm: sinfo cannot be started ({error.strerror}); {ELSEWHERE}") from error
    if listing.returncode:
        raise WorkerError(f"executor slurm: {unanswered(listing.stderr)}")
    return largest_of(listing.stdout)


def unanswered(said: str) -> str:
    r"""What the complaints of a Slurm client mean, in one line.

    Examples:
        >>> unanswered("sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: no configuration source\n")
        'the Slurm client here has no configuration; name its slurm.conf in SLURM_CONF, run trivet on a login node ...'
        >>> unanswered("slurm_load_partitions: Unable to contact slurm controller (connect failure)")
        'Slurm does not answer (Unable to contact slurm controller (connect failure)); is slurmctld running? ...'
    """
    if re.search(r"fetch_config|configuration source|slurm\.conf|resolve_ctls", said):
        return f"the Slurm client here has no configuration; name its slurm.conf in SLURM_CONF, {ELSEWHERE}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = re.sub(r"^(?:[\w-]+: )+", "", lines[-1])[:200] if lines else "it said nothing"
    return f"Slurm does not answer ({last}); is slurmctld running? {ELSEWHERE}"


def largest_of(listing: str) -> Machine:
    r"""The largest machine in lines of cores and generic resources, as `sinfo --format="%c %G"` prints them.

    Examples:
        >>> largest_of("64 gpu:a100:4(S:0-1)\n128+ (null)\n")
        Machine(name='the largest Slurm node', cores=128, gpus=4)
    """
    cores, gpus = 0, 0
    for line in listing.splitlines():
        count, _, resources = line.strip().partition(" ")
        cores = max(cores, int(digits) if (digits := count.rstrip("+")).isdecimal() else 0)
        for part in resources.split(","):
            words = part.partition("(")[0].split(":")
            if words[0] == "gpu" and words[-1].isdigit():
                gpus = max(gpus, int(words[-1]))
    return Machine(name="the largest Slurm node", cores=cores, gpus=gpus)
