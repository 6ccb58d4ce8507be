"""Files that a session's runs changed, by prompt: with tools for files, and with commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec import Struct

from .._core.agents import WorkspaceKind
from .._core.events import AnyEvent, FileWriteIntended, RunStarted, ToolCallFinished
from .._core.runs import find_root_id

T = TypeVar("T")


class FileChange(Struct, frozen=True):
    """A file that tools changed.

    Arguments:
        path: relative to the workspace.
        before, after: sha256 before the first and after the last write, "" for no file.
    """

    path: str
    before: str
    after: str


class FileChanges:
    """Folds events into changed files, without runs that work in a copy of the folder."""

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
        """List the files that tools changed, each once.

        Arguments:
            first, last: numbers of the first and the last prompt; default: all.
        """
        changes: dict[str, FileChange] = {}
        for event in _select(self._writes, first, last):
            known = changes.get(event.path)
            before = known.before if known else event.before
            changes[event.path] = FileChange(event.path, before, event.after)
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
