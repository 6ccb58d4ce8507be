"""Settings of a command line, from files, environment and flags."""

from __future__ import annotations

import os

from ... import config
from ...errors import UsageError


def load_settings(cwd: str, **flags: object) -> config.Settings:
    """Return the settings that apply in a folder.

    Raises UsageError if the folder does not exist or a setting is wrong.
    """
    require_folder(cwd)
    return config.load_settings(cwd=cwd, environ=os.environ, flags=flags)


def require_folder(cwd: str) -> None:
    """Raise UsageError if the folder does not exist."""
    if not os.path.isdir(cwd):
        raise UsageError(
            "not a directory" if os.path.exists(cwd) else "no such directory",
            where=cwd,
            remedy="Name a folder with -C.",
        )
