"""Stores of trees: files at one moment, the kept work of runs, and its disk space.

The user's folder is only read. Files are stored byte for byte: no line ends, filters or
encodings are converted. Trees and contents have git's ids.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from ...._core.json_values import get_decoder
from ...._core.runs import Work
from ...._platform.open_beneath import find_real_path
from ...._platform.private_files import replace_durably, replace_private_file
from ...._platform.protected_names import UNFINISHED_PREFIX
from ....errors import WorkspaceError
from .._listing import FOLDER_FLAGS, hold_open
from .git import KilledGitError
from .repository import Repository

DEFAULT_BYTES = 4096 << 20

_REST = 20  # seconds between measurements per second of measuring, so they cost at most 5 %
_BLOCK = 512  # bytes per unit of `st_blocks`


class Quota:
    """A limit on a folder's disk space. Nothing is deleted to meet it."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._folder = folder
        self._lock = Lock()
        self._used = 0
        self._next = 0.0

    def check(self, needed: int) -> None:
        """Count a new workspace of `needed` bytes. Raises WorkspaceError if it does not fit."""
        with self._lock:
            if self._used + needed > self.max_bytes or time.monotonic() >= self._next:
                self._measure()
            if self._used + needed > self.max_bytes:
                raise WorkspaceError(
                    f"the isolated workspaces of this session take {_to_mb(self._used)} MiB; one "
                    f"more of {_to_mb(needed)} MiB would pass the limit of "
                    f"{_to_mb(self.max_bytes)} MiB",
                    remedy="Wait until other children have ended, set isolated_mb higher (in a "
                    "program Isolation(max_mb=...)), or let the run share the folder.",
                )
            self._used += needed

    def _measure(self) -> None:
        start = time.monotonic()
        self._used = measure_folder(self._folder)
        end = time.monotonic()
        self._next = end + (end - start) * _REST


def measure_folder(folder: str) -> int:
    total = 0
    left = [folder]
    while left:
        # A folder may have been removed meanwhile, be unreadable, or be too deep for a path.
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    return total


def _to_mb(size: int) -> str:
    return f"{-(-size // (1 << 20)):,}"


MAX_FILE_BYTES = 50 << 20  # largest file to store
MAX_FILES = 200_000  # most files of a folder to store
_MARKS = "has-marks"  # empty file: a run's files began with conflict marks
_ATTEMPTS = 3  # at reading files while another program changes them
SOURCE_INDEX = "source"  # index for the user's folder
UNFINISHED = ".new"  # suffix of a file or folder being written
_MERGED = ".merged"  # suffix of an empty file: the work is merged


class KeptRecord(Struct, frozen=True):
    work: Work
    is_merged: bool


