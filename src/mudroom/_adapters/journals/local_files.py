"""A session's local files outside its journal.

These are long outputs, versions of files, workspaces, and the state of its batch.
"""

from __future__ import annotations

from pathlib import Path

from ..._platform.scratch_dirs import remove_tree

_FOLDERS = ("spills", "versions", "isolated", "batches")


def delete_local_files(home: Path, session: str) -> None:
    """Delete a session's folders below the state folder."""
    for name in _FOLDERS:
        remove_tree(home / name / session)
