"""Environment records of many runs as: what they share, where they differ, and what was asked for but not got.

A setting that has one value in each arm but not the same in all arms is *confounded*: its effect cannot be told from
the arm's, whatever the statistics say. It is marked, unless it belongs to a factor of the study.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

_SECTIONS = ("requested", "realised", "machine", "packages", "variables")


def summarize_environments(
    records: Mapping[str, Mapping[str, Any]], arms: Mapping[str, str], *, is_factor: bool = False
) -> dict[str, Any]:
    """Compare the environment records of the runs.

    Args:
        records: run_id → content of environment.json.
        arms: run_id → arm.
        is_factor: Whether the study varies the environment on purpose; then nothing is called confounded.

    Returns:
        `runs` (number of records), `shared` (section → dotted key → value), `differences` (a list of mappings with
        `key`, `values` (value, runs, arms) and `confounded`), `not_realised` (setting, runs, arms).

    Examples:
        >>> two = {"r1": {"packages": {"torch": "2.1"}}, "r2": {"packages": {"torch": "2.2"}}}
        >>> summarize_environments(two, {"r1": "a", "r2": "b"})["differences"][0]["confounded"]
        True
    """
    flat = {run: flatten(record) for run, record in records.items() if record}
    keys = sorted({key for values in flat.values() for key in values})
    shared: dict[str, dict[str, Any]] = {}
    differences: list[dict[str, Any]] = []
    for key in keys:
        if key == "not_realised":
            continue
        groups: dict[str, list[str]] = defaultdict(list)
        for run, values in flat.items():
            groups[json.dumps(values.get(key), sort_keys=True, default=str)].append(run)
        if len(groups) == 1:
            section, _, name = key.partition(".")
            section, name = (section, name) if name else ("other", section)
            shared.setdefault(section, {})[name] = json.loads(next(iter(groups)))
            continue
        differences.append(_difference(key, groups, arms, is_factor))
    order = [name for name in _SECTIONS if name in shared] + [name for name in shared if name not in _SECTIONS]
    return {
        "runs": len(flat),
        "shared": {section: shared[section] for section in order},
        "differences": sorted(differences, key=lambda row: (not row["confounded"], row["key"])),
        "not_realised": _not_realised(records, arms),
    }


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys.

    Examples:
        >>> flatten({"a": {"b": 1}, "c": [2]})
        {'a.b': 1, 'c': [2]}
    """
    out: dict[str, Any] = {}
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            out.update(flatten(value, f"{name}."))
        else:
            out[name] = value
    return out


def _difference(key: str, groups: Mapping[str, list[str]], arms: Mapping[str, str], is_factor: bool) -> dict[str, Any]:
    values = [
        {"value": json.loads(text), "runs": len(runs), "arms": _arms_of(runs, arms)}
        for text, runs in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    owners = [arm for value in values for arm in value["arms"]]
    confounded = not is_factor and len(owners) > 1 and len(owners) == len(set(owners))
    return {"key": key, "values": values, "confounded": confounded}


def _arms_of(runs: list[str], arms: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(arms[run] for run in arms if run in set(runs)))


def _not_realised(records: Mapping[str, Mapping[str, Any]], arms: Mapping[str, str]) -> list[dict[str, Any]]:
    found: dict[str, list[str]] = defaultdict(list)
    for run, record in records.items():
        names = record.get("not_realised")
        for name in names if isinstance(names, list) else []:
            found[str(name)].append(run)
    return [{"setting": name, "runs": len(runs), "arms": _arms_of(runs, arms)} for name, runs in sorted(found.items())]
