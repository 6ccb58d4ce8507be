"""ChangeWatch and ChangeWindow: files that changed while an effectful call ran."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from ..._core.ports import FileInfo, Workspace
from ..._core.ports.hooks import HOOKS_UNWATCHED
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult, join_reasons
from ...errors import WorkspaceError

NOT_STORED = "its files could not be stored: "
"""How the reason begins if a run's isolated workspace could not be stored."""

ELSEWHERE = "its files are on another machine"
"""The reason if a run's isolated workspace could not be brought back."""

MAX_LISTED_CHANGES = 500  # in a call's result


class ChangeWatch:
    """Compares workspaces before and after a session's effectful calls.

    Files are listed only when an effectful call starts or ends. Concurrent calls share a snapshot.
    A workspace or ignored folder found too large is not listed again. `home` is mudroom's state
    folder, whose files sessions change, not calls.
    """

    def __init__(self, home: str) -> None:
        self._home_prefix = os.path.join(os.path.realpath(home), "")
        self._scanners: dict[str, _Scanner] = {}
        self._unknown: dict[str, str] = {}
        self._writes: list[tuple[str, str]] = []
        self._large_folders: dict[str, set[str]] = {}

    def start_write(self, root: str, path: str) -> None:
        """Record that a tool is writing a file, so the change is not attributed to running calls.

        This and `end_write` may be called from any thread.
        """
        self._writes.append((root, path))
        if scanner := self._scanners.get(root):
            for window in tuple(scanner.windows):
                window.written_by_tools.add(path)

    def end_write(self, root: str, path: str) -> None:
        self._writes.remove((root, path))

    def is_state_file(self, path: str) -> bool:
        return path.startswith(self._home_prefix)

    def enter(self, window: ChangeWindow, workspace: Workspace) -> None:
        """Open a window, which receives the files that tools write until `leave`."""
        scanner = self._scanners.get(workspace.root)
        if scanner is None:
            large_folders = self._large_folders.setdefault(workspace.root, set())
            scanner = self._scanners[workspace.root] = _Scanner(workspace, large_folders)
        for other in scanner.windows:
            if other.run_id != window.run_id:
                other.parallel_runs.add(window.run_id)
                window.parallel_runs.add(other.run_id)
        scanner.windows.add(window)
        writes = tuple(self._writes)
        window.written_by_tools.update(path for root, path in writes if root == workspace.root)

    def leave(self, window: ChangeWindow, workspace: Workspace) -> None:
        windows = self._scanners[workspace.root].windows
        windows.discard(window)
        if not windows:
            del self._scanners[workspace.root]

    async def scan(self, workspace: Workspace) -> Snapshot | str:
        """Return the files as they are now, or why they are unknown."""
        root = workspace.root
        if root in self._unknown:
            return self._unknown[root]
        snapshot = await self._scanners[root].scan()
        if isinstance(snapshot, str):
            self._unknown[root] = snapshot
        return snapshot


class ChangeWindow:
    """The time during which an effectful call is running.

    Arguments:
        writes: files the call writes through its context; the list grows while it runs.
        unwatched: why the call may change files outside all snapshots, or "".

    Attributes:
        written_by_tools: files that tools wrote meanwhile.
        parallel_runs: other runs with an effectful call on the same files meanwhile.
    """

    def __init__(
        self,
        watch: ChangeWatch,
        workspace: Workspace,
        writes: Sequence[str],
        run_id: str = "",
        unwatched: str = "",
    ) -> None:
        self.written_by_tools: set[str] = set()
        self.parallel_runs: set[str] = set()
        self.run_id = run_id
        self._unwatched = unwatched
        self._watch = watch
        self._workspace = workspace
        self._writes = writes
        self._before: Snapshot | str | None = None

    async def start(self) -> None:
        self._watch.enter(self, self._workspace)
        self._before = await self._watch.scan(self._workspace)

    async def close(self, result: ToolResult) -> ToolResult:
        """Return the call's result with the files that changed meanwhile.

        If cancelled, it can be called again.
        """
        paths, unknown = await self._find_changes()
        self._watch.leave(self, self._workspace)
        result = add_writes(result, self._writes)
        written_by_tools = self.written_by_tools.union(map(os.path.normpath, result.changes))
        # Tools create the folder of a new file first, so a scan may see it without the file.
        folders = list_folders_above(written_by_tools)
        root = self._workspace.root
        observed = [
            path
            for path in paths
            if path not in written_by_tools
            and path not in folders
            and not self._watch.is_state_file(os.path.join(root, path))
        ]
        if len(observed) > MAX_LISTED_CHANGES:
            omission = f"only {MAX_LISTED_CHANGES:,} of {len(observed):,} files are listed"
            unknown = join_reasons(omission, unknown)
            observed = observed[:MAX_LISTED_CHANGES]
        unknown = join_reasons(unknown, self._unwatched, result.unknown_changes)
        if not observed and not unknown:
            return result
        parallel = tuple(sorted(self.parallel_runs)) if observed else ()
        return replace(
            result,
            observed_changes=tuple(observed),
            unknown_changes=unknown,
            parallel_runs=parallel,
        )

    async def _find_changes(self) -> tuple[list[str], str]:
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
        return await asyncio.to_thread(compare_snapshots, before, after), unknown


