"""A run's files that git ignores: which of them are work, and what becomes of the others.

A file written by a file tool, or added to the run's own index, is work like any other. The rest is
named and counted; small files are kept beside the work for the user.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from ...._core.runs import IgnoredFiles
from ...._platform.paths import path_from_text, path_to_text
from ...._platform.protected_names import find_protected_component
from .._listing import FOLDER_FLAGS, MAX_DEPTH, hold_open
from .git import Git, split_at_nul
from .git_store import GitStore, forget_recent_files, list_ignored, read_content, store_contents
from .repository import find_repository
from .store import MAX_FILE_BYTES, TreeEntry, WorkingFiles, list_parents

MAX_COUNTED = 1_000  # ignored files to look at; the rest is not counted
MAX_NAMES = 20  # ignored files to name

# Limits of kept ignored files: their number, the size of each, and the total size.
MAX_KEPT = 200
MAX_KEPT_FILE_BYTES = 1 << 20
MAX_KEPT_BYTES = 16 << 20
_MAX_NAMED = 1_000  # files written by tools to check for ignored ones


def add_named(store: GitStore, files: WorkingFiles, index_name: str, named: Sequence[str]) -> None:
    """Enter ignored files that are work into a run's index, so that the store has them.

    `named` are the paths written by file tools, as text.
    """
    git = store.open_git(files, index_name)
    paths: list[str] = []
    inside = [path for path in named if not path.startswith(("/", ".."))]
    if inside:
        literal = [f":(literal){path_from_text(path)}" for path in inside[:_MAX_NAMED]]
        paths = list_ignored(git, "--exclude-standard", paths=literal)
    repository = find_repository(files.top)
    if repository and repository.top == os.path.realpath(files.top):
        paths += store.find_forced(repository, files).list_present(files.folder)
    present = [path for path in dict.fromkeys(paths) if _is_storable(files.folder, path)]
    if present:
        # Once the index is rewritten, git trusts its facts about files that have just changed.
        forget_recent_files(git, files.folder)
    store_contents(git, files.folder, present, store.find_id)


def keep_others(
    store: GitStore, files: WorkingFiles, index_name: str, hidden: Collection[str]
) -> IgnoredFiles | None:
    """Keep a run's small ignored files that are not work; None if it made none.

    `hidden` are folders that the run only reads, such as dependencies.
    """
    git = store.open_git(files, index_name)
    listed = list_ignored(git, "--directory", "--exclude-standard")
    listed = [path for path in listed if path.rstrip("/") not in hidden]
    names: list[str] = []
    entries: dict[str, TreeEntry] = {}
    size = 0
    with hold_open(os.open(files.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as top:
        for path in _walk(files.folder, listed):
            if _is_copy(store, files, path):
                continue
            names.append(path)
            if len(names) > MAX_COUNTED:
                break
            with suppress(OSError):
                length = os.lstat(os.path.join(files.folder, path)).st_size
                is_small = length <= MAX_KEPT_FILE_BYTES and size + length <= MAX_KEPT_BYTES
                if is_small and len(entries) < MAX_KEPT:
                    mode, data = read_content(top, path)
                    entries[path] = TreeEntry(mode, store.write(data))
                    size += len(data)
    if not names:
        return None
    tree = store.write_tree(entries) if entries else ""
    shown = tuple(map(path_to_text, names[:MAX_NAMES]))
    return IgnoredFiles(len(names), shown, len(entries), tree)


def _walk(folder: str, listed: Sequence[str]) -> Iterator[str]:
    yield from (path for path in listed if not path.endswith("/"))
    for path in listed:
        if path.endswith("/"):
            for place, folders, names in os.walk(os.path.join(folder, path)):
                relative = os.path.relpath(place, folder)
                is_deep = relative.count("/") >= MAX_DEPTH  # before Python 3.12, walk recurses
                folders[:] = [] if is_deep else sorted(set(folders) - {".git"})
                yield from (os.path.join(relative, name) for name in sorted(names))


def _is_storable(folder: str, path: str) -> bool:
    with suppress(OSError):
        return os.lstat(os.path.join(folder, path)).st_size <= MAX_FILE_BYTES
    return False


def _is_copy(store: GitStore, files: WorkingFiles, path: str) -> bool:
    """Return whether a file is an untouched copy of the user's, with the same size and time."""
    with suppress(OSError):
        own = os.lstat(os.path.join(files.folder, path))
        users = os.lstat(os.path.join(store.source_files.folder, path))
        return (own.st_size, own.st_mtime_ns) == (users.st_size, users.st_mtime_ns)
    return False


_MAX_NAMED_UNSEEN = 3  # entries of each kind to name; the rest is counted

_FLAGS = FOLDER_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC


def describe_unseen(
    store: GitStore,
    files: WorkingFiles,
    run_id: str,
    base: str,
    hidden: Collection[str],
    named: Sequence[str],
) -> Iterator[str]:
    """Describe entries of a run's folder that are in no tree although git does not ignore them.

    Arguments:
        base: id of the tree it began with: a folder of it that is empty by now is not new.
        hidden: folders of others that it only reads.
        named: files that the store has already named, with reasons.
    """
    with hold_open(os.open(files.folder, FOLDER_FLAGS | os.O_CLOEXEC)) as top:
        found = list(_walk_unseen(top, "", hidden))
    if not found:
        return
    found = _leave_out(store.open_git(files, run_id), found)
    known = {note.rpartition(" (")[0] for note in named}
    folders = [path for path, kind in found if kind == "folder"]
    old = list_parents(store.list_entries(base, folders)) if folders else set[str]()
    yield from _describe([path for path in folders if path not in old], "empty folder")
    special = [path for path, kind in found if kind == "special" and path not in known]
    yield from _describe(special, "pipe, socket or device")
    closed = [path for path, kind in found if kind == "closed"]
    yield from _describe(closed, "folder that cannot be read")


def _walk_unseen(folder: int, prefix: str, hidden: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield path and kind: "folder" (empty), "closed" or "special"."""
    with os.scandir(folder) as scan:
        entries = list(scan)
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            # Nothing in `.git` is merged; the store names anything deeper.
            if entry.name != ".git" and path not in hidden and prefix.count("/") < MAX_DEPTH:
                try:
                    inner = os.open(entry.name, _FLAGS, dir_fd=folder)
                except OSError:
                    yield path, "closed"
                    continue
                with hold_open(inner):
                    yield from _walk_unseen(inner, f"{path}/", hidden)
        elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
            yield path, "special"
    if prefix and not entries:
        yield prefix.rstrip("/"), "folder"


def _leave_out(git: Git, found: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out what git ignores, and a sandbox's mount points, which hide protected files."""
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
    yield from (f"{path_to_text(path)} ({kind})" for path in paths[:_MAX_NAMED_UNSEEN])
    more = len(paths) - _MAX_NAMED_UNSEEN
    if more > 0:
        yield f"{more} more ({kind})"
