"""Isolated workspaces and snapshots of a session on a machine that does not see its folder."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from ...._core.json_values import get_decoder
from ...._core.ports import FilesLostError, SourceFacts
from ...._core.runs import Work
from ...._platform.private_files import make_private_folder, replace_private_file
from ...._platform.scratch_dirs import remove_tree
from ....errors import MudroomError, WorkspaceError
from .._listing import hold_open
from .checkout import check_out
from .git import INSTALL_GIT, check_ids, explain_unusable_git
from .git_store import GitStore
from .repository import Repository, read_inside
from .store import DEFAULT_BYTES, StoredFiles, WorkingFiles
from .workspaces import REMOVED, IsolatedFolder, IsolatedWorkspaces, wait_for_lock

KEPT_SNAPSHOTS = 4  # snapshots of a session that stay on a machine although no run uses them

KEPT_SECONDS = 7 * 86_400.0  # then the files of a session that no process uses are removed
_KNOWN_TREES = 8  # trees that a machine names when it asks for a further one

_FACTS = "source.json"


class TreeCarrier(Protocol):
    """The way of trees between this machine and that of the session. The methods block."""

    def describe_source(self) -> SourceFacts: ...

    def fetch(self, tree: str, known: list[str], path: str, stop: threading.Event) -> None:
        """Write a file with the objects of a tree of the session; see `GitStore.pack_trees`."""
        ...

    def send(self, run_id: str, work: Work, path: str) -> None:
        """Have the session store the work of a run. Raises MudroomError if it cannot."""
        ...

    def mark_merged(self, run_id: str) -> None: ...


class NodeWorkspaces(IsolatedWorkspaces):
    """The workspaces of a session on a machine that does not see its folder.

    The worker processes of the machine share them: each tree is fetched once. `source` is a folder
    on the machine of the session, `home` mudroom's state folder on this one.
    """

    def __init__(
        self,
        directory: str,
        source: str,
        home: str,
        carrier: TreeCarrier,
        max_bytes: int = DEFAULT_BYTES,
    ) -> None:
        super().__init__(directory, source, home, max_bytes)
        self._carrier = carrier
        self._snapshots = os.path.join(directory, "snapshots")

    def fetch(self, tree: str, stop: threading.Event) -> None:
        """Bring a tree of the session into the store, if it is not there.

        A tree may be of a merge on this machine. The session has none of those.
        """
        check_ids(tree)
        mark = self._marks / tree
        if mark.exists() or self.store.has_tree(tree):
            return
        with self._wait_for_lock("fetch.lock", stop):
            if mark.exists():
                return
            known = self._list_known()
            with tempfile.TemporaryDirectory(dir=self.directory) as folder:
                path = os.path.join(folder, "pack")
                self._carrier.fetch(tree, known, path, stop)
                self.store.unpack_trees([tree], path)
            mark.touch()

    @property
    def _marks(self) -> Path:
        """Folder with an empty file for each tree that the session and this machine have."""
        return Path(self.store.directory, "shared")

    def _list_known(self) -> list[str]:
        self._marks.mkdir(exist_ok=True)
        newest = sorted(self._marks.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return [path.name for path in newest[-_KNOWN_TREES:]]

    @contextmanager
    def open_snapshot(
        self, tree: str, stop: threading.Event, *, same_path: bool
    ) -> Generator[IsolatedFolder]:
        """Give a folder with the files of a tree to runs that only read; it stays for others."""
        self.fetch(tree, stop)
        make_private_folder(Path(self._snapshots))
        place = os.path.join(self._snapshots, tree)
        with hold_open(self._use_snapshot(place, tree, stop, same_path=same_path)):
            record = Path(place, "snapshot.json").read_bytes()
            yield get_decoder(IsolatedFolder).decode(record)

    def _use_snapshot(
        self, place: str, tree: str, stop: threading.Event, *, same_path: bool
    ) -> int:
        """Return a descriptor that keeps a snapshot from being removed; make it if it is new."""
        with self._wait_for_lock("snapshots.lock", stop):
            record = Path(place, "snapshot.json")
            if not record.exists():
                remove_tree(place)
                self._quota.check(self.store.measure_tree(tree))
                name = f"snapshot-{tree}"
                checkout = check_out(self.store, tree, place, name, same_path=same_path)
                files = checkout.files
                folder = IsolatedFolder("", tree, files.top, files.prefix, checkout.read_only)
                replace_private_file(record, msgspec.json.encode(folder))
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            os.utime(place)
            self._remove_old_snapshots()
            return descriptor

    def _remove_old_snapshots(self) -> None:
        paths = [entry.path for entry in os.scandir(self._snapshots) if entry.is_dir()]
        paths.sort(key=lambda path: os.stat(path).st_mtime_ns)
        for path in paths[:-KEPT_SNAPSHOTS]:
            remove_if_unused(path)

    def store_present(self, run_id: str) -> StoredFiles:
        """Store the present files of a run. Those of the user's folder are not here."""
        if not run_id:
            raise WorkspaceError(f"the folder {self.source} is not on this machine")
        return super().store_present(run_id)

    def store_work(self, run_id: str, written: Sequence[str] = ()) -> Work:
        """Store the files of a run, here and in the session (or raise FilesLostError)."""
        work = super().store_work(run_id, written)
        try:
            with tempfile.TemporaryDirectory(dir=self.directory) as folder:
                path = os.path.join(folder, "pack")
                known = {*self._list_known(), work.base}
                known = [tree for tree in known if (self._marks / tree).exists()]
                self.store.pack_trees(work.trees, known, path)
                self._carrier.send(run_id, work, path)
                for tree in (work.base, work.tree):
                    (self._marks / tree).touch()
        except (MudroomError, OSError) as error:
            raise FilesLostError(
                f"the files of run {run_id} could not be sent to the session: {error}"
            ) from error
        return work

    def mark_merged(self, run_id: str) -> None:
        super().mark_merged(run_id)
        self._carrier.mark_merged(run_id)

    def require_git(self) -> None:
        if reason := explain_unusable_git(self.source):
            raise WorkspaceError(
                f"files cannot be sent to another machine without git: {reason}",
                remedy=f"{INSTALL_GIT} on all machines, or mount the folder on all of them.",
            )

    def _make_store(self) -> GitStore:
        """Make the store, or open the one that another process of this machine made."""
        with self._wait_for_lock("store.lock", threading.Event()):
            record = Path(self.directory, _FACTS)
            if not record.exists():
                facts = self._carrier.describe_source()
                replace_private_file(record, msgspec.json.encode(facts))
            facts = get_decoder(SourceFacts).decode(record.read_bytes())
            source = os.path.join(self.directory, "files")
            return ReceivedStore(os.path.join(self.directory, "store.git"), source, facts)

    @contextmanager
    def _wait_for_lock(self, name: str, stop: threading.Event) -> Generator[None]:
        """Let one thread of one process of this machine work at a time."""
        path = os.path.join(self.directory, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with hold_open(os.open(path, flags, 0o600)) as descriptor:
            if not wait_for_lock(descriptor, stop.is_set):
                raise WorkspaceError("the run was stopped while it waited for its files")
            yield


def remove_if_unused(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A kill in between must not leave a folder that lacks files.
        removed = f"{path}.{os.urandom(4).hex()}{REMOVED}"
        os.rename(path, removed)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    remove_tree(removed)
    return True


def remove_old_sessions(folder: str, session: str) -> None:
    """Remove the files of long unused other sessions; the process of each session has its work."""
    oldest = time.time() - KEPT_SECONDS
    for path in _list_folders(folder):
        name = os.path.basename(path)
        with suppress(OSError):
            if name.endswith(REMOVED):
                remove_tree(path)
            elif name != session and os.stat(path).st_mtime < oldest:
                remove_if_unused(path)


def _list_folders(folder: str) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        yield from [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


_EXCLUDE_FILE = "info/exclude"


class ReceivedStore(GitStore):
    """A store without the user's folder: `source` stands for it, and gets its ignore files."""

    def __init__(self, directory: str, source: str, facts: SourceFacts) -> None:
        self._facts = facts
        self._top = os.path.join(source, facts.name or "files")
        folder = os.path.join(self._top, facts.prefix)
        os.makedirs(folder, exist_ok=True)
        for path, content in facts.ignore_files.items():
            if os.path.basename(path) != ".gitignore" or ".." in path.split("/"):
                raise WorkspaceError(f"{path!r} is no path of an ignore file")
            if read_inside(self._top, path) != content:  # git of another process may read it now
                replace_private_file(Path(self._top, path), content)
        super().__init__(directory, folder)

    @property
    def source_files(self) -> WorkingFiles:
        """The folder that stands for the source. It has no files but ignore files."""
        return WorkingFiles(self._top, self._facts.prefix)

    @property
    def prefix(self) -> str:
        return self._facts.prefix

    def _find_repository(self, folder: str) -> Repository | None:
        """Return None: the user's repository is on another machine."""
        return None

    def _find_object_format(self) -> str:
        return self._facts.algorithm

    def _list_excluded(self, excluded: object) -> Iterator[str]:
        yield from map(os.fsdecode, self._facts.excludes.splitlines())


def describe_source(store: GitStore) -> SourceFacts:
    """Return what a ReceivedStore must know to store files as this store does."""
    files = store.source_files
    ignore_files: dict[str, bytes] = {}
    for path in store.list_ignore_files_above():
        patterns = read_inside(files.top, path)
        if patterns is not None:
            ignore_files[path] = patterns
    exclude = Path(store.directory, _EXCLUDE_FILE)
    return SourceFacts(
        store.algorithm,
        os.path.basename(files.top),
        store.prefix,
        exclude.read_bytes() if exclude.exists() else b"",
        ignore_files,
    )
