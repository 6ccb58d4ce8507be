"""Local files of a session beside its journal: long outputs, versions of files, workspaces."""

from __future__ import annotations

from pathlib import Path

_FOLDERS = ("spills", "versions", "isolated")


def delete_local_files(home: Path, session: str) -> None:
    """Delete the folders that a session has below the state folder."""
    import shutil  # slow to import, and rarely needed

    for name in _FOLDERS:
        shutil.rmtree(home / name / session, ignore_errors=True)
