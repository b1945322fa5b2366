"""The process that `trivet audit` asks: `python -m trivet.cli.audits`; see `trivet.cli.child`."""

from __future__ import annotations

import sys

from trivet.cli.child import serve
from trivet.tasks.audit import audit_run

if __name__ == "__main__":
    sys.exit(serve(audit_run))
