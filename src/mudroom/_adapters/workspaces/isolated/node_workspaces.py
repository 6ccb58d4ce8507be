"""A session's isolated workspaces and snapshots on a machine that does not see its folder."""

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

KEPT_SNAPSHOTS = 4  # unused snapshots of a session to keep on a machine

KEPT_SECONDS = 7 * 86_400.0  # files of a session unused for this long are removed
_KNOWN_TREES = 8  # trees a machine names as known when it asks for another

_FACTS = "source.json"


class TreeCarrier(Protocol):
    """Carries trees between this machine and the session's. The methods block."""

    def describe_source(self) -> SourceFacts: ...

    def fetch(self, tree: str, known: list[str], path: str, stop: threading.Event) -> None:
        """Write a pack of one of the session's trees; see `GitStore.pack_trees`."""
        ...

    def send(self, run_id: str, work: Work, path: str) -> None:
        """Have the session store a run's work. Raises MudroomError if it cannot."""
        ...

    def mark_merged(self, run_id: str) -> None: ...


class NodeWorkspaces(IsolatedWorkspaces):
    """A session's workspaces on a machine that does not see its folder.

    The machine's worker processes share them, so each tree is fetched once. `source` is a folder on
    the session's machine, `home` mudroom's state folder on this one.
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
        """Bring one of the session's trees into the store, if it is not there.

        The tree may come from a merge on this machine; the session has none of those.
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
        """Folder with an empty file for each tree that both the session and this machine have."""
        return Path(self.store.directory, "shared")

    def _list_known(self) -> list[str]:
        self._marks.mkdir(exist_ok=True)
        newest = sorted(self._marks.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return [path.name for path in newest[-_KNOWN_TREES:]]

    @contextmanager
    def open_snapshot(
        self, tree: str, stop: threading.Event, *, same_path: bool
    ) -> Generator[IsolatedFolder]:
        """Yield a folder with a tree's files, for runs that only read; it stays for others."""
        self.fetch(tree, stop)
        make_private_folder(Path(self._snapshots))
        place = os.path.join(self._snapshots, tree)
        with hold_open(self._use_snapshot(place, tree, stop, same_path=same_path)):
            record = Path(place, "snapshot.json").read_bytes()
            yield get_decoder(IsolatedFolder).decode(record)

    def _use_snapshot(
        self, place: str, tree: str, stop: threading.Event, *, same_path: bool
    ) -> int:
        """Make a snapshot if needed; return a descriptor that keeps it from being removed."""
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
        """Store a run's present files. Those of the user's folder are not here."""
        if not run_id:
            raise WorkspaceError(f"the folder {self.source} is not on this machine")
        return super().store_present(run_id)

    def store_work(self, run_id: str, written: Sequence[str] = ()) -> Work:
        """Store a run's files here and in the session, or raise FilesLostError."""
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
        """Make the store, or open one made by another process of this machine."""
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
        """Admit one thread on this machine at a time."""
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
        # A kill in between must not leave an incomplete folder.
        removed = f"{path}.{os.urandom(4).hex()}{REMOVED}"
        os.rename(path, removed)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    remove_tree(removed)
    return True


def remove_old_sessions(folder: str, session: str) -> None:
    """Remove files of long-unused other sessions; each session's own process has its work."""
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
    """A store without the user's folder: `source` replaces it, and gets its ignore files."""

    def __init__(self, directory: str, source: str, facts: SourceFacts) -> None:
        self._facts = facts
        self._top = os.path.join(source, facts.name or "files")
        folder = os.path.join(self._top, facts.prefix)
        os.makedirs(folder, exist_ok=True)
        for path, content in facts.ignore_files.items():
            if os.path.basename(path) != ".gitignore" or ".." in path.split("/"):
                raise WorkspaceError(f"{path!r} is no path of an ignore file")
            if read_inside(self._top, path) != content:  # another process's git may be reading it
                replace_private_file(Path(self._top, path), content)
        super().__init__(directory, folder)

    @property
    def source_files(self) -> WorkingFiles:
        """The folder that replaces the source. It only has ignore files."""
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
    """Describe the source for a ReceivedStore, so that it stores files as this store does."""
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
