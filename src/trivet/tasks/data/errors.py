"""The error for data that is on the machine and cannot be used; data that is absent is `MissingDataError`."""

from __future__ import annotations

from trivet.core.errors import TrivetError


class UnusableDataError(TrivetError):
    """A data file is damaged or holds something else; the message names the file, what was found and what may be there.

    Examples:
        >>> UnusableDataError("train.npz: not a zip archive").exit_code
        2
    """

    exit_code = 2
