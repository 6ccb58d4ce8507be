"""Local files of a session beside its journal.

They are long outputs, versions of files, workspaces, and the state of its batch.
"""

from __future__ import annotations

from pathlib import Path

from ..._platform.scratch_dirs import remove_tree

_FOLDERS = ("spills", "versions", "isolated", "batches")


def delete_local_files(home: Path, session: str) -> None:
    """Delete the folders that a session has below the state folder."""
    for name in _FOLDERS:
        remove_tree(home / name / session)
