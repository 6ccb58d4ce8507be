"""A folder with the files of a tree, and a git repository of its own."""

from __future__ import annotations

import os
from contextlib import suppress

from msgspec import Struct

from ..._platform.open_beneath import open_new_folders
from .checkout_repository import make_repository
from .dependencies import copy_included, find_dependencies
from .git_store import GitStore
from .repository import copy_inside
from .trees import WorkingFiles


class Checkout(Struct, frozen=True):
    """The files of an isolated workspace.

    Arguments:
        files: where they are.
        read_only: folders of others that commands need: path in the workspace -> absolute path.
        missing: what they lack of the source, with reasons.
    """

    files: WorkingFiles
    read_only: dict[str, str] = {}
    missing: tuple[str, ...] = ()


def check_out(
    store: GitStore, tree: str, place: str, index_name: str, *, same_path: bool
) -> Checkout:
    """Write the files of a tree into a new folder. Returns where they are.

    The folder is a git repository if the source is the top of one.

    Arguments:
        place: absolute path of a folder; the files get a folder in it.
        index_name: see `TreeStore.store_files`.
        same_path: true if the sandbox shows the files at the path of the source, and the folders of
            others in them. If false, the workspace refers to these folders at their own paths.
    """
    top = os.path.join(place, os.path.basename(store.source_files.top) or "files")
    files = WorkingFiles(top, store.prefix)
    os.makedirs(files.folder)
    _copy_ignore_files(store, files)
    store.write_files(tree, files, index_name)
    copy_included(store, files)
    read_only = _show_dependencies(store, files, same_path=same_path)
    repository = store.repository
    if store.prefix:
        return Checkout(files, read_only)
    if no_history := repository.no_history if repository else _explain_unknown(store):
        return Checkout(files, read_only, (f".git ({no_history})",))
    if repository:
        index = store.find_index(index_name)
        read_only |= make_repository(store, repository, top, index, same_path=same_path)
    return Checkout(files, read_only)


def _explain_unknown(store: GitStore) -> str:
    """Return why an entry `.git` of the source is no repository, "" without one."""
    if not os.path.lexists(os.path.join(store.source_files.folder, ".git")):
        return ""
    return (
        "it is no git folder of this folder's own, or leads to one that does not name this folder"
    )


def _show_dependencies(store: GitStore, files: WorkingFiles, *, same_path: bool) -> dict[str, str]:
    """Make an entry for each folder with dependencies: a mount point, or a link to it."""
    read_only: dict[str, str] = {}
    top = os.open(files.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in find_dependencies(store):
            folder = os.path.join(store.source, path)
            # The tree may have a link in place of a folder above: nothing is made through it.
            with suppress(OSError):
                _make_entry(top, path, "" if same_path else folder)
                read_only[path] = folder
    finally:
        os.close(top)
    store.ignore_paths(os.path.join("/", store.prefix, path) for path in read_only)
    return read_only


def _make_entry(top: int, path: str, target: str) -> None:
    """Make a folder below an open one, or a link to `target`. Raises OSError if it exists."""
    *names, name = path.split("/")
    parent = open_new_folders(top, names)
    try:
        if target:
            os.symlink(target, name, dir_fd=parent)
        else:
            os.mkdir(name, dir_fd=parent)
    finally:
        os.close(parent)


def _copy_ignore_files(store: GitStore, files: WorkingFiles) -> None:
    """Copy the ignore files of the folders above a source that is not the top of its repository."""
    folder = ""
    for name in store.prefix.split("/")[:-1]:
        copy = os.path.join(files.top, folder, ".gitignore")
        with suppress(OSError):  # git follows no link there either
            copy_inside(store.source_files.top, os.path.join(folder, ".gitignore"), copy)
        folder = os.path.join(folder, name)
