"""Earlier contents of files, kept before a tool writes them, to compare and to restore."""

from __future__ import annotations

from pathlib import Path

from ..._core.ports import Workspace
from ..._platform.private_files import make_private_folder, replace_private_file
from ...errors import WorkspaceError
from .content_hashes import read_entry

MAX_VERSION_BYTES = 8 << 20
"""Size of a file up to which its content is kept."""


class FileVersions:
    """Contents of files by sha256, in a folder that no tool and no sandbox reads."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def keep(self, workspace: Workspace, path: str, sha256: str) -> None:
        """Keep the present content of a file. Larger files are left out.

        Arguments:
            sha256: of the content; "" for no file.
        """
        target = Path(self.folder, sha256)
        if not sha256 or target.exists():
            return
        try:
            data = read_entry(workspace, path, MAX_VERSION_BYTES + 1, sha256)
            if len(data) <= MAX_VERSION_BYTES:
                make_private_folder(target.parent)
                replace_private_file(target, data)
        except (OSError, WorkspaceError):
            pass  # The write is allowed; a restore then says that the earlier content is missing.

    def read(self, sha256: str) -> bytes | None:
        """Return the content with this hash; b"" for no file, None if it was not kept."""
        if not sha256:
            return b""
        try:
            return Path(self.folder, sha256).read_bytes()
        except OSError:
            return None