def add_writes(result: ToolResult, writes: Sequence[str]) -> ToolResult:
    """Include the files a call wrote through its context in its result's `changes`."""
    if not writes:
        return result
    return replace(result, changes=tuple(dict.fromkeys((*result.changes, *writes))))


class WriteWindow:
    """A `ChangeWindow` for a call that writes files only through its context."""

    def __init__(self, writes: Sequence[str], unwatched: str = "") -> None:
        self._writes = writes
        self._unwatched = unwatched

    async def close(self, result: ToolResult) -> ToolResult:
        result = add_writes(result, self._writes)
        if not self._unwatched:
            return result
        unknown = join_reasons(self._unwatched, result.unknown_changes)
        return replace(result, unknown_changes=unknown)


class _Scanner:
    """Scans a workspace. Callers that wait at the same time share a snapshot."""

    def __init__(self, workspace: Workspace, large_folders: set[str]) -> None:
        self.windows: set[ChangeWindow] = set()
        self._workspace = workspace
        self._large_folders = large_folders
        self._lock = asyncio.Lock()
        self._started_scans = 0
        self._finished_scans = 0
        self._latest: Snapshot | str = ""

    async def scan(self) -> Snapshot | str:
        """Return a snapshot begun after this call, or why there is none."""
        earlier_scans = self._started_scans
        async with self._lock:
            if self._finished_scans <= earlier_scans:
                self._started_scans += 1
                number = self._started_scans
                snapshot = await asyncio.to_thread(
                    take_snapshot, self._workspace, self._large_folders
                )
                if snapshot != self._latest:  # else keep the old one, to save memory
                    self._latest = snapshot
                self._finished_scans = number
            return self._latest


_OUTSIDE = "ran without a sandbox, and files outside the folder were not compared"
_NOTHING_COMPARED = "nothing compared the files before and after the tool "

_CONFINED_TIERS = ("full", "file", "refuse")
"""Tiers whose commands cannot write outside the workspace, except files that vanish with them."""


def explain_unwatched(tool: Tool, tier: str) -> str:
    """Return why a tool's call may change files that nothing compares, "" if it cannot.

    `tier` is the sandbox tier in which the run's commands are executed.
    """
    if tool.has_category(ToolCategory.RUN):
        return "" if tier in _CONFINED_TIERS else f"commands {_OUTSIDE}"
    if tool.effect is Effect.EFFECTFUL:
        return f"the tool {tool.name} {_OUTSIDE}"
    if tool.effect is Effect.KEYED and tool.category is None:
        # mudroom's own keyed tools all have a category, and write files only through their context.
        return f"{_NOTHING_COMPARED}{tool.name}"
    return ""


def select_outside(unknown_changes: str) -> str:
    """Select the reasons that also concern runs in another workspace.

    Merging an isolated child accounts for its workspace's files, but not for changes elsewhere.
    """
    return "; ".join(
        reason
        for reason in unknown_changes.split("; ")
        if reason.endswith(_OUTSIDE)
        or reason.startswith(_NOTHING_COMPARED)
        or reason == HOOKS_UNWATCHED
    )


