"""Fixtures that every test folder shares."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A suite that was started in the background inherits ignored signals and would hand them on to the processes that the
# tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def repo() -> Path:
    """Root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder with larger real data (`TRIVET_SHARED`, or `shared` beside the checkout); skips when absent."""
    folder = Path(os.environ.get("TRIVET_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"needs the folder of shared data: {folder} does not exist (set TRIVET_SHARED)")
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium; skips when none is installed."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("needs a Chromium on the PATH (Debian package: chromium)")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither see nor change the user's cache and data folders."""
    home = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("TRIVET_DATA_ROOT", raising=False)
    monkeypatch.delenv("TRIVET_RUN_DIR", raising=False)
