"""Whether a GPU stands for an arm: then their effects cannot be told apart, whatever the statistics say.

A pair of runs on GPUs of the same kind is sound; on the very same GPU it is best. Two things are told: pairs whose two
runs had different kinds of GPU (by name), and arms that never had a GPU in common although GPUs were used again, as
when each arm has a GPU of its own.

Not covered: GPUs that other programs were using; runs on CPUs, see `environments.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from trivet.report.numbers import count, listing


def gpu_notices(
    records: Mapping[str, Mapping[str, Any]], runs: Mapping[str, tuple[str, int]], baseline: str
) -> list[str]:
    """Sentences that warn of arms and GPUs that are mixed up; none where all is well or no GPU was used.

    Args:
        records: run_id → content of environment.json.
        runs: run_id → arm and seed.
        baseline: The arm that the others are compared with.

    Examples:
        >>> records = {"r": {"gpu": [{"name": "A100", "uuid": "1"}]}, "s": {"gpu": [{"name": "H100", "uuid": "2"}]}}
        >>> gpu_notices(records, {"r": ("fp32", 0), "s": ("RR", 0)}, "fp32")[0]
        'In 1 of 1 pair RR had another kind of GPU than fp32 (H100 against A100): a difference between them may ...'
    """
    found: dict[str, dict[int, tuple[str, str]]] = defaultdict(dict)
    for run, record in records.items():
        gpus = record.get("gpu")
        if run in runs and isinstance(gpus, list) and gpus:
            arm, seed = runs[run]
            found[arm][seed] = _joined(gpus, "name"), _joined(gpus, "uuid")
    out: list[str] = []
    base = found.pop(baseline, {})
    for arm, own in found.items():
        pairs = [(own[seed], base[seed]) for seed in own if seed in base]
        differ = [(mine[0], theirs[0]) for mine, theirs in pairs if mine[0] != theirs[0]]
        if differ:
            (mine, theirs), _ = Counter(differ).most_common(1)[0]
            out.append(
                f"In {len(differ)} of {count(len(pairs), 'pair')} {arm} had another kind of GPU than {baseline} "
                f"({mine} against {theirs}): a difference between them may come from that."
            )
        elif _is_apart([gpu for _, gpu in own.values()], [gpu for _, gpu in base.values()]):
            out.append(
                f"{arm} and {baseline} never had a GPU in common, though each used some of its GPUs again "
                f"({listing(sorted({gpu[:12] for _, gpu in own.values()})[:3])} in {arm}): a difference between "
                "them may come from that."
            )
    return out


def _joined(gpus: list[Any], key: str) -> str:
    return ", ".join(str(gpu.get(key, "")) for gpu in gpus if isinstance(gpu, Mapping))


def _is_apart(one: list[str], other: list[str]) -> bool:
    """Whether two arms share no GPU, and not just because no run shared one with any."""
    if not all(one) or not all(other) or set(one) & set(other):
        return False
    return bool(one and other) and all(len(set(arm)) < len(arm) for arm in (one, other))
