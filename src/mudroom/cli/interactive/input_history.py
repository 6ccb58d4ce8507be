"""Where it is kept what was typed: a file for each folder, for the person alone."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def history_path(home: str, cwd: str) -> Path:
    """The file that keeps what was typed in one folder."""
    return Path(
        home,
        "history",
        hashlib.sha256(os.path.realpath(cwd).encode("utf-8", "surrogateescape")).hexdigest()[:16],
    )


def create_history_file(home: str, cwd: str) -> str:
    """The same, made if it is not there, for the user alone."""
    path = history_path(home, cwd)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    return str(path)
