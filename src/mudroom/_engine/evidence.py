"""Evidence of a run: its tool calls, the files it read, and the files that changed."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from .._core.ports import FileInfo, Workspace
from .._core.tools import ToolResult
from ..errors import WorkspaceError
from .call_batch import CallOutcome

MAX_FILES = 20_000
"""Maximum files of a workspace that is compared before and after calls."""

SCAN_SECONDS = 1.0
"""Maximum seconds to list a workspace without the content of folders that git ignores."""

IGNORED_SECONDS = 0.3
"""Seconds from the start of a list in which the content of ignored folders is added."""

MAX_LISTED_CHANGES = 500
"""Maximum changed files in the result of one call."""

_MAX_NAMED_FOLDERS = 3
"""Maximum names in the list of folders that are not compared."""

_CLOCK_INTERVAL = 256
"""Entries between two reads of the clock. A shorter list never ends early."""


Entries = dict[str, tuple[int, float, float]]
"""Size, mtime and ctime of each file or link by path; zeros for "folder/"."""

_FOLDER = (0, 0.0, 0.0)


class Snapshot(Struct):
    """The state of a workspace.

    Attributes:
        secondary: paths that are listed last: files that git ignores, and files of `.git`.
        skipped: folders whose content is not in `entries`.
    """

    entries: Entries = {}
    secondary: set[str] = set()
    skipped: list[str] = []

    def explain_skipped(self) -> str:
        """Return which folders are not compared, "" if all are."""
        if not self.skipped:
            return ""
        named = ", ".join(f"{path}/" for path in sorted(self.skipped)[:_MAX_NAMED_FOLDERS])
        more = len(self.skipped) - _MAX_NAMED_FOLDERS
        return f"not compared: {named}" + (f" and {more:,} more" if more > 0 else "")


class Evidence:
    """Counts of one run. Paths are relative to the workspace, each once, in order of first use.

    Attributes:
        unknown_changes: see `Report`.
        windows: windows of the effectful calls that run now, by call id.
    """

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.failed = 0
        self.unknown_changes = ""
        self.windows: dict[str, ChangeWindow] = {}
        self._files_read: dict[str, None] = {}
        self._files_changed: dict[str, None] = {}
        self._folders_of_writes: set[str] = set()
        self._observed_changes: dict[str, None] = {}

    def add(self, outcomes: Iterable[CallOutcome]) -> None:
        """Count outcomes of tool calls; refused calls count only as failed."""
        for outcome in outcomes:
            result = outcome.result
            if not outcome.refused:
                self.calls[outcome.name] = self.calls.get(outcome.name, 0) + 1
            self.failed += result.error
            self._files_read.update(dict.fromkeys(result.reads))
            self._files_changed.update(dict.fromkeys((*result.changes, *result.observed_changes)))
            self._folders_of_writes |= _list_folders_above(result.changes)
            self._observed_changes.update(dict.fromkeys(result.observed_changes))
            self.unknown_changes = self.unknown_changes or result.unknown_changes

    @property
    def files_read(self) -> tuple[str, ...]:
        """Files that the run and its children read."""
        return tuple(self._files_read)

    @property
    def files_changed(self) -> tuple[str, ...]:
        """Files that the run and its children changed."""
        return self._without_folders_of_writes(self._files_changed)

    @property
    def observed_changes(self) -> tuple[str, ...]:
        """Files among `files_changed` that changed while an effectful call ran."""
        return self._without_folders_of_writes(self._observed_changes)

    def _without_folders_of_writes(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Leave out folders that tools made for their files; after a crash they look changed."""
        return tuple(path for path in paths if path not in self._folders_of_writes)


