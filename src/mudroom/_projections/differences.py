"""Diffs between two texts as numbered lines, and the files a session changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from stat import S_IXUSR
from typing import TypeVar

from msgspec import Struct

from .._core.agents import WorkspaceKind
from .._core.events import AnyEvent, FileWriteIntended, RunStarted, ToolCallFinished
from .._core.runs import find_root_id
from .._core.tools import PreviewLine

# Changed lines; larger changes are shown whole instead of line by line.
_MAX_COMPARED_LINES = 4_000
_CONTEXT = 2


def diff_texts(before: str, after: str, *, first_line: int = 1) -> list[PreviewLine]:
    """List the changed lines with their numbers, and two unchanged lines around them.

    Removed lines have their old number, all others their new number. If `first_line` is 0, lines
    have no numbers.
    """
    old = before.splitlines()
    new = after.splitlines()
    start = _count_equal(old, new)
    end = _count_equal(old[start:][::-1], new[start:][::-1])
    first = max(0, start - _CONTEXT)
    old = old[first : len(old) - max(0, end - _CONTEXT)]
    new = new[first : len(new) - max(0, end - _CONTEXT)]
    lines = _compare_lines(old, new)
    if not first_line:
        return [(sign, text) for sign, _, text in lines]
    start = first_line + first
    width = len(str(start + max(len(old), len(new))))
    return [(sign, f"{start + at:>{width}}  {text}" if sign else text) for sign, at, text in lines]


def _count_equal(old: Sequence[str], new: Sequence[str]) -> int:
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _compare_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """Yield the sign, the index and the text of each line."""
    if len(old) + len(new) > _MAX_COMPARED_LINES:
        groups = [[("replace", 0, len(old), 0, len(new))]]
    else:
        import difflib

        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        groups = list(matcher.get_grouped_opcodes(_CONTEXT))
    for n, group in enumerate(groups):
        if n:
            yield "", 0, "…"
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                for at in range(new_start, new_end):
                    yield " ", at, new[at]
                continue
            for at in range(old_start, old_end):
                yield "-", at, old[at]
            for at in range(new_start, new_end):
                yield "+", at, new[at]


T = TypeVar("T")


class FileChange(Struct, frozen=True):
    """A file that tools changed.

    Arguments:
        before, after: sha256 before the first and after the last write, "" for no file.
        old_mode: permission bits before the first write; None if unknown.
        executable: true if its owner could execute it after the last write; None if unknown,
            because there was no file or a command changed it.
    """

    path: str
    before: str
    after: str
    old_mode: int | None = None
    executable: bool | None = None

    @property
    def mode_change(self) -> bool | None:
        """True if the file became executable, False if it stopped being so; None for neither."""
        if self.old_mode is None or self.executable is None:
            return None
        return self.executable if self.executable != bool(self.old_mode & S_IXUSR) else None


class FileChanges:
    """Folds events into changed files, leaving out runs in a copy of the folder."""

    def __init__(self) -> None:
        self._runs_elsewhere: set[str] = set()
        self._writes: list[tuple[int, FileWriteIntended]] = []
        self._observed: list[tuple[int, str]] = []

    def apply(self, event: AnyEvent) -> None:
        if isinstance(event, RunStarted):
            if event.brief.workspace.kind is not WorkspaceKind.SHARED:
                self._runs_elsewhere.add(event.brief.run_id)
        elif event.run in self._runs_elsewhere:
            return
        elif isinstance(event, FileWriteIntended):
            self._writes.append((_get_prompt_number(event.run), event))
        elif isinstance(event, ToolCallFinished):
            number = _get_prompt_number(event.run)
            self._observed.extend((number, path) for path in event.result.observed_changes)

    def list_changes(self, first: int = 0, last: int | None = None) -> list[FileChange]:
        """List the files changed by tools in these prompts, each once."""
        changes: dict[str, FileChange] = {}
        by_commands = set(_select(self._observed, first, last))
        for event in _select(self._writes, first, last):
            path = event.path
            known = changes.get(path, event)
            executable = None if path in by_commands else event.executable
            changes[path] = FileChange(path, known.before, event.after, known.old_mode, executable)
        return list(changes.values())

    def list_observed(self, first: int = 0, last: int | None = None) -> list[str]:
        """List the other files that changed while commands ran, each once."""
        written = {change.path for change in self.list_changes(first, last)}
        paths = dict.fromkeys(_select(self._observed, first, last))
        return [path for path in paths if path not in written]


def _select(items: list[tuple[int, T]], first: int, last: int | None) -> Iterator[T]:
    for number, item in items:
        if number >= first and (last is None or number <= last):
            yield item


def _get_prompt_number(run: str) -> int:
    root = find_root_id(run)
    return int(root) if root.isdecimal() else 0
