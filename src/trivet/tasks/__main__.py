"""`python -m trivet.tasks RUN_DIR`: do one run. `python -m trivet.tasks --serve`: fork runs on request."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str]) -> int:
    """Do what the command line asks and return the exit code."""
    if arguments == ["--serve"]:
        from trivet.tasks.server import serve

        return serve()
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m trivet.tasks RUN_DIR | --serve\n")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    from trivet.tasks.run import follow_task, run_task

    return run_task(arguments[0]) if int(os.environ.get("RANK", "0")) == 0 else follow_task(arguments[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
