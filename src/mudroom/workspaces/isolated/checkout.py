"""A folder with the files of a tree, and a git repository of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from msgspec import Struct

from .dependencies import copy_included, find_dependencies
from .git import Git
from .recent_files import trust_index
from .repository import Repository
from .store import TreeStore, WorkingFiles

_BORROWED = "borrowed"
"""Folder in `.git` below which a sandbox shows the object folders of others."""


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

    The folder is a git repository if the source is the top of one. Its branches are those of the
    source; the index has the files of the tree, so changes of the parent look like staged ones.

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
    index = store.find_index(index_name)
    Path(index).unlink(missing_ok=True)
    git = Git(store.directory, index=index, files=top)
    git.run("read-tree", *([f"--prefix={store.prefix}"] if store.prefix else []), tree)
    git.run("checkout-index", "--all", "--force", "--index", "--quiet")
    trust_index(index)
    copy_included(store, files)
    read_only = _show_dependencies(store, files, same_path=same_path)
    if store.repository and not store.prefix:
        read_only |= _make_repository(store, store.repository, top, same_path=same_path)
        shutil.copyfile(index, os.path.join(top, ".git/index"))
    return Checkout(files, read_only)


def _show_dependencies(store: TreeStore, files: WorkingFiles, *, same_path: bool) -> dict[str, str]:
    """Make an entry for each folder with dependencies: a mount point, or a link to it."""
    read_only: dict[str, str] = {}
    for path in find_dependencies(store):
        folder = os.path.join(store.source, path)
        entry = os.path.join(files.folder, path)
        if os.path.lexists(entry):
            continue
        read_only[path] = folder
        if same_path:
            os.makedirs(entry)
        else:
            os.makedirs(os.path.dirname(entry), exist_ok=True)
            os.symlink(folder, entry)
    store.ignore_paths(os.path.join("/", store.prefix, path) for path in read_only)
    return read_only


def _copy_ignore_files(store: TreeStore, files: WorkingFiles) -> None:
    """Copy the ignore files of the folders above a source that is not the top of its repository."""
    folder = ""
    for name in store.prefix.split("/")[:-1]:
        source = os.path.join(store.source_files.top, folder, ".gitignore")
        if os.path.isfile(source) and not os.path.islink(source):
            shutil.copyfile(source, os.path.join(files.top, folder, ".gitignore"))
        folder = os.path.join(folder, name)


def _make_repository(
    store: TreeStore, source: Repository, top: str, *, same_path: bool
) -> dict[str, str]:
    """Make the git folder of a checkout. Returns the folders of others that it needs."""
    directory = Path(top, ".git")
    (directory / "objects/info").mkdir(parents=True)
    (directory / "refs").mkdir()
    (directory / "info").mkdir()
    user_git = Git(source.directory)
    object_format = user_git.read_line("rev-parse", "--show-object-format")
    (directory / "config").write_text(_make_config(object_format))
    info = Path(store.directory, "info")
    shutil.copyfile(info / "attributes", directory / "info/attributes")
    if (info / "exclude").exists():
        shutil.copyfile(info / "exclude", directory / "info/exclude")
    refs = user_git.run("for-each-ref", "--format=%(objectname) %(refname)")
    (directory / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + refs)
    (directory / "HEAD").write_text(_read_head(user_git) + "\n")
    borrowed = [os.path.join(store.directory, "objects"), *source.objects]
    alternates = directory / "objects/info/alternates"
    names = [f"{_BORROWED}/{number}" for number in range(len(borrowed))]
    read_only = {f".git/{name}": folder for name, folder in zip(names, borrowed, strict=True)}
    if not same_path:
        alternates.write_text("".join(f"{folder}\n" for folder in borrowed))
        return read_only
    for name in names:
        (directory / name).mkdir(parents=True)
    alternates.write_text("".join(f"../{name}\n" for name in names))
    return read_only


def _make_config(object_format: str) -> str:
    version = "0" if object_format == "sha1" else "1"
    config = f"[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n"
    if version == "1":
        config += f"[extensions]\n\tobjectFormat = {object_format}\n"
    return config


def _read_head(git: Git) -> str:
    """Return what the file HEAD of a repository says: a branch, or a commit."""
    branch = os.fsdecode(git.run("symbolic-ref", "--quiet", "HEAD", codes=(0, 1))).strip()
    return f"ref: {branch}" if branch else git.read_line("rev-parse", "HEAD")
