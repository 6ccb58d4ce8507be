"""Values of trees: files at one moment, their entries, and differences between two of them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec import Struct

LINK = 0o120000
REGULAR = 0o100000
FOLDER = 0o040000
FILE_TYPE = 0o170000
"""git's modes of files: the types, and the bits that hold the type."""


class WorkingFiles(Struct, frozen=True):
    """Files in a folder.

    Arguments:
        top: absolute path of the folder with the first ignore rules.
        prefix: path of the files below it, "" or with "/" at the end.
    """

    top: str
    prefix: str = ""

    @property
    def folder(self) -> str:
        """Absolute path of the folder with the files."""
        return os.path.join(self.top, self.prefix).rstrip("/") or "/"


class StoredFiles(Struct, frozen=True):
    """Files of a folder at one moment.

    Arguments:
        tree: id of the tree. missing: paths that the tree lacks, with reasons.
    """

    tree: str
    missing: tuple[str, ...] = ()


class TreeEntry(Struct, frozen=True):
    """One file of a tree: git's mode, and the id of its content."""

    mode: int
    id: str


class FileChange(Struct, frozen=True):
    """One difference between two trees.

    Arguments:
        path: relative to the folder.
        status: "added", "modified", "deleted" or "type" (a file became a link, or a link a file).
        before, after: object ids; "" for no file. mode: git's mode of the file after the change,
            of a deleted file before.
        was_link: true if the file was a link before.
    """

    path: str
    status: str
    before: str
    after: str
    mode: int
    was_link: bool = False


def is_link(mode: int) -> bool:
    """Return whether git's mode of a file is that of a link."""
    return mode & FILE_TYPE == LINK


def list_parents(paths: Iterable[str]) -> set[str]:
    """Return the folders above paths."""
    parents: set[str] = set()
    for path in paths:
        while (path := os.path.dirname(path)) and path not in parents:
            parents.add(path)
    return parents
