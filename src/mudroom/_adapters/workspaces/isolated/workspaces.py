"""A session's isolated workspaces, by run id."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...._core.agents import FileConflict, WorkspaceSpec
from ...._core.json_values import get_decoder
from ...._core.ports import NO_CHOICE, MergeChoice, MergeConflict, MergedFile, MergePlan
from ...._core.runs import GitWork, Work, find_first_id
from ...._platform.open_beneath import open_step_by_step
from ...._platform.paths import path_from_text, path_to_text
from ...._platform.private_files import make_private_folder, replace_private_file
from ...._platform.scratch_dirs import remove_tree
from ....errors import WorkspaceError
from .._listing import FOLDER_FLAGS, hold_open
from .checkout import check_out
from .git import require_git
from .git_store import GitStore
from .git_work import join_git_work, keep_git_work
from .ignored_work import add_named, describe_unseen, keep_others
from .landing.land import Landing
from .merge import (
    add_open,
    choose_side,
    find_obstacles,
    find_open,
    make_own_tree,
    merge_trees,
    resolve,
)
from .store import (
    DEFAULT_BYTES,
    REGULAR,
    SOURCE_INDEX,
    FileChange,
    Quota,
    StoredFiles,
    WorkingFiles,
    is_link,
)

SOURCE_FILE = "source"  # file with the path of the user's folder
REMOVED = ".removed"  # suffix of a folder being removed

_RECORD = "workspace.json"
_STORE = "store.git"

_LEFT = "left"  # folder for workspaces that stay because a git folder could not be stored
LOCK_SECONDS = 60.0  # longest wait for another merge that writes the same files
_POLL_SECONDS = 0.02

_SIDES = {"parent": "theirs", "child": "mine"}  # sides of a choice, in the child's words


class IsolatedFolder(Struct, frozen=True):
    """The folder of an isolated workspace, as recorded on disk.

    Arguments:
        base: id of the tree it began with.
        missing: files of the parent that it lacks, with reasons.
        start: id of the tree of files it began with, if not the base.
        own, conflicts: see `WorkspaceSpec`.
        git: work that an earlier folder of the run had only in its git.
    """

    run_id: str
    base: str
    top: str
    prefix: str = ""
    read_only: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    start: str = ""
    own: str = ""
    conflicts: tuple[FileConflict, ...] = ()
    git: GitWork | None = None

    @property
    def files(self) -> WorkingFiles:
        return WorkingFiles(self.top, self.prefix)


class IsolatedWorkspaces:
    """A session's isolated workspaces. The methods block; any thread may call them.

    Arguments:
        directory: folder for the session's objects and workspaces.
        source: the user's folder. home: mudroom's state folder.

    Attributes:
        is_locked_by_caller: true if the caller has locked `directory`.
    """

    def __init__(
        self, directory: str, source: str, home: str, max_bytes: int = DEFAULT_BYTES
    ) -> None:
        self.directory = directory
        self.source = source
        self.is_locked_by_caller = False
        self._home = home
        self._lock = threading.Lock()
        self._store: GitStore | None = None
        self._quota = Quota(directory, max_bytes)

    @property
    def has_store(self) -> bool:
        """True if a run has had an isolated workspace."""
        return os.path.isdir(os.path.join(self.directory, _STORE))

    @property
    def store(self) -> GitStore:
        """The session's trees. Raises WorkspaceError without git, or if it cannot be read."""
        with self._lock:
            if self._store is None:
                self._store = self._open_store()
            return self._store

    def require_git(self) -> None:
        require_git(os.path.realpath(self.source))

    def _open_store(self) -> GitStore:
        self.require_git()
        folder = Path(self.directory)
        make_private_folder(folder)
        if not self.is_locked_by_caller:
            self._lock_folder()
        record = folder / SOURCE_FILE
        source = os.fsencode(self.source)
        # A resumed session's project may have moved; kept work is merged at its new place.
        if not record.exists() or record.read_bytes() != source:
            replace_private_file(record, source)
        store = self._make_store()
        store.max_bytes = self._quota.max_bytes
        return store

    def _make_store(self) -> GitStore:
        return GitStore(os.path.join(self.directory, _STORE), self.source, [self._home])

    def _lock_folder(self) -> None:
        """Keep clean-ups of other processes away while this object exists."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def list_folders(self) -> list[str]:
        records = Path(self.directory, "runs").glob(f"*/{_RECORD}")
        names = (record.parent.name for record in records)
        return [name for name in names if not name.endswith(REMOVED)]

    def open(
        self,
        run_id: str,
        parent: str,
        *,
        start: WorkspaceSpec | None = None,
        same_path: bool,
    ) -> IsolatedFolder:
        """Return a run's workspace; make a new one with the parent's present files.

        Arguments:
            parent: run id of the isolated workspace to copy; "" for the user's folder.
            start: the base and tree to begin with, in place of the parent's present files, and the
                conflicts in them.
        """
        store = self.store  # waits for a clean-up, which may remove the folder
        if folder := self.find(run_id):
            return folder
        place = self._find_place(run_id)
        remove_tree(place)  # remains of an incomplete one
        stored = self.find_stored(run_id)
        if stored:
            base, files = stored.base, StoredFiles(stored.tree)
        elif start:
            base, files = start.base, StoredFiles(start.tree)
            store.expect_marks()
        else:
            files = self.store_present(parent)
            base = files.tree
        self._quota.check(store.measure_tree(files.tree))
        checkout = check_out(store, files.tree, place, run_id, same_path=same_path)
        folder = IsolatedFolder(
            run_id,
            base,
            checkout.files.top,
            checkout.files.prefix,
            checkout.read_only,
            (*files.missing, *checkout.missing),
            start.tree if start else "",
            start.own if start else "",
            start.conflicts if start else (),
            stored.git if stored else None,
        )
        self._make_private(folder, parent, files.tree)
        replace_private_file(Path(place, _RECORD), msgspec.json.encode(folder))
        return folder

    def check_out(self, tree: str, *, same_path: bool) -> IsolatedFolder:
        """Make a new folder with a tree's files. `remove` or a clean-up removes it."""
        name = f"tree-{os.urandom(6).hex()}"
        place = self._find_place(name)
        checkout = check_out(self.store, tree, place, name, same_path=same_path)
        files = checkout.files
        missing = checkout.missing
        return IsolatedFolder(name, tree, files.top, files.prefix, checkout.read_only, missing)

    def find(self, run_id: str) -> IsolatedFolder | None:
        """Find a run's workspace; None if it has no folder."""
        try:
            record = Path(self._find_place(run_id), _RECORD).read_bytes()
        except FileNotFoundError:
            return None
        return get_decoder(IsolatedFolder).decode(record)

    def store_work(self, run_id: str, written: Sequence[str] = ()) -> Work:
        """Store a run's files as they are; see `FileTrees.store_work`."""
        folder = self.find(run_id)
        if folder is None:
            raise WorkspaceError(f"run {run_id} has no isolated workspace")
        with _explain_errors(folder.files.folder):
            _refuse_link(folder.files)
            return self._store_work(folder, written)

    def _store_work(self, folder: IsolatedFolder, written: Sequence[str]) -> Work:
        run_id = folder.run_id
        store = self.store
        add_named(store, folder.files, run_id, written)
        stored = store.store_files(folder.files, run_id)
        ignored = keep_others(store, folder.files, run_id, folder.read_only)
        changes = store.list_changes(folder.base, stored.tree)
        files = tuple(path_to_text(change.path) for change in changes)
        unseen = describe_unseen(
            store, folder.files, run_id, folder.base, folder.read_only, stored.missing
        )
        missing = (*map(path_to_text, stored.missing), *unseen)
        conflicts = find_open(self.store, folder.conflicts, folder.start, stored.tree)
        work = Work(folder.base, stored.tree, files, missing, conflicts, folder.own, ignored)
        if ignored and ignored.tree:
            changes = [*changes, *store.list_changes(store.empty_tree, ignored.tree)]
        new = list_new_files(changes)
        work = replace(
            work,
            private=self._find_private(run_id, folder.files.folder, new),
            git=join_git_work(store, folder.git, self._keep_git_work(folder, stored.tree)),
        )
        self.store.keep(run_id, work)
        return work

    def _find_private(self, run_id: str, folder: str, paths: Iterable[str]) -> dict[str, int]:
        """Find the permissions of private files among the paths, by path as text."""
        usual = os.stat(self._find_place(run_id)).st_mode
        private = find_private(folder, paths, usual)
        return {path_to_text(path): mode for path, mode in private.items()}

    def _make_private(self, folder: IsolatedFolder, parent: str, tree: str) -> None:
        """Keep files private that are private at their origin, or were in an earlier run."""
        run_id = folder.run_id
        private: dict[str, int] = {}
        if os.path.isdir(above := self._find_files(parent)):
            private = self._find_private(run_id, above, self.store.list_entries(tree))
        for name, record in self.store.list_kept().items():
            if find_first_id(name) == find_first_id(run_id):  # an earlier run of the same child
                private |= record.work.private
        if private:
            paths = {path_from_text(path): mode for path, mode in private.items()}
            make_private(folder.files.folder, paths)

    def _keep_git_work(self, folder: IsolatedFolder, tree: str) -> GitWork | None:
        """Keep work that is only in a run's git. If that fails, its folder will stay."""
        git = keep_git_work(self.store, folder.files, tree)
        if git is None or not git.unread:
            return git
        place = os.path.join(self.directory, _LEFT, folder.run_id)
        number = 1
        while os.path.lexists(place):  # an earlier folder of the same run
            number += 1
            place = os.path.join(self.directory, _LEFT, f"{folder.run_id}+{number}")
        return replace(git, folder=place)

    def store_present(self, run_id: str) -> StoredFiles:
        """Store the present files of a run or the user's folder, but never half a landing."""
        self.settle(run_id)
        folder = self.find(run_id) if run_id else None
        if run_id and folder is None:
            raise WorkspaceError(f"run {run_id} has no isolated workspace")
        place = folder.files.folder if folder else self.source
        with self._lock_index(run_id or SOURCE_INDEX), _explain_errors(place):
            if folder is None:
                return self.store.store_source()
            _refuse_link(folder.files)
            return self.store.store_files(folder.files, run_id)

    def has_files(self, run_id: str) -> bool:
        """Return whether a run's files are here, in its folder or stored."""
        return self.find(run_id) is not None or self.find_stored(run_id) is not None

    def leave_out(self, tree: str, is_hidden: Callable[[str], bool]) -> str:
        entries = self.store.list_entries(tree)
        kept = {path: entry for path, entry in entries.items() if not is_hidden(path)}
        return tree if len(kept) == len(entries) else self.store.write_tree(kept)

    def add_work(self, run_id: str, work: Work, path: str) -> None:
        """Store work from another machine's pack; see `GitStore.unpack_trees`."""
        self.store.unpack_trees(work.trees, path)
        self.store.expect_marks()  # the run may have begun with them there
        self.store.keep(run_id, work)

    def find_stored(self, run_id: str) -> Work | None:
        record = self.store.find_kept(run_id)
        return record.work if record else None

    def remove(self, run_id: str) -> None:
        """Remove a run's folder. Its stored work stays.

        If a git folder in it could not be stored, the folder is moved away instead.
        """
        place = self._find_place(run_id)
        stored = self.find_stored(run_id)
        if stored and stored.git and stored.git.folder:
            make_private_folder(Path(self.directory, _LEFT))
            if not os.path.lexists(stored.git.folder):
                with suppress(FileNotFoundError):
                    os.rename(place, stored.git.folder)
        # A kill in between must not leave an incomplete workspace.
        removed = f"{place}.{os.urandom(4).hex()}{REMOVED}"
        with suppress(FileNotFoundError):
            os.rename(place, removed)
        remove_tree(removed)
        Path(self.store.find_index(run_id)).unlink(missing_ok=True)

    def drop(self, run_id: str) -> None:
        """Remove a run's stored work, and its folder if that was moved away."""
        stored = self.find_stored(run_id)
        self.store.drop(run_id)
        if stored and stored.git and stored.git.folder:
            remove_tree(stored.git.folder)

    def remove_if_stored(self, run_id: str) -> None:
        """Remove a run's folder if it equals the stored work; otherwise a later start finds it."""
        stored = self.find_stored(run_id) if self.find(run_id) else None
        if stored and self.store_present(run_id).tree == stored.tree:
            self.remove(run_id)

    def mark_merged(self, run_id: str) -> None:
        """Record that a run's work is merged, and remove a folder left by a kill."""
        self.store.mark_merged(run_id)
        self.remove_if_stored(run_id)

    def resolve(self, run_id: str, work: Work, sides: Mapping[str, str]) -> Work:
        resolved = resolve(self.store, work, sides)
        if resolved != work:
            # A folder left by a kill would replace the resolved work at the next start.
            self.remove_if_stored(run_id)
            self.store.keep(run_id, resolved)
        return resolved

    def plan_merge(
        self,
        into: str,
        work: Work,
        after: MergePlan | None = None,
        choice: MergeChoice = NO_CHOICE,
    ) -> MergePlan:
        """Merge work with a workspace's present files, without writing any file.

        Arguments:
            into: run id of an isolated workspace; "" for the user's folder.
            after: plan of work merged earlier, if the new plan covers both.
        """
        store = self.store
        ours = after.base if after else self.store_present(into).tree
        onto = after.tree if after else ours
        chosen = {path: each for each in work.conflicts for path in each.paths}
        sides = dict.fromkeys(filter(choice.covers, chosen), _SIDES.get(choice.side, ""))
        kept = [path for path in sides if choice.side == "parent"]
        work = resolve(store, work, sides)
        merge = merge_trees(store, work.base, onto, work.tree)
        if merge.conflicts and choice.side:
            paths = [path_to_text(conflict.path) for conflict in merge.conflicts]
            kept += [path for path in paths if choice.side == "parent" and choice.covers(path)]
            merge = choose_side(store, merge, onto, work.tree, choice)
        conflicts = add_open(store, work, onto, merge.tree, map(_to_text, merge.conflicts))
        changes = store.list_changes(ours, merge.tree)
        if not conflicts:
            conflicts = [
                MergeConflict(path_to_text(each.path), kind, ours=each.before, theirs=each.after)
                for each, kind in find_obstacles(store, changes)
            ]
        if conflicts:
            own = make_own_tree(store, work)
            return MergePlan(conflicts=tuple(conflicts), base=ours, tree=merge.tree, own=own)
        changes.sort(key=lambda change: (not change.after, bool(change.before), change.path))
        private = {**after.private, **work.private} if after else work.private
        files = tuple(_make_file(change, private) for change in changes)
        landed = tuple(path for path in work.files if path not in kept)
        return MergePlan(files, base=ours, tree=merge.tree, landed=landed, private=private)

    def land(self, into: str, files: Sequence[MergedFile], on_staged: Callable[[], object]) -> None:
        """Write a plan's files, all of them or none; see `Landing.land`."""
        with self.lock_files(into):
            landing = self._open_landing(into)
            landing.recover()
            landing.land(files, on_staged)

    def settle(self, into: str) -> None:
        """Wait for a landing that is under way; finish or undo a killed one."""
        landing = self._open_landing(into)
        if landing.is_begun:
            has_folder = os.path.isdir(self._find_files(into))
            with self.lock_files(into) if has_folder else nullcontext():
                landing.recover()

    def settle_all(self) -> None:
        """Finish or undo all killed landings. One that cannot be ended stays."""
        for name in {path.name.partition("+")[0] for path in self._landings.glob("*")}:
            with suppress(OSError, WorkspaceError):
                self.settle("" if name == SOURCE_INDEX else name)

    @property
    def _landings(self) -> Path:
        return Path(self.directory, "landings")

    def _open_landing(self, into: str) -> Landing:
        return Landing(self._find_files(into), self._landings / (into or SOURCE_INDEX), self.store)

    def _find_files(self, run_id: str) -> str:
        folder = self.find(run_id) if run_id else None
        return folder.files.folder if folder else self.source

    @contextmanager
    def lock_files(self, run_id: str) -> Generator[None]:
        """Keep other threads' and processes' merges from writing a workspace's files.

        Raises WorkspaceError if another merge does not end.
        """
        path = self._find_files(run_id)
        with hold_open(os.open(path, FOLDER_FLAGS | os.O_CLOEXEC)) as descriptor:
            deadline = time.monotonic() + LOCK_SECONDS
            if not wait_for_lock(descriptor, lambda: time.monotonic() > deadline):
                raise WorkspaceError(
                    f"another program has locked {path} for {LOCK_SECONDS:g} seconds",
                    remedy="Wait until its merge has ended, then apply the work.",
                )
            yield

    @contextmanager
    def _lock_index(self, name: str) -> Generator[None]:
        """Let one thread at a time, of all processes, use an index."""
        path = f"{self.store.find_index(name)}.in-use"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with hold_open(os.open(path, flags, 0o600)) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    def _find_place(self, run_id: str) -> str:
        return os.path.join(self.directory, "runs", run_id)