def select_unstored(unknown_changes: str) -> str:
    """Return why a run's isolated workspace was not stored, "" for any other reason.

    The other reasons concern files that no merge would have brought either.
    """
    reasons = unknown_changes.split("; ")
    return "; ".join(each for each in reasons if each.startswith((NOT_STORED, ELSEWHERE)))


MAX_FILES = 20_000  # in a workspace; a larger one is not compared
SCAN_SECONDS = 1.0  # for listing a workspace, except inside folders ignored by git
IGNORED_SECONDS = 0.3  # from the start of the listing, for adding ignored folders' content
_MAX_NAMED_FOLDERS = 3  # of the folders that are not compared
_CLOCK_INTERVAL = 256  # entries between looks at the clock; shorter listings always finish

Entries = dict[str, tuple[int, float, float]]
"""Size, mtime and ctime of each file or link by path; zeros for "folder/"."""

_FOLDER = (0, 0.0, 0.0)


class Snapshot(Struct):
    """The state of a workspace.

    Attributes:
        last_paths: paths listed last among changes: files ignored by git, and files of `.git`.
        skipped: folders whose content is not in `entries`.
    """

    entries: Entries = {}
    last_paths: set[str] = set()
    skipped: list[str] = []

    def explain_skipped(self) -> str:
        """Name the folders that are not compared, "" if all are."""
        if not self.skipped:
            return ""
        named = ", ".join(f"{path}/" for path in sorted(self.skipped)[:_MAX_NAMED_FOLDERS])
        more = len(self.skipped) - _MAX_NAMED_FOLDERS
        return f"not compared: {named}" + (f" and {more:,} more" if more > 0 else "")


def take_snapshot(workspace: Workspace, large_folders: set[str]) -> Snapshot | str:
    """Return the state of a workspace, or why it is unknown.

    Adds ignored folders that are too large to `large_folders`.
    """
    start = time.monotonic()
    snapshot = Snapshot()
    entries = snapshot.entries
    ignored_folders: list[str] = []
    try:
        for info in workspace.walk_entries(skipped=snapshot.skipped):
            path = _add_entry(entries, info)
            if info.ignored or ".git/" in path:
                snapshot.last_paths.add(path)
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
    """Add the content of an ignored folder, or add it to the folders that are too large."""
    files_left = MAX_FILES - len(snapshot.entries)
    content: Entries = {}
    try:
        for info in workspace.walk_entries(folder, ignored=True, skipped=snapshot.skipped):
            _add_entry(content, info)
            if len(content) > files_left or _is_late(content, deadline):
                large_folders.add(folder)
                return
    except (OSError, WorkspaceError):
        snapshot.skipped.append(folder)  # removed meanwhile, or not allowed to be opened
    snapshot.entries.update(content)
    snapshot.last_paths.update(content)


def _is_late(entries: Entries, deadline: float) -> bool:
    return len(entries) % _CLOCK_INTERVAL == 0 and time.monotonic() > deadline


def _add_entry(entries: Entries, info: FileInfo) -> str:
    """Add a file or folder, except in `.git`, where git creates and removes empty folders."""
    if not stat.S_ISDIR(info.mode):
        entries[info.path] = (info.size, info.mtime, info.ctime)
        return info.path
    path = f"{info.path}/"
    if ".git/" not in path:
        entries[path] = _FOLDER
    return path


def compare_snapshots(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the paths that differ, `last_paths` last."""
    skipped = tuple(f"{path}/" for path in {*before.skipped, *after.skipped})
    paths = sorted(
        path
        for path in before.entries.keys() | after.entries.keys()
        if before.entries.get(path) != after.entries.get(path)
        and (path in skipped or not path.startswith(skipped))
    )
    # A new or removed folder is listed only if nothing below it is.
    next_paths = [*paths[1:], ""]
    listed = [
        path
        for path, next_path in zip(paths, next_paths, strict=False)
        if path[-1] != "/" or not next_path.startswith(path)
    ]
    listed.sort(key=lambda path: path in before.last_paths or path in after.last_paths)
    return listed


def list_folders_above(paths: Iterable[str]) -> set[str]:
    """List all folders above the paths, each ending in a slash."""
    return {f"{folder}/" for path in paths for folder in PurePath(path).parents}
