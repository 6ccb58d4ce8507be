"""A folder with the files of a tree, and a git repository of its own."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from msgspec import Struct

from ..._platform.open_beneath import open_new_folders
from .checkout_repository import make_repository
from .dependencies import copy_included, find_dependencies
from .store import TreeStore
from .trees import WorkingFiles


class Checkout(Struct, frozen=True):
    """The files of an isolated workspace.

    Arguments:
        files: where they are.
        read_only: folders of others that commands need: path in the workspace -> absolute path.
    """

    files: WorkingFiles
    read_only: dict[str, str] = {}


def check_out(
    store: TreeStore, tree: str, place: str, index_name: str, *, same_path: bool
) -> Checkout:
    """Write the files of a tree into a new folder. Returns where they are.

    The folder is a git repository if the source is the top of one, and git can be used.

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
    if store.repository and not store.prefix:
        index = store.find_index(index_name)
        read_only |= make_repository(store, store.repository, top, index, same_path=same_path)
    return Checkout(files, read_only)


def _show_dependencies(store: TreeStore, files: WorkingFiles, *, same_path: bool) -> dict[str, str]:
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


def _copy_ignore_files(store: TreeStore, files: WorkingFiles) -> None:
    """Copy the ignore files of the folders above a source that is not the top of its repository."""
    folder = ""
    for name in store.prefix.split("/")[:-1]:
        source = os.path.join(store.source_files.top, folder, ".gitignore")
        if os.path.isfile(source) and not os.path.islink(source):
            shutil.copyfile(source, os.path.join(files.top, folder, ".gitignore"))
        folder = os.path.join(folder, name)
