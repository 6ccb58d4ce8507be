"""The git repository a folder belongs to. Its files are only read, and only as data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from ...._platform.git_folders import find_git_folders, read_git_config
from ...._platform.open_beneath import open_step_by_step
from ...._platform.regular_files import copy_open_file, read_open_file
from .._listing import hold_open

MAX_INDEX_BYTES = 1 << 30
_MAX_REFS_BYTES = 64 << 20  # of a file with refs; larger ones are not read

_MAX_REFS = 500_000
_MAX_STEPS = 5  # steps from one symbolic ref to the next, as in git

OBJECT_ID = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")
FAN_OUT = re.compile("[0-9a-f]{2}")  # names of the folders of loose objects
_SHARED_INDEX = re.compile(r"sharedindex\.([0-9a-f]{40}|[0-9a-f]{64})")
_BAD_NAME = re.compile(r"[\0-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.(?:/|$)|\.lock(?:/|$)|/$")

REFTABLE = "its branches are in a reftable, which mudroom does not read"


class Repository(Struct, frozen=True):
    """The user's git repository.

    Arguments:
        top: folder with its working files.
        directory: its git folder. common: the git folder shared by linked worktrees.
        no_history: why an isolated workspace cannot have its history, "" if it can.
    """

    top: str
    directory: str
    common: str
    objects: str
    no_history: str = ""

    def read_excludes(self) -> bytes:
        return read_inside(self.common, "info/exclude") or b""

    def read_shallow(self) -> str:
        """Read the ids of the commits where the history is cut, one per line."""
        lines = os.fsdecode(read_inside(self.common, "shallow") or b"").splitlines()
        return "".join(f"{line}\n" for line in lines if OBJECT_ID.fullmatch(line))

    def find_algorithm(self) -> str:
        settings = read_git_config(os.path.join(self.common, "config"))
        return "sha256" if settings.get("extensions.objectformat") == "sha256" else "sha1"

    def copy_index(self, folder: str) -> None:
        """Copy the index, and a split index's shared part, into a folder. Raises OSError."""
        index = os.path.join(folder, "index")
        copy_inside(self.directory, "index", index)
        with open(index, "rb") as file:
            data = file.read()
        for name in os.listdir(self.directory):
            # A split index names its shared part by hash.
            if (match := _SHARED_INDEX.fullmatch(name)) and bytes.fromhex(match[1]) in data:
                copy_inside(self.directory, name, os.path.join(folder, name))

    def read_refs(self) -> dict[str, str]:
        """Read the ids of refs by name; a symbolic ref has the id it leads to."""
        packed = read_inside(self.common, "packed-refs", _MAX_REFS_BYTES) or b""
        refs = dict(_parse_packed_refs(packed))
        for name in islice(_list_files(self.common, "refs"), _MAX_REFS):
            value = os.fsdecode(read_inside(self.common, name) or b"").strip()
            if _is_ref(name) and value:
                refs[name] = value
        return {name: each for name in refs if (each := _resolve(refs, name))}

    def read_head(self) -> str:
        """Read the name of the checked-out branch, else a commit's id, or ""."""
        try:
            value = os.readlink(os.path.join(self.directory, "HEAD"))  # a link in old versions
        except OSError:
            value = os.fsdecode(read_inside(self.directory, "HEAD") or b"").strip()
            if OBJECT_ID.fullmatch(value):
                return value
            if not value.startswith("ref:"):
                return ""
        name = value.removeprefix("ref:").strip()
        return name if _is_ref(name) else ""


def find_repository(folder: str) -> Repository | None:
    """Find the repository whose top is this folder or one above; see `find_git_folders`."""
    top = os.path.realpath(folder)
    while True:
        if folders := find_git_folders(top):
            objects = os.path.join(folders.common, "objects")
            return Repository(top, *folders, objects, _explain_no_history(folders.common, objects))
        parent = os.path.dirname(top)
        if os.path.lexists(os.path.join(top, ".git")) or parent == top:
            return None
        top = parent


def _explain_no_history(common: str, objects: str) -> str:
    """Explain why a repository's history cannot be shown to a command in a sandbox.

    A repository may name any folder as a source of more objects. Showing it would let whoever
    writes to the repository see folders that the sandbox hides.
    """
    if os.path.realpath(objects) != objects:
        return f"{objects} is a symbolic link"
    for line in (read_inside(objects, "info/alternates") or b"").splitlines():
        if line.strip() and not line.startswith(b"#"):
            return (
                f"it borrows objects from {os.fsdecode(line)}; `git repack -a -d` copies them, "
                "then .git/objects/info/alternates can be removed"
            )
    if os.path.lexists(os.path.join(common, "reftable")):
        return REFTABLE
    return ""


def open_inside(folder: str, path: str) -> int:
    """Open a file below a folder for reading, following no link."""
    with hold_open(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as opened:
        return open_step_by_step(opened, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)


def read_inside(folder: str, path: str, max_bytes: int = 1 << 20) -> bytes | None:
    """Read a regular file below a folder, following no link; None if it cannot be read."""
    try:
        return read_open_file(open_inside(folder, path), path, max_bytes=max_bytes)
    except OSError:
        return None


def copy_inside(folder: str, path: str, target: str, *, max_bytes: int = MAX_INDEX_BYTES) -> None:
    """Copy a regular file below a folder, following no link."""
    copy_open_file(open_inside(folder, path), path, target, max_bytes=max_bytes)


def _list_files(top: str, path: str) -> Iterator[str]:
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(top, folder)) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(name)
                    elif entry.is_file(follow_symlinks=False):
                        yield name
        except OSError:
            continue


def _parse_packed_refs(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield names and ids from lines "<id> <name>"; other lines give the targets of tags."""
    for line in os.fsdecode(data).splitlines():
        object_id, _, name = line.partition(" ")
        if OBJECT_ID.fullmatch(object_id) and _is_ref(name):
            yield name, object_id


def _is_ref(name: str) -> bool:
    return name.startswith("refs/") and not _BAD_NAME.search(name)


def _resolve(refs: dict[str, str], name: str) -> str:
    for _ in range(_MAX_STEPS):
        value = refs.get(name, "")
        if not value.startswith("ref:"):
            return value if OBJECT_ID.fullmatch(value) else ""
        name = value.removeprefix("ref:").strip()
    return ""
