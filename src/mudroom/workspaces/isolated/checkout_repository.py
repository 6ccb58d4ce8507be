"""The git repository of a checkout: the history and the branches of the user's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .git import make_git_folder
from .git_store import GitStore
from .packs import select_present
from .repository import Repository

_BORROWED = "borrowed"
"""Folder in `.git` below which a sandbox shows the object folders of others."""


def make_repository(
    store: GitStore, source: Repository, top: str, index: str, *, same_path: bool
) -> dict[str, str]:
    """Make the git folder of a checkout. Returns the folders of others that it needs.

    Its index has the files of the tree, so changes of the parent look like staged ones.

    Arguments:
        top: folder with the files. index: index of these files.
        same_path: see `check_out`.
    """
    directory = Path(top, ".git")
    make_git_folder(str(directory), store.algorithm)
    for name in ("attributes", "exclude"):
        file = Path(store.directory, "info", name)
        if file.exists():
            shutil.copyfile(file, directory / "info" / name)
    _copy_refs(store, source, directory)
    shutil.copyfile(index, directory / "index")
    borrowed = (os.path.join(os.path.realpath(store.directory), "objects"), source.objects)
    return _borrow_objects(directory, borrowed, same_path=same_path)


def _copy_refs(store: GitStore, source: Repository, directory: Path) -> None:
    """Give a git folder the branches and the HEAD of the source, and where its history is cut."""
    refs = source.read_refs()
    present = set(select_present(store.git, list({*refs.values()})))
    lines = [f"{refs[name]} {name}\n" for name in sorted(refs) if refs[name] in present]
    header = "# pack-refs with: sorted \n"
    (directory / "packed-refs").write_bytes(os.fsencode(header + "".join(lines)))
    if head := source.read_head():
        text = f"ref: {head}\n" if head.startswith("refs/") else f"{head}\n"
        (directory / "HEAD").write_bytes(os.fsencode(text))
    if shallow := source.read_shallow():
        (directory / "shallow").write_text(shallow)


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
