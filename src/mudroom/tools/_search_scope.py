"""The files that a search looks at, within a time limit, and the notes on what it left out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from .._core.counts import count_noun
from .._core.ports import FileInfo, Workspace
from .._core.tools import ToolResult
from ._text_files import make_error_result

_MAX_NAMED_PATHS = 3  # in a note


class SearchScope:
    """The files of one search.

    Arguments:
        deadline: time of the monotonic clock at which listing stops.
    """

    def __init__(self, workspace: Workspace, deadline: float) -> None:
        self.skipped: list[str] = []
        self.is_complete = True
        self._workspace = workspace
        self._deadline = deadline

    def walk(self, folder: str) -> Iterator[FileInfo]:
        """Yield the files below a folder until the deadline."""
        for info in self._workspace.walk(folder, skipped=self.skipped):
            if time.monotonic() > self._deadline:
                self.is_complete = False
                return
            yield info

    def describe_skipped(self) -> str:
        """Return a note on what cannot be read, "" when there is nothing."""
        if not self.skipped:
            return ""
        names = ", ".join(self.skipped[:_MAX_NAMED_PATHS])
        more = ", …" if len(self.skipped) > _MAX_NAMED_PATHS else ""
        paths = count_noun(len(self.skipped), "path")
        return f"skipped {paths} that cannot be read: {names}{more}"

    def describe_searched(self, looked_at: int, listed: int) -> str:
        """Return how many of the files a stopped search has looked at."""
        more = "" if self.is_complete else "more than "
        return f"searched {looked_at:,} of {more}{count_noun(listed, 'file')}"


def format_rows(rows: Sequence[str], notes: Sequence[str], noun: str, *, total: int) -> ToolResult:
    """Return the rows of a search with its notes in parentheses as the last line.

    Arguments:
        noun: name of a row. total: number of matches, shown or not.
    """
    note = "; ".join(filter(None, notes))
    return ToolResult(
        "\n".join([*rows, f"({note})"] if note else rows),
        display=count_noun(total, noun),
        detail={f"{noun}s": total},
    )


def format_no_rows(stopped: str, skipped: str, nothing: str) -> ToolResult:
    """Return the result of a search without rows; it says whether all files were searched.

    Arguments:
        stopped: why the search stopped early. skipped: note on what cannot be read.
        nothing: text if all files were searched.
    """
    if stopped:
        note = "; ".join(filter(None, (f"{stopped}, nothing there matches", skipped)))
        return make_error_result(f"({note})")
    if skipped:
        return ToolResult(f"(in the files that can be read: {nothing}; {skipped})")
    return ToolResult(f"({nothing})")
