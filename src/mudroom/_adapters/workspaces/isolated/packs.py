"""Packs: files with the objects of trees, with which they travel to another store."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....errors import WorkspaceError
from .git import Git

_MAX_LOOSE = 200
"""Objects of a pack that are stored one by one: many small packs make git slow."""

_HEADER = b"PACK"
_HEADER_BYTES = 12

_ID = re.compile("[0-9a-f]{40}([0-9a-f]{24})?")


def write_pack(git: Git, trees: Sequence[str], known: Sequence[str], path: str) -> None:
    """Write a pack with the objects of trees that other trees lack.

    Arguments:
        known: ids of these trees; those that are not here are no help. path: of the new file.
    """
    check_ids(*trees, *known)
    revisions = [*trees, *(f"^{each}" for each in select_present(git, known))]
    with open(path, "wb") as file:
        git.run(
            "pack-objects",
            "--revs",
            "--stdout",
            "--quiet",
            # Differences between objects and a strong compression take longer than they save.
            "--window=0",
            "--compression=1",
            data="".join(f"{each}\n" for each in revisions).encode(),
            write_to=file,
        )


def add_pack(git: Git, trees: Sequence[str], path: str) -> None:
    """Add the objects of a pack to a repository. git computes their ids from their contents.

    Raises WorkspaceError if the pack is damaged, or if an object of a tree is missing then.
    """
    check_ids(*trees)
    name = " and ".join(trees)
    with open(path, "rb", buffering=0) as file:
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.startswith(_HEADER):
            raise WorkspaceError(f"the pack of the tree {name} is damaged: it is no pack")
        is_small = int.from_bytes(header[8:], "big") <= _MAX_LOOSE
        file.seek(0)
        command = ("unpack-objects", "-q") if is_small else ("index-pack", "--stdin")
        try:
            git.run(*command, read_from=file)
            _check_trees(git, trees)
        except WorkspaceError as error:
            raise WorkspaceError(f"the pack of the tree {name} is damaged: {error}") from error


def has_tree(git: Git, tree: str) -> bool:
    """Return whether a repository has a tree with all its objects."""
    check_ids(tree)
    if not select_present(git, [tree]):
        return False
    try:
        _check_trees(git, [tree])
    except WorkspaceError:  # such as after a pack that was damaged
        return False
    return True


def _check_trees(git: Git, trees: Sequence[str]) -> None:
    """Raise WorkspaceError if an object of a tree is missing."""
    git.run("rev-list", "--objects", "--quiet", *(f"{tree}^{{tree}}" for tree in trees))


def check_ids(*ids: str) -> None:
    """Raise WorkspaceError if a text that another process sent is no id of an object."""
    for each in ids:
        if not _ID.fullmatch(each):
            raise WorkspaceError(f"{each!r} is no id of a tree")


def select_present(git: Git, ids: Sequence[str]) -> list[str]:
    """Return the ids of objects that a repository has."""
    if not ids:
        return []
    data = "".join(f"{each}\n" for each in ids).encode()
    lines = git.run("cat-file", "--batch-check", data=data).decode().splitlines()
    return [each for each, line in zip(ids, lines, strict=True) if not line.endswith(" missing")]