class TreeStore(ABC):
    """A session's trees in a folder: the part that needs no program git. The methods block.

    Arguments:
        directory: absolute path of the store's folder; made if missing.
        source: the folder whose files runs get.
        excluded: absolute paths to leave out of trees, such as mudroom's state folder.
        repository: the source's git repository, if the store can read it.

    Attributes:
        max_bytes: most bytes of new files to store at once.
    """

    algorithm = "sha1"
    max_bytes = DEFAULT_BYTES

    def __init__(
        self,
        directory: str,
        source: str,
        excluded: Iterable[str] = (),
        repository: Repository | None = None,
    ) -> None:
        self.directory = directory
        self.source = find_real_path(source)
        self.repository = repository
        self._kept = Path(directory, "kept")
        if not os.path.isfile(os.path.join(directory, "HEAD")):
            # Files being written get their names a moment later.
            self._create([f"{UNFINISHED_PREFIX}*", *self._list_excluded(excluded)])

    @property
    def source_files(self) -> WorkingFiles:
        if self.repository is None:
            return WorkingFiles(self.source)
        return WorkingFiles(self.repository.top, self.prefix)

    @property
    def prefix(self) -> str:
        """Path of the source below the top of its repository: "" or with a final "/"."""
        if self.repository is None or self.repository.top == self.source:
            return ""
        return os.path.relpath(self.source, self.repository.top) + "/"

    def list_ignore_files_above(self) -> list[str]:
        """List paths, below the top, of possible ignore files in folders above the source."""
        names = self.prefix.split("/")[:-1]
        return [os.path.join(*names[:depth], ".gitignore") for depth in range(len(names))]

    @cached_property
    def empty_tree(self) -> str:
        return self._write_object("tree", b"")

    def find_index(self, name: str) -> str:
        return os.path.join(self.directory, "indexes", name)

    def find_id(self, data: bytes, kind: str = "blob") -> str:
        header = b"%s %d\0" % (kind.encode(), len(data))
        return hashlib.new(self.algorithm, header + data).hexdigest()

    def ignore_paths(self, patterns: Iterable[str]) -> None:
        """Exclude paths from all trees. `patterns`: as in `.gitignore`."""
        path = Path(self.directory, "info/exclude")
        with hold_open(os.open(path.parent, FOLDER_FLAGS | os.O_CLOEXEC)) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)  # siblings also add patterns
            known = path.read_bytes() if path.exists() else b""
            added = add_patterns(known, patterns)
            if added != known:  # siblings' programs may read it at any time
                replace_private_file(path, added)

    def _list_excluded(self, excluded: Iterable[str]) -> Iterator[str]:
        for path in map(os.path.realpath, excluded):
            relative = os.path.relpath(path, self.source_files.top)
            if not relative.startswith(".."):
                yield f"/{relative}"

    @property
    def may_have_marks(self) -> bool:
        return os.path.exists(os.path.join(self.directory, _MARKS))

    def expect_marks(self) -> None:
        Path(self.directory, _MARKS).touch(mode=0o600)

    def store_source(self) -> StoredFiles:
        return self.store_files(self.source_files, SOURCE_INDEX)

    def store_files(self, files: WorkingFiles, index_name: str) -> StoredFiles:
        """Store a folder's files as they are, without those that git ignores.

        The index of that name has facts about files stored before.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return self._store_files(files, index_name)
            except (TooManyFilesError, KilledGitError):
                raise
            except WorkspaceError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def write_tree(self, entries: Mapping[str, TreeEntry]) -> str:
        folders: dict[str, dict[str, TreeEntry]] = {"": {}}
        for folder in list_parents(entries):
            folders[folder] = {}
        for path, entry in entries.items():
            parent, _, name = path.rpartition("/")
            folders[parent][name] = entry
        # Deepest folders first: the trees above contain their ids.
        for path in sorted(filter(None, folders), key=lambda path: -path.count("/")):
            parent, _, name = path.rpartition("/")
            folders[parent][name] = TreeEntry(FOLDER, self._write_folder(folders[path]))
        return self._write_folder(folders[""])

    def _write_folder(self, entries: Mapping[str, TreeEntry]) -> str:
        # git sorts a folder's name as if it ended with "/".
        parts = sorted(
            (os.fsencode(name) + b"/" * (entry.mode == FOLDER), os.fsencode(name), entry)
            for name, entry in entries.items()
        )
        return self._write_object(
            "tree",
            b"".join(
                b"%o %s\0%s" % (entry.mode, name, bytes.fromhex(entry.id))
                for _, name, entry in parts
            ),
        )

    def write(self, data: bytes) -> str:
        return self._write_object("blob", data)

    def keep(self, name: str, work: Work) -> None:
        """Keep a run's work under a name, as not merged if it is new."""
        record = self.find_kept(name)
        if record and record.work == work:
            return
        self._kept.mkdir(exist_ok=True)
        (self._kept / f"{name}{_MERGED}").unlink(missing_ok=True)
        replace_durably(self._kept / name, msgspec.json.encode(work), suffix=UNFINISHED)

    def find_kept(self, name: str) -> KeptRecord | None:
        try:
            data = (self._kept / name).read_bytes()
        except FileNotFoundError:
            return None
        work = get_decoder(Work).decode(data)
        return KeptRecord(work, (self._kept / f"{name}{_MERGED}").exists())

    def mark_merged(self, name: str) -> None:
        (self._kept / f"{name}{_MERGED}").touch()

    def list_kept(self) -> dict[str, KeptRecord]:
        names = os.listdir(self._kept) if self._kept.exists() else []
        names = [name for name in names if not name.endswith((_MERGED, UNFINISHED))]
        records = ((name, self.find_kept(name)) for name in names)
        return {name: record for name, record in records if record}

    def drop(self, name: str) -> None:
        (self._kept / name).unlink(missing_ok=True)
        (self._kept / f"{name}{_MERGED}").unlink(missing_ok=True)

    def remove_unfinished(self) -> None:
        """Remove files left by killed processes. No process may be using the store."""
        for index in Path(self.directory, "indexes").iterdir():
            if index.name != SOURCE_INDEX:
                index.unlink()
        for file in self._kept.glob(f"*{UNFINISHED}"):
            file.unlink()

    @abstractmethod
    def _create(self, patterns: Sequence[str]) -> None:
        """Make the store's folder. `patterns`: paths to leave out of all trees."""

    @abstractmethod
    def _store_files(self, files: WorkingFiles, index_name: str) -> StoredFiles: ...

    @abstractmethod
    def _write_object(self, kind: str, data: bytes) -> str:
        """Store an object and return its id. `kind`: "blob", "tree" or "commit"."""