class ChangeWatch:
    """Comparison of workspaces before and after the effectful calls of a session.

    It lists files only when an effectful call starts and ends. Calls at the same time share a list.
    A workspace that is too large is not listed again, nor is an ignored folder that is too large.

    Arguments:
        home: mudroom's state folder. Sessions change the files in it, not calls.
    """

    def __init__(self, home: str) -> None:
        self._home_prefix = os.path.join(os.path.realpath(home), "")
        self._scanners: dict[str, _Scanner] = {}
        self._unknown: dict[str, str] = {}
        self._writes: list[tuple[str, str]] = []
        self._large_folders: dict[str, set[str]] = {}

    def start_write(self, root: str, path: str) -> None:
        """Note that a tool writes a file from now on: calls that run meanwhile do not change it.

        Any thread may call this and `end_write`.
        """
        self._writes.append((root, path))
        if scanner := self._scanners.get(root):
            for window in tuple(scanner.windows):
                window.written_by_tools.add(path)

    def end_write(self, root: str, path: str) -> None:
        """Note that a write has ended."""
        self._writes.remove((root, path))

    def is_state_file(self, path: str) -> bool:
        """Return whether a file is in mudroom's state folder. `path`: absolute."""
        return path.startswith(self._home_prefix)

    def enter(self, window: ChangeWindow, workspace: Workspace) -> None:
        """Open a window: it receives the files that tools write, until `leave`."""
        scanner = self._scanners.get(workspace.root)
        if scanner is None:
            large_folders = self._large_folders.setdefault(workspace.root, set())
            scanner = self._scanners[workspace.root] = _Scanner(workspace, large_folders)
        scanner.windows.add(window)
        writes = tuple(self._writes)
        window.written_by_tools.update(path for root, path in writes if root == workspace.root)

    def leave(self, window: ChangeWindow, workspace: Workspace) -> None:
        """Close a window."""
        windows = self._scanners[workspace.root].windows
        windows.discard(window)
        if not windows:
            del self._scanners[workspace.root]

    async def scan(self, workspace: Workspace) -> Snapshot | str:
        """Return the files as of now, or why they are not known."""
        root = workspace.root
        if root in self._unknown:
            return self._unknown[root]
        snapshot = await self._scanners[root].scan()
        if isinstance(snapshot, str):
            self._unknown[root] = snapshot
        return snapshot


class ChangeWindow:
    """The time in which one effectful call runs.

    Arguments:
        writes: files that the call writes with its context; the list grows while the call runs.

    Attributes:
        written_by_tools: files that tools wrote meanwhile.
    """

    def __init__(self, watch: ChangeWatch, workspace: Workspace, writes: Sequence[str]) -> None:
        self.written_by_tools: set[str] = set()
        self._watch = watch
        self._workspace = workspace
        self._writes = writes
        self._before: Snapshot | str | None = None

    async def start(self) -> None:
        """Remember the files as they are before the call."""
        self._watch.enter(self, self._workspace)
        self._before = await self._watch.scan(self._workspace)

    async def close(self, result: ToolResult) -> ToolResult:
        """Return the result of the call with the files that changed meanwhile.

        If this is cancelled, it can be called again.
        """
        paths, unknown = await self._find_changes()
        self._watch.leave(self, self._workspace)
        result = add_writes(result, self._writes)
        written_by_tools = self.written_by_tools.union(map(os.path.normpath, result.changes))
        # A tool makes the folder of a new file first: a scan may see the folder without the file.
        folders = _list_folders_above(written_by_tools)
        root = self._workspace.root
        observed = [
            path
            for path in paths
            if path not in written_by_tools
            and path not in folders
            and not self._watch.is_state_file(os.path.join(root, path))
        ]
        if len(observed) > MAX_LISTED_CHANGES:
            part = f"only {MAX_LISTED_CHANGES:,} of {len(observed):,} files are listed"
            unknown = ", ".join(filter(None, (part, unknown)))
            observed = observed[:MAX_LISTED_CHANGES]
        if not observed and not unknown:
            return result
        return replace(result, observed_changes=tuple(observed), unknown_changes=unknown)

    async def _find_changes(self) -> tuple[list[str], str]:
        """Return the files that differ from those before, and why there may be more."""
        before = self._before
        if before is None:
            return [], ""
        after = await self._watch.scan(self._workspace)
        if isinstance(before, str):
            return [], before
        if isinstance(after, str):
            return [], after
        unknown = before.explain_skipped() or after.explain_skipped()
        if before is after:
            return [], unknown
        return await asyncio.to_thread(_compare, before, after), unknown


def add_writes(result: ToolResult, writes: Sequence[str]) -> ToolResult:
    """Return a result whose `changes` include the files that the call wrote with its context."""
    if not writes:
        return result
    return replace(result, changes=tuple(dict.fromkeys((*result.changes, *writes))))


