"""Local files of a session beside its journal.

They are long outputs, versions of files, workspaces, and the state of its batch.
"""

from __future__ import annotations

from pathlib import Path

_FOLDERS = ("spills", "versions", "isolated", "batches")


def delete_local_files(home: Path, session: str) -> None:
    """Delete the folders that a session has below the state folder."""
    import shutil  # slow to import, and rarely needed

    for name in _FOLDERS:
        shutil.rmtree(home / name / session, ignore_errors=True)
