"""The record of a landing, written at its start so that a later process can finish or undo it.

It works like a database's rollback journal. It lives in mudroom's state folder, is written before
the first file appears in the user's folder, and is removed after the last one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ....._core.json_values import get_decoder
from ....._platform.paths import path_from_text, path_to_text
from ....._platform.private_files import make_private_folder, replace_durably, sync_folder
from ..store import FILE_TYPE, FOLDER, LINK, REGULAR, UNFINISHED

_LANDED = "+landed"  # suffix of a landing's record once all files have their names
_UNDONE = "+undone"  # suffix of a landing's record once it is undone


class InnerFile(Struct, frozen=True):
    """A file of a folder that lands as one entry; `path` is relative to that folder."""

    path: str
    id: str
    mode: int


class LandingFile(Struct, frozen=True):
    """A file that a landing writes or removes, or a folder exchanged for a file.

    Arguments:
        temporary: name of an entry beside it: at first the new file, later the old one.
        before, after: see `MergedFile`; for a folder, the id of its listing.
        inode: number of the new entry; 0 until it is staged, and for a removal.
        old_files, new_files: contents of the folder being removed, and of the one being added;
            None if there is no folder.
    """

    path: str
    temporary: str
    before: str
    after: str
    mode: int
    was_link: bool = False
    inode: int = 0
    old_files: tuple[InnerFile, ...] | None = None
    new_files: tuple[InnerFile, ...] | None = None

    @property
    def old_type(self) -> int:
        if self.old_files is not None:
            return FOLDER
        return LINK if self.was_link else REGULAR

    @property
    def new_type(self) -> int:
        return self.mode & FILE_TYPE if self.new_files is None else FOLDER

    @property
    def inner_files(self) -> tuple[InnerFile, ...]:
        return self.old_files or self.new_files or ()


class LandingPlan(Struct, frozen=True):
    """The steps of a landing.

    Arguments:
        files: in the order of their renames.
        folders: paths of folders made for them, parents first.
        is_staged: true if all new files are beside their targets, so renames may have begun.
    """

    root: str
    files: tuple[LandingFile, ...]
    folders: tuple[str, ...] = ()
    is_staged: bool = False


class LandingRecord:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._landed = path.with_name(path.name + _LANDED)
        self._undone = path.with_name(path.name + _UNDONE)

    @property
    def exists(self) -> bool:
        """True while a landing is under way, or after it was killed."""
        return self._path.exists() or self.is_landed or self.is_undone

    @property
    def is_landed(self) -> bool:
        """True if all files have their names, and only the old ones remain to be removed."""
        return self._landed.exists()

    @property
    def is_undone(self) -> bool:
        """True if the old files have their names, and only the new ones remain to be removed."""
        return self._undone.exists()

    def read(self) -> LandingPlan | None:
        for path in (self._path, self._landed, self._undone):
            with suppress(FileNotFoundError):
                plan = get_decoder(LandingPlan).decode(path.read_bytes())
                return msgspec.structs.replace(plan, root=path_from_text(plan.root))
        return None

    def save(self, plan: LandingPlan) -> None:
        """Store the plan durably, so that it survives a power failure."""
        make_private_folder(self._path.parent)
        plan = msgspec.structs.replace(plan, root=path_to_text(plan.root))
        replace_durably(self._path, msgspec.json.encode(plan), suffix=UNFINISHED)

    def mark_landed(self) -> None:
        """Record that all files have their names: by a rename, which works on a full disk."""
        self._mark(self._landed)

    def mark_undone(self) -> None:
        self._mark(self._undone)

    def _mark(self, path: Path) -> None:
        if not path.exists():
            os.rename(self._path, path)
            sync_folder(path.parent)

    def remove(self) -> None:
        for path in (self._path, self._landed, self._undone):
            path.unlink(missing_ok=True)
        sync_folder(self._path.parent)
