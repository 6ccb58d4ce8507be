"""What a run made that no tree has: empty folders, pipes, sockets, devices, closed folders."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from ...._platform.paths import path_to_text
from ...._platform.protected_names import find_protected_component
from .._listing import FOLDER_FLAGS, MAX_DEPTH
from .git import Git, split_at_nul
from .git_store import GitStore
from .ignored_work import open_git
from .trees import WorkingFiles, list_parents

_MAX_NAMED = 3
"""Entries of each kind that are named; the others are counted."""

_FLAGS = FOLDER_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC


def describe_unseen(
    store: GitStore,
    files: WorkingFiles,
    run_id: str,
    base: str,
    hidden: Collection[str],
    named: Sequence[str],
) -> Iterator[str]:
    """Yield what of a run's folder is in no tree, although git does not ignore it.

    Arguments:
        base: id of the tree that it began with: a folder of it that is empty by now is not new.
        hidden: folders of others that it only reads.
        named: files that the store has named already, with reasons.
    """
    top = os.open(files.folder, FOLDER_FLAGS | os.O_CLOEXEC)
    try:
        found = list(_walk(top, "", hidden))
    finally:
        os.close(top)
    if not found:
        return
    found = _leave_out(open_git(store, files, run_id), found)
    known = {note.rpartition(" (")[0] for note in named}
    folders = [path for path, kind in found if kind == "folder"]
    old = list_parents(store.list_entries(base, folders)) if folders else set[str]()
    yield from _describe([path for path in folders if path not in old], "empty folder")
    special = [path for path, kind in found if kind == "special" and path not in known]
    yield from _describe(special, "pipe, socket or device")
    closed = [path for path, kind in found if kind == "closed"]
    yield from _describe(closed, "folder that cannot be read")


def _walk(folder: int, prefix: str, hidden: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield path and kind: "folder" (empty), "closed" or "special"."""
    with os.scandir(folder) as scan:
        entries = list(scan)
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            # Of git's own folder nothing is merged; what lies deeper is named by the store.
            if entry.name != ".git" and path not in hidden and prefix.count("/") < MAX_DEPTH:
                yield from _walk_below(folder, entry.name, path, hidden)
        elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
            yield path, "special"
    if prefix and not entries:
        yield prefix.rstrip("/"), "folder"


def _walk_below(
    folder: int, name: str, path: str, hidden: Collection[str]
) -> Iterator[tuple[str, str]]:
    try:
        inner = os.open(name, _FLAGS, dir_fd=folder)
    except OSError:
        yield path, "closed"
        return
    try:
        yield from _walk(inner, f"{path}/", hidden)
    finally:
        os.close(inner)


def _leave_out(git: Git, found: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out what git ignores, and the mount points of a sandbox, which hide protected files."""
    data = b"".join(
        os.fsencode(f"{path}/\0" if kind == "folder" else f"{path}\0") for path, kind in found
    )
    output = git.run("check-ignore", "-z", "--stdin", data=data, codes=(0, 1))
    ignored = {path.rstrip("/") for path in split_at_nul(output)}
    return sorted(
        (path, kind)
        for path, kind in found
        if path not in ignored and not find_protected_component(path)
    )


def _describe(paths: Sequence[str], kind: str) -> Iterator[str]:
    yield from (f"{path_to_text(path)} ({kind})" for path in paths[:_MAX_NAMED])
    more = len(paths) - _MAX_NAMED
    if more > 0:
        yield f"{more} more ({kind})"