@contextmanager
def _explain_errors(folder: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise WorkspaceError(
            f"its files cannot be read: {error.strerror}", where=error.filename or folder
        ) from error


def _refuse_link(files: WorkingFiles) -> None:
    """Raise OSError if a command put a link in place of its folder: what it leads to is no work."""
    for place in (files.top, files.folder):
        if os.path.islink(place):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)


def _make_file(change: FileChange, private: Mapping[str, int]) -> MergedFile:
    path, mode = path_to_text(change.path), change.mode
    if path in private and change.after and not is_link(mode):
        mode = REGULAR | private[path]
    return MergedFile(path, change.before, change.after, mode, change.was_link)


def _to_text(conflict: MergeConflict) -> MergeConflict:
    paths = tuple(map(path_to_text, conflict.paths))
    return replace(conflict, path=path_to_text(conflict.path), paths=paths)


def wait_for_lock(descriptor: int, gives_up: Callable[[], bool]) -> bool:
    """Lock an open file. Return False if `gives_up` says so while another process holds it."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if gives_up():
            return False
        time.sleep(_POLL_SECONDS)


_GROUP, _OTHERS = 0o070, 0o007  # all permissions of group and others


def list_new_files(changes: Iterable[FileChange]) -> Iterator[str]:
    """Yield the paths of files that are new or replace a link."""
    for change in changes:
        if change.after and not is_link(change.mode) and (change.was_link or not change.before):
            yield change.path


def find_private(folder: str, paths: Iterable[str], usual: int) -> dict[str, int]:
    """Find files that group or others may not read as usual; return their permissions by path.

    A file also counts as private if one of its folders keeps them out. `usual` are the permissions
    of a folder that nobody has changed, which show the umask.
    """
    private: dict[str, int] = {}
    left_open: dict[str, int] = {"": 0o777}
    for path in paths:
        try:
            facts = os.lstat(os.path.join(folder, path))
            allowed = _find_allowed(folder, os.path.dirname(path), left_open)
        except OSError:
            continue  # just removed
        mode = stat.S_IMODE(facts.st_mode) & allowed
        expected = usual & (0o055 if mode & stat.S_IXUSR else 0o044)
        if mode & expected != expected and stat.S_ISREG(facts.st_mode):
            private[path] = (mode | stat.S_IRUSR | stat.S_IWUSR) & 0o777
    return private


def _find_allowed(folder: str, path: str, known: dict[str, int]) -> int:
    if path not in known:
        mode = os.lstat(os.path.join(folder, path)).st_mode
        closed = (0 if mode & stat.S_IXGRP else _GROUP) | (0 if mode & stat.S_IXOTH else _OTHERS)
        known[path] = _find_allowed(folder, os.path.dirname(path), known) & ~closed
    return known[path]


def make_private(folder: str, private: Mapping[str, int]) -> None:
    """Give files of a new folder the permissions found by `find_private`."""
    flags = os.O_RDONLY | os.O_NONBLOCK
    with hold_open(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as top:
        for path, permissions in private.items():
            # The tree may have a link, a folder or nothing there.
            with suppress(OSError), hold_open(open_step_by_step(top, path, flags)) as file:
                if stat.S_ISREG(os.fstat(file).st_mode):
                    os.fchmod(file, permissions)
