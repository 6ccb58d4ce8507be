"""A folder with the files of a tree, and its own git repository.

Its `.git` has the history and branches of the user's. Of the files that git ignores, it shows the
user's dependencies read-only, and has copies of those named in `.worktreeinclude`.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ...._platform.open_beneath import open_new_file, open_new_folders, open_step_by_step
from .._listing import FOLDER_FLAGS, hold_open
from .git import make_git_folder, select_present
from .git_store import GitStore
from .repository import Repository, copy_inside, read_inside
from .store import MAX_FILE_BYTES, WorkingFiles

INCLUDE_FILE = ".worktreeinclude"  # patterns of ignored files to copy, as in `.gitignore`

_FOLDER_NAMES = frozenset(
    ("node_modules", ".venv", "venv", "vendor", "bower_components", ".bundle", "Pods", ".yarn")
)
_ENVIRONMENT_FILE = "pyvenv.cfg"

_BORROWED = "borrowed"  # folder in `.git` where a sandbox shows others' object folders


class Checkout(Struct, frozen=True):
    """The files of an isolated workspace.

    Arguments:
        read_only: folders of others that commands need: path in the workspace -> absolute path.
        missing: files of the source that it lacks, with reasons.
    """

    files: WorkingFiles
    read_only: dict[str, str] = {}
    missing: tuple[str, ...] = ()


def check_out(
    store: GitStore, tree: str, place: str, index_name: str, *, same_path: bool
) -> Checkout:
    """Write a tree into a new folder, with a git repository if the source is the top of one.

    Arguments:
        place: absolute path of the folder in which to make the new one.
        same_path: true if the sandbox shows the files at the source's path, with the folders of
            others inside. If false, the workspace refers to those folders at their own paths.
    """
    top = os.path.join(place, os.path.basename(store.source_files.top) or "files")
    files = WorkingFiles(top, store.prefix)
    os.makedirs(files.folder)
    for path in store.list_ignore_files_above():
        with suppress(OSError):  # git also follows no link there
            copy_inside(store.source_files.top, path, os.path.join(files.top, path))
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
        read_only |= _make_repository(store, repository, top, index, same_path=same_path)
    return Checkout(files, read_only)


def _explain_unknown(store: GitStore) -> str:
    """Explain why the source's `.git` is not a repository; "" if there is no such entry."""
    if not os.path.lexists(os.path.join(store.source_files.folder, ".git")):
        return ""
    return (
        "it is no git folder of this folder's own, or leads to one that does not name this folder"
    )


def _show_dependencies(store: GitStore, files: WorkingFiles, *, same_path: bool) -> dict[str, str]:
    """Make an entry for each folder with dependencies: a mount point, or a link to it."""
    read_only: dict[str, str] = {}
    with hold_open(os.open(files.folder, FOLDER_FLAGS | os.O_CLOEXEC)) as top:
        for path in _find_dependencies(store):
            folder = os.path.join(store.source, path)
            # The tree may have a link in place of a parent folder: make nothing through it.
            with suppress(OSError):
                _make_entry(top, path, "" if same_path else folder)
                read_only[path] = folder
    store.ignore_paths(os.path.join("/", store.prefix, path) for path in read_only)
    return read_only


def _make_entry(top: int, path: str, target: str) -> None:
    """Make a folder below an open one, or a link to `target`. Raises OSError if it exists."""
    *names, name = path.split("/")
    with hold_open(open_new_folders(top, names)) as parent:
        if target:
            os.symlink(target, name, dir_fd=parent)
        else:
            os.mkdir(name, dir_fd=parent)


def _make_repository(
    store: GitStore, source: Repository, top: str, index: str, *, same_path: bool
) -> dict[str, str]:
    """Make a checkout's git folder in `top`. Returns the folders of others that it needs.

    `index` has the tree's files, so the parent's changes look staged.
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
    """Copy the source's branches, HEAD, and the points where its history is cut."""
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
    """Let a git folder use others' object folders; return them by path in the workspace."""
    alternates = directory / "objects/info/alternates"
    names = [f"{_BORROWED}/{number}" for number in range(len(borrowed))]
    if same_path:
        for name in names:
            (directory / name).mkdir(parents=True)
        alternates.write_text("".join(f"../{name}\n" for name in names))
    else:
        alternates.write_text("".join(f"{folder}\n" for folder in borrowed))
    return {f".git/{name}": folder for name, folder in zip(names, borrowed, strict=True)}


def _find_dependencies(store: GitStore) -> list[str]:
    folder = store.source_files.folder
    return [
        path
        for path in store.list_ignored_folders()
        if os.path.basename(path) in _FOLDER_NAMES
        or os.path.isfile(os.path.join(folder, path, _ENVIRONMENT_FILE))
    ]


def copy_included(store: GitStore, target: WorkingFiles) -> None:
    """Copy the ignored files that the source's `.worktreeinclude` names."""
    folder = store.source_files.folder
    patterns = read_inside(folder, INCLUDE_FILE)
    if patterns is None:
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(patterns)
        file.flush()
        paths = store.list_included(file.name)
    flags = FOLDER_FLAGS | os.O_CLOEXEC
    with (
        hold_open(os.open(folder, flags)) as source,
        hold_open(os.open(target.folder, flags)) as copies,
    ):
        for path in paths:
            # A listed file may be a link by now, and the tree may have a link in its place.
            with suppress(OSError):
                _copy_file(source, copies, path)


def _copy_file(source: int, target: int, path: str) -> None:
    """Copy a file between two open folders, unless it exists there or is too large.

    Raises OSError, also if the path goes through a link in either.
    """
    with open(open_step_by_step(source, path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE_BYTES:
            return
        mode = stat.S_IMODE(facts.st_mode) & 0o777
        with open(open_new_file(target, path, 0o600), "wb") as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fchmod(copy.fileno(), mode)
            os.utime(copy.fileno(), ns=(facts.st_atime_ns, facts.st_mtime_ns))
