"""The git repository of a checkout: the history and the branches of the user's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .git import Git
from .repository import Repository
from .store import TreeStore

_BORROWED = "borrowed"
"""Folder in `.git` below which a sandbox shows the object folders of others."""


def make_repository(
    store: TreeStore, source: Repository, top: str, index: str, *, same_path: bool
) -> dict[str, str]:
    """Make the git folder of a checkout. Returns the folders of others that it needs.

    Its index has the files of the tree, so changes of the parent look like staged ones.

    Arguments:
        top: folder with the files. index: index of these files.
        same_path: see `check_out`.
    """
    directory = Path(top, ".git")
    for name in ("objects/info", "refs", "info"):
        (directory / name).mkdir(parents=True)
    for name in ("attributes", "exclude"):
        file = Path(store.directory, "info", name)
        if file.exists():
            shutil.copyfile(file, directory / "info" / name)
    (directory / "config").write_text(_make_config(store.algorithm))
    _copy_refs(source, directory)
    shutil.copyfile(index, directory / "index")
    borrowed = (os.path.join(store.directory, "objects"), *source.objects)
    return _borrow_objects(directory, borrowed, same_path=same_path)


def _make_config(object_format: str) -> str:
    version = "0" if object_format == "sha1" else "1"
    config = f"[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n"
    if version == "1":
        config += f"[extensions]\n\tobjectFormat = {object_format}\n"
    return config


def _copy_refs(source: Repository, directory: Path) -> None:
    """Give a git folder the branches and the HEAD of the source, and where its history is cut."""
    git = Git(source.directory)
    refs = git.run("for-each-ref", "--format=%(objectname) %(refname)")
    (directory / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + refs)
    branch = os.fsdecode(git.run("symbolic-ref", "--quiet", "HEAD", codes=(0, 1))).strip()
    head = f"ref: {branch}" if branch else git.read_line("rev-parse", "HEAD")
    (directory / "HEAD").write_text(f"{head}\n")
    shallow = Path(source.common, "shallow")
    if shallow.exists():
        shutil.copyfile(shallow, directory / "shallow")


def _borrow_objects(
    directory: Path, borrowed: tuple[str, ...], *, same_path: bool
) -> dict[str, str]:
    """Let a git folder use object folders of others; return them by path in the workspace."""
    alternates = directory / "objects/info/alternates"
    names = [f"{_BORROWED}/{number}" for number in range(len(borrowed))]
    if same_path:
        for name in names:
            (directory / name).mkdir(parents=True)
        alternates.write_text("".join(f"../{name}\n" for name in names))
    else:
        alternates.write_text("".join(f"{folder}\n" for folder in borrowed))
    return {f".git/{name}": folder for name, folder in zip(names, borrowed, strict=True)}
