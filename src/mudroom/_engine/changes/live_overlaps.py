"""LiveOverlaps: warnings about files that another running run changed in the shared workspace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from ..._core.ports import Clock, Workspace
from ..._core.runs import is_run_above
from ..._core.tools import ToolResult
from ..._platform.regular_files import is_binary
from ...errors import WorkspaceError

MAX_COMPARED_BYTES = 1 << 20  # changed lines of larger files are not listed
MAX_RANGES = 8  # of lines, per warning
MAX_WARNINGS = 10  # per result


class ActiveRun(Struct, frozen=True):
    label: str
    started_at: float


class LineChange(Struct, frozen=True):
    """Lines replaced by a write: the number of lines before them, the old and the new lines."""

    first: int
    removed: int
    added: int


class ChangedLines(Struct, frozen=True):
    """A range of changed lines, counted from 0, excluding `end`, and the time of the change."""

    first: int
    end: int
    time: float


class WrittenFile(Struct):
    """A run's writes to one file."""

    time: float  # of the last write
    lines: list[ChangedLines] = []
    unknown_at: float = -1.0  # of the last change whose lines are unknown


class LiveOverlaps:
    """Files written in the shared workspace by a session's running runs.

    Methods may be called from any thread. Nothing is kept of ended runs.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[str, ActiveRun] = {}
        self._writes: dict[str, dict[str, WrittenFile]] = {}
        self._lock = Lock()

    def start(self, run: str, name: str) -> None:
        """Add a run. `name`: a named child's, else ""."""
        label = f"{name} ({run})" if name else f"run {run}"
        with self._lock:
            self._runs[run] = ActiveRun(label, self._clock.monotonic())

    def end(self, run: str) -> None:
        with self._lock:
            self._runs.pop(run, None)
            for path in [path for path, by_run in self._writes.items() if run in by_run]:
                del self._writes[path][run]
                if not self._writes[path]:
                    del self._writes[path]

    def read_before(self, run: str, workspace: Workspace, path: str, sha256: str) -> bytes | None:
        """Read a file before a write, to compare its lines later.

        None if there is no other run to warn, or if the file is large or unreadable. `sha256` is ""
        if there is no file.
        """
        with self._lock:
            if all(_are_related(run, other) for other in self._runs):
                return None
        return _read_small(workspace, path) if sha256 else b""

    def add_write(self, run: str, workspace: Workspace, path: str, before: bytes | None) -> None:
        """Add a write by a run. `before`: see `read_before`."""
        after = None if before is None else _read_small(workspace, path)
        change = None
        if before is not None and after is not None:
            change = compare_lines(before.splitlines(), after.splitlines())
        with self._lock:
            if run not in self._runs:
                return
            now = self._clock.monotonic()
            by_run = self._writes.setdefault(path, {})
            by_run.setdefault(run, WrittenFile(now)).time = now
            for writer, file in by_run.items():
                if change is None:
                    file.unknown_at = now
                else:
                    file.lines = _move_lines(file.lines, change, now if writer == run else None)

    def warn(self, run: str, paths: Iterable[str], result: ToolResult) -> ToolResult:
        with self._lock:
            if run not in self._runs:
                return result
            warnings = [
                self._describe(other, file, self._runs[run].started_at)
                for path in dict.fromkeys(paths)
                for other, file in self._writes.get(path, {}).items()
                if file.time >= self._runs[run].started_at and not _are_related(run, other)
            ]
        if not warnings:
            return result
        return replace(result, text="\n".join([result.text, *warnings[:MAX_WARNINGS]]))

    def _describe(self, run: str, file: WrittenFile, since: float) -> str:
        seconds = round(self._clock.monotonic() - file.time)
        return (
            f"[also changed by {self._runs[run].label} {seconds} s ago{_format_lines(file, since)}]"
        )

    def __bool__(self) -> bool:
        return bool(self._writes)


def compare_lines(old: Sequence[bytes], new: Sequence[bytes]) -> LineChange:
    shorter = min(len(old), len(new))
    first = 0
    while first < shorter and old[first] == new[first]:
        first += 1
    last = 0
    while last < shorter - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return LineChange(first, len(old) - first - last, len(new) - first - last)


def _move_lines(
    ranges: Sequence[ChangedLines], change: LineChange, time: float | None
) -> list[ChangedLines]:
    """Shift the ranges for a later change; if it has a `time`, include its lines."""
    end = change.first + change.removed
    moved = change.added - change.removed
    result: list[ChangedLines] = []
    for lines in ranges:
        if lines.end <= change.first:
            result.append(lines)
        elif lines.first >= end:
            result.append(ChangedLines(lines.first + moved, lines.end + moved, lines.time))
        else:
            last = max(lines.end, end) + moved
            result.append(ChangedLines(min(lines.first, change.first), last, lines.time))
    if time is not None:
        result.append(ChangedLines(change.first, change.first + change.added, time))
    return result


def _format_lines(file: WrittenFile, since: float) -> str:
    """Format the lines changed since a time, as ": lines 10-24, 30"."""
    if file.unknown_at >= since:
        return ""
    texts: list[str] = []
    end = 0
    for lines in sorted(file.lines, key=lambda lines: lines.first):
        if lines.time < since or (texts and lines.end <= end):
            continue
        first = max(lines.first, end) + 1
        end = max(lines.end, first)
        texts.append(str(first) if first == end else f"{first}-{end}")
    if not texts:
        return ""
    noun = "line" if len(texts) == 1 and "-" not in texts[0] else "lines"
    return f": {noun} {', '.join(texts[:MAX_RANGES])}"


def _are_related(run: str, other: str) -> bool:
    return run == other or is_run_above(run, other) or is_run_above(other, run)


def _read_small(workspace: Workspace, path: str) -> bytes | None:
    """Read a small text file; None if it cannot be compared."""
    try:
        data = workspace.read(path, 0, MAX_COMPARED_BYTES + 1)
    except WorkspaceError:
        return None
    return None if len(data) > MAX_COMPARED_BYTES or is_binary(data) else data