class TooManyFilesError(WorkspaceError):
    """A folder has more files or bytes than a store takes."""


def check_size(folder: str, count: int, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        present = f"{size / (1 << 20):,.0f} MiB of files"
        limit = f"{max_bytes / (1 << 20):,.0f} MiB"
    elif count > MAX_FILES:
        present, limit = f"{count:,} files", f"{MAX_FILES:,}"
    else:
        return
    raise TooManyFilesError(
        f"{folder} has {present} that git does not ignore; an isolated workspace can have {limit}",
        remedy="Let git ignore what runs do not need, or let the run share the folder.",
    )


def add_patterns(known: bytes, patterns: Iterable[str]) -> bytes:
    """Add unknown ignore patterns, one per line."""
    lines = known.splitlines()
    new = [os.fsencode(pattern) for pattern in patterns]
    new = [pattern for pattern in dict.fromkeys(new) if pattern not in lines]
    return known + b"".join(b"\n" + pattern for pattern in new) + b"\n" if new else known


# git's file modes: the types, and the bits that hold the type.
LINK = 0o120000
REGULAR = 0o100000
FOLDER = 0o040000
FILE_TYPE = 0o170000


class WorkingFiles(Struct, frozen=True):
    """Files in a folder.

    Arguments:
        top: absolute path of the topmost folder with ignore rules.
        prefix: path of the files below it: "" or with a final "/".
    """

    top: str
    prefix: str = ""

    @property
    def folder(self) -> str:
        return os.path.join(self.top, self.prefix).rstrip("/") or "/"


class StoredFiles(Struct, frozen=True):
    """A folder's files at one moment; `missing`: paths the tree lacks, with reasons."""

    tree: str
    missing: tuple[str, ...] = ()


class TreeEntry(Struct, frozen=True):
    """A file of a tree: git's mode, and the id of its content."""

    mode: int
    id: str


class FileChange(Struct, frozen=True):
    """A difference between two trees.

    Arguments:
        status: "added", "modified", "deleted" or "type" (a file became a link, or a link a file).
        before, after: object ids; "" for no file.
        mode: git's mode of the file after the change; for a deleted file, before it.
        was_link: true if the file was a link before.
    """

    path: str
    status: str
    before: str
    after: str
    mode: int
    was_link: bool = False


def is_link(mode: int) -> bool:
    return mode & FILE_TYPE == LINK


def list_parents(paths: Iterable[str]) -> set[str]:
    parents: set[str] = set()
    for path in paths:
        while (path := os.path.dirname(path)) and path not in parents:
            parents.add(path)
    return parents
