"""Evidence of a run: its tool calls, the files it read, and the files that changed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from .._core.ports import Workspace
from .._core.tools import ToolResult
from ..errors import WorkspaceError
from .call_batch import CallOutcome

MAX_FILES = 20_000
"""Maximum files of a workspace that is compared before and after calls."""

SCAN_SECONDS = 1.0
"""Maximum seconds to list a workspace."""

MAX_LISTED_CHANGES = 500
"""Maximum changed files in the result of one call."""

Snapshot = dict[str, tuple[int, float, float]]
"""Size, mtime and ctime of each file that git does not ignore; "folder/" cannot be listed."""


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
            self._observed_changes.update(dict.fromkeys(result.observed_changes))
            self.unknown_changes = self.unknown_changes or result.unknown_changes

    @property
    def files_read(self) -> tuple[str, ...]:
        """Files that the run and its children read."""
        return tuple(self._files_read)

    @property
    def files_changed(self) -> tuple[str, ...]:
        """Files that the run and its children changed."""
        return tuple(self._files_changed)

    @property
    def observed_changes(self) -> tuple[str, ...]:
        """Files among `files_changed` that changed while an effectful call ran."""
        return tuple(self._observed_changes)


class ChangeWatch:
    """Comparison of workspaces before and after the effectful calls of a session.

    It lists no files while no effectful call runs. Calls at the same time share a list. A workspace
    that is too large is tried once.

    Arguments:
        state_folder: files in it are changed by sessions, not by calls.
    """

    def __init__(self, state_folder: str) -> None:
        self._state_prefix = os.path.join(os.path.realpath(state_folder), "")
        self._scanners: dict[str, _Scanner] = {}
        self._unknown: dict[str, str] = {}

    def add_write(self, root: str, path: str) -> None:
        """Note that a tool writes a file: calls that run now did not change it.

        Any thread may call this.
        """
        if scanner := self._scanners.get(root):
            for window in tuple(scanner.windows):
                window.written_by_tools.add(path)

    def is_own_file(self, path: str) -> bool:
        """Return whether a file belongs to the state of sessions. `path`: absolute."""
        return path.startswith(self._state_prefix)

    def enter(self, window: ChangeWindow, workspace: Workspace) -> None:
        """Open a window: it receives the files that tools write, until `leave`."""
        scanner = self._scanners.get(workspace.root)
        if scanner is None:
            scanner = self._scanners[workspace.root] = _Scanner(workspace)
        scanner.windows.add(window)

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
        writes: files that the call itself writes with its context; the caller appends to it.

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

        If it is cut off, it can be called again.
        """
        paths, unknown = await self._find_changes()
        self._watch.leave(self, self._workspace)
        result = add_writes(result, self._writes)
        written_by_tools = self.written_by_tools.union(map(os.path.normpath, result.changes))
        root = self._workspace.root
        observed = [
            path
            for path in paths
            if path not in written_by_tools
            and not self._watch.is_own_file(os.path.join(root, path))
        ]
        if len(observed) > MAX_LISTED_CHANGES:
            unknown = f"only {MAX_LISTED_CHANGES:,} of {len(observed):,} files are listed"
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
        if before is after:
            return [], ""
        return await asyncio.to_thread(_compare, before, after)


def add_writes(result: ToolResult, writes: Sequence[str]) -> ToolResult:
    """Return a result whose `changes` include the files that the call wrote with its context."""
    if not writes:
        return result
    return replace(result, changes=tuple(dict.fromkeys((*result.changes, *writes))))


class _Scanner:
    """Lists the files of one workspace. Callers that wait at the same time share one scan."""

    def __init__(self, workspace: Workspace) -> None:
        self.windows: set[ChangeWindow] = set()
        self._workspace = workspace
        self._lock = asyncio.Lock()
        self._started = 0
        self._finished = 0
        self._latest: Snapshot | str = {}

    async def scan(self) -> Snapshot | str:
        """Return the result of a scan that starts after this call."""
        requested = self._started
        async with self._lock:
            if self._finished <= requested:
                self._started += 1
                number = self._started
                latest = await asyncio.to_thread(take_snapshot, self._workspace, self._latest)
                self._latest = latest
                self._finished = number
            return self._latest


def take_snapshot(workspace: Workspace, latest: Snapshot | str) -> Snapshot | str:
    """Return the files of a workspace, or why they are not known.

    Arguments:
        latest: returned if nothing has changed, to save memory.
    """
    deadline = time.monotonic() + SCAN_SECONDS
    snapshot: Snapshot = {}
    skipped: list[str] = []
    try:
        for info in workspace.walk(skipped=skipped):
            snapshot[info.path] = (info.size, info.mtime, info.ctime)
            if len(snapshot) > MAX_FILES:
                return f"the folder has more than {MAX_FILES:,} files"
            if time.monotonic() > deadline:
                return f"listing the folder takes more than {SCAN_SECONDS:g} s"
    except (OSError, WorkspaceError) as error:
        return f"the folder cannot be listed: {error}"
    snapshot.update((f"{path}/", (0, 0.0, 0.0)) for path in skipped)
    return latest if snapshot == latest else snapshot


def _compare(before: Snapshot, after: Snapshot) -> tuple[list[str], str]:
    """Return the paths that differ, sorted, and why there may be more."""
    paths = sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )
    names = {os.path.basename(path) for path in paths}
    if "" in names:
        unknown = "some folders cannot be listed"
    elif ".gitignore" in names:
        unknown = "the ignore rules of git changed"
    else:
        return paths, ""
    # A file that is in one list only may be unchanged.
    return [path for path in paths if path in before and path in after], unknown
