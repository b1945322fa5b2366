"""Studies: factors × seeds, each run in its own process, restartable after any crash.

Nothing here imports torch; a run is a command line (`python -m trivet.tasks RUN_DIR`) and the folder it fills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.study.accounting import Harness
    from trivet.study.executors.local import LocalExecutor
    from trivet.study.lookbook import LookBook
    from trivet.study.nulls import Rounding
    from trivet.study.plan import PlannedRun
    from trivet.study.progress import ActiveRun, LogProgress, Progress
    from trivet.study.record import Record
    from trivet.study.results import ArmComparison, Results
    from trivet.study.spec import MetricSpec, ResourcesSpec, StudySpec
    from trivet.study.stop import StudyInterrupted, StudyStopped
    from trivet.study.study import Study

__all__ = [
    "ActiveRun",
    "ArmComparison",
    "Harness",
    "LocalExecutor",
    "LogProgress",
    "LookBook",
    "MetricSpec",
    "PlannedRun",
    "Progress",
    "Record",
    "ResourcesSpec",
    "Results",
    "Rounding",
    "Study",
    "StudyInterrupted",
    "StudySpec",
    "StudyStopped",
]

_HOMES = {
    "accounting": ("Harness",),
    "executors.local": ("LocalExecutor",),
    "lookbook": ("LookBook",),
    "nulls": ("Rounding",),
    "plan": ("PlannedRun",),
    "progress": ("ActiveRun", "LogProgress", "Progress"),
    "record": ("Record",),
    "results": ("ArmComparison", "Results"),
    "spec": ("MetricSpec", "ResourcesSpec", "StudySpec"),
    "stop": ("StudyInterrupted", "StudyStopped"),
    "study": ("Study",),
}

__getattr__, __dir__ = attach(__name__, {name: f".{home}" for home, names in _HOMES.items() for name in names})
