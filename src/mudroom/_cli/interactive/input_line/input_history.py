"""Input history: one private file per working directory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def get_history_path(home: str, cwd: str) -> Path:
    """Return the path of a folder's history file.

    Arguments:
        home: mudroom's state folder.
    """
    # Paths may have bytes that are not UTF-8.
    folder = os.path.realpath(cwd).encode("utf-8", "surrogateescape")
    return Path(home, "history", hashlib.sha256(folder).hexdigest()[:16])


def create_history_file(home: str, cwd: str) -> str:
    """Create the history file if it is missing, readable only by the user; return its path."""
    path = get_history_path(home, cwd)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    return str(path)
