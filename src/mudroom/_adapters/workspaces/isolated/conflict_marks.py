"""Conflict marks: the lines around both versions of a text that could not be merged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from .git_store import GitStore
from .trees import FILE_TYPE, REGULAR, FileChange, TreeEntry

OURS = "the parent's version"
BASE = "before both"
THEIRS = "the child's version"

_NAMED_BY_COMMIT = re.compile(rb"^(<{7}|\|{7}|>{7}) ([0-9a-f]{7,64})(.*)$", re.MULTILINE)
_MARK = re.compile(f"^(<<<<<<< {OURS}|>>>>>>> {THEIRS})".encode(), re.MULTILINE)

_MOVED = re.compile(r"~[0-9a-f]{40,64}(_\d+)?$")
"""End of the path of a file that git moved because a folder has its path."""


def name_sides(
    store: GitStore, tree: str, paths: Iterable[str], commits: tuple[str, str, str]
) -> tuple[str, dict[str, str]]:
    """Name the sides in conflict marks in which git names commits.

    Returns the id of the tree, and those of its files with conflicts.

    Arguments:
        paths: files with conflicts. commits: ids of base, ours and theirs.
    """
    names = dict(zip(commits, (BASE, OURS, THEIRS), strict=True))
    entries = store.list_entries(tree)
    files = {path: entries[path] for path in paths if path in entries}
    for path, entry in files.items():
        if entry.mode & FILE_TYPE != REGULAR:
            continue
        before = store.read(entry.id)
        after = _NAMED_BY_COMMIT.sub(lambda match: _name_side(match, names), before)
        if after != before:
            entries[path] = type(entry)(entry.mode, store.write(after))
    is_changed = any(entries[path] != entry for path, entry in files.items())
    return store.write_tree(entries) if is_changed else tree, {
        path: entries[path].id for path in files
    }


def _name_side(match: re.Match[bytes], names: Mapping[str, str]) -> bytes:
    commit = match[2].decode()
    name = next((names[each] for each in names if each.startswith(commit)), commit)
    return b"%b %b%b" % (match[1], name.encode(), match[3])


def find_marked(store: GitStore, changes: Iterable[FileChange]) -> set[str]:
    """Return the changed files that have conflict marks of a merge, in their text or path."""
    return {
        change.path
        for change in changes
        if change.after and is_marked(store, change.path, TreeEntry(change.mode, change.after))
    }


def is_marked(store: GitStore, path: str, entry: TreeEntry) -> bool:
    """Return whether a file has conflict marks of a merge, in its text or path."""
    if _MOVED.search(path):
        return True
    return entry.mode & FILE_TYPE == REGULAR and bool(_MARK.search(store.read(entry.id)))
