"""Trees of a session on a machine that does not see its folder; packs bring them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ...._core.ports import SourceFacts
from ...._platform.private_files import replace_private_file
from ....errors import WorkspaceError
from .git_store import GitStore
from .repository import Repository, read_inside
from .trees import WorkingFiles

_EXCLUDE_FILE = "info/exclude"


class ReceivedStore(GitStore):
    """A store without the user's folder. See GitStore.

    Arguments:
        source: folder that stands for the one with the first ignore rules; it gets ignore files.
        facts: about the folder of the session.
    """

    def __init__(self, directory: str, source: str, facts: SourceFacts) -> None:
        self._facts = facts
        self._top = os.path.join(source, facts.name or "files")
        folder = os.path.join(self._top, facts.prefix)
        os.makedirs(folder, exist_ok=True)
        for path, content in facts.ignore_files.items():
            if os.path.basename(path) != ".gitignore" or ".." in path.split("/"):
                raise WorkspaceError(f"{path!r} is no path of an ignore file")
            if read_inside(self._top, path) != content:  # git of another process may read it now
                replace_private_file(Path(self._top, path), content)
        super().__init__(directory, folder)

    @property
    def source_files(self) -> WorkingFiles:
        """The folder that stands for the source. It has no files but ignore files."""
        return WorkingFiles(self._top, self._facts.prefix)

    @property
    def prefix(self) -> str:
        """Path of the source below the folder with the first ignore rules."""
        return self._facts.prefix

    def _find_repository(self, folder: str) -> Repository | None:
        """Return None: the user's repository is on another machine."""
        return None

    def _find_object_format(self) -> str:
        return self._facts.algorithm

    def _list_excluded(self, excluded: object) -> Iterator[str]:
        """Yield the patterns of the store of the session."""
        yield from map(os.fsdecode, self._facts.excludes.splitlines())


def describe_source(store: GitStore) -> SourceFacts:
    """Return what a ReceivedStore must know to store files as this store does."""
    files = store.source_files
    ignore_files: dict[str, bytes] = {}
    folder = ""
    for name in store.prefix.split("/")[:-1]:
        path = os.path.join(folder, ".gitignore")
        patterns = read_inside(files.top, path)
        if patterns is not None:
            ignore_files[path] = patterns
        folder = os.path.join(folder, name)
    exclude = Path(store.directory, _EXCLUDE_FILE)
    return SourceFacts(
        store.algorithm,
        os.path.basename(files.top),
        store.prefix,
        exclude.read_bytes() if exclude.exists() else b"",
        ignore_files,
    )
