"""Runs a study in a process of its own, for tests that interrupt or kill it.

parent.py STUDY FOLDER SLOTS warm|plain|real
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from trivet.core.errors import TrivetError
from trivet.study import LocalExecutor, Study, StudyInterrupted

FAKE = (sys.executable, str(Path(__file__).with_name("fake_child.py")))


def main(file: str, folder: str, slots: str, kind: str) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    executor = LocalExecutor() if kind == "real" else LocalExecutor(command=FAKE, warm=kind == "warm")
    try:
        return Study.from_yaml(file, folder=folder).run(executor=executor, slots=int(slots)).exit_code
    except StudyInterrupted as stopped:
        sys.stdout.write(f"{stopped}\n")
        return stopped.exit_code
    except TrivetError as error:
        sys.stdout.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