class _Scanner:
    """Scanner of one workspace. Callers that wait at the same time share one scan.

    Attributes:
        windows: the open windows of the workspace.
    """

    def __init__(self, workspace: Workspace, large_folders: set[str]) -> None:
        self.windows: set[ChangeWindow] = set()
        self._workspace = workspace
        self._large_folders = large_folders
        self._lock = asyncio.Lock()
        self._started = 0
        self._finished = 0
        self._latest: Snapshot | str = ""

    async def scan(self) -> Snapshot | str:
        """Return the result of a scan that starts after this call."""
        requested = self._started
        async with self._lock:
            if self._finished <= requested:
                self._started += 1
                number = self._started
                snapshot = await asyncio.to_thread(
                    take_snapshot, self._workspace, self._large_folders
                )
                if snapshot != self._latest:  # else the old one is kept, to save memory
                    self._latest = snapshot
                self._finished = number
            return self._latest


def take_snapshot(workspace: Workspace, large_folders: set[str]) -> Snapshot | str:
    """Return the state of a workspace, or why it is not known.

    Arguments:
        large_folders: ignored folders that are too large; the function adds those that it meets.
    """
    start = time.monotonic()
    snapshot = Snapshot()
    entries = snapshot.entries
    ignored_folders: list[str] = []
    try:
        for info in workspace.walk_entries(skipped=snapshot.skipped):
            path = _add_entry(entries, info)
            if info.ignored or ".git/" in path:
                snapshot.secondary.add(path)
            if info.ignored and stat.S_ISDIR(info.mode):
                ignored_folders.append(info.path)
            if len(entries) > MAX_FILES:
                return f"the folder has more than {MAX_FILES:,} files"
            if _is_late(entries, start + SCAN_SECONDS):
                return f"listing the folder takes more than {SCAN_SECONDS:g} s"
    except (OSError, WorkspaceError) as error:
        return f"the folder cannot be listed: {error}"
    if "." in snapshot.skipped:
        return "the folder cannot be listed"
    for folder in ignored_folders:
        if folder not in large_folders:
            _add_ignored(snapshot, workspace, folder, start + IGNORED_SECONDS, large_folders)
    snapshot.skipped += large_folders.intersection(ignored_folders)
    return snapshot


def _add_ignored(
    snapshot: Snapshot,
    workspace: Workspace,
    folder: str,
    deadline: float,
    large_folders: set[str],
) -> None:
    """Add the content of a folder that git ignores, or the folder to those that are too large."""
    room = MAX_FILES - len(snapshot.entries)
    content: Entries = {}
    try:
        for info in workspace.walk_entries(folder, ignored=True, skipped=snapshot.skipped):
            _add_entry(content, info)
            if len(content) > room or _is_late(content, deadline):
                large_folders.add(folder)
                return
    except (OSError, WorkspaceError):
        snapshot.skipped.append(folder)  # it was removed meanwhile, or may not be opened
    snapshot.entries.update(content)
    snapshot.secondary.update(content)


def _is_late(entries: Entries, deadline: float) -> bool:
    return len(entries) % _CLOCK_INTERVAL == 0 and time.monotonic() > deadline


def _add_entry(entries: Entries, info: FileInfo) -> str:
    """Add a file or a folder, but no folder of git: git makes and removes empty ones."""
    if not stat.S_ISDIR(info.mode):
        entries[info.path] = (info.size, info.mtime, info.ctime)
        return info.path
    path = f"{info.path}/"
    if ".git/" not in path:
        entries[path] = _FOLDER
    return path


def _compare(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the paths that differ."""
    skipped = tuple(f"{path}/" for path in {*before.skipped, *after.skipped})
    paths = sorted(
        path
        for path in before.entries.keys() | after.entries.keys()
        if before.entries.get(path) != after.entries.get(path)
        and (path in skipped or not path.startswith(skipped))
    )
    # A folder that is new or removed is listed only if nothing below it is.
    followers = [*paths[1:], ""]
    listed = [
        path
        for path, follower in zip(paths, followers, strict=False)
        if path[-1] != "/" or not follower.startswith(path)
    ]
    listed.sort(key=lambda path: path in before.secondary or path in after.secondary)
    return listed


def _list_folders_above(paths: Iterable[str]) -> set[str]:
    """Return all folders above the paths, each with a slash at its end."""
    return {f"{folder}/" for path in paths for folder in PurePath(path).parents}
