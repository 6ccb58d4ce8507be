"""The files a search looks at, within a time limit, and those it leaves out.

"No matches" is only true of the files searched, and a model that reads it stops looking. So
everything else below the search's folder is counted and named.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from ..._core.listings import count_noun
from ..._core.ports import FileInfo, SkippedPaths, Workspace
from ..._core.tools import ToolResult
from ...errors import WorkspaceError
from ._text_files import is_folder, make_error_result

_MAX_NAMED_PATHS = 3  # in a note
_MAX_NAME = 200  # characters of a path in a note
_MAX_COUNTED_FILES = 2_000  # in ignored folders: dependencies may have a million
_MAX_COUNT_SECONDS = 0.5
_MAX_LINKS = 1  # to follow on one path: links may lead in circles

PathFilter = Callable[[str], bool]  # takes a path as in `FileInfo`; tells if the search covers it


class SearchScope:
    """The files of a search.

    A folder or file named in the caller's pattern is searched even if git ignores it, and a named
    link is followed; the workspace still refuses links that lead outside.
    """

    def __init__(
        self, workspace: Workspace, deadline: float, *, named: Collection[str] = ()
    ) -> None:
        self.skipped = SkippedPaths()
        self.is_complete = True
        self._workspace = workspace
        self._deadline = deadline
        self._named = named
        self._ignored: list[FileInfo] = []
        self._links: list[str] = []
        self._dead_links: list[str] = []
        self._special: list[str] = []

    def walk(self, start: str) -> Iterator[FileInfo]:
        """Yield the files below a folder until the deadline, or the file itself."""
        if stat.S_ISREG(self._workspace.stat(start).mode):
            yield from self._workspace.walk(start, skipped=self.skipped)
            return
        ignored_before = len(self._ignored)
        is_empty = True
        for info in self._walk_folder(start, 0):
            is_empty = False
            yield info
        if is_empty and start != "." and len(self._ignored) > ignored_before:
            # git ignores the folder or all its contents, but the caller named it.
            del self._ignored[ignored_before:]
            yield from self._walk_folder(start, 0, ignored=True)

    def _walk_folder(self, folder: str, links: int, *, ignored: bool = False) -> Iterator[FileInfo]:
        """Yield the files below a folder reached through `links` links."""
        prefix = 0 if folder == "." else len(folder) + 1
        for info in self._workspace.walk_entries(folder, ignored=ignored, skipped=self.skipped):
            if time.monotonic() > self._deadline:
                self.is_complete = False
                return
            if ".git" in info.path and ".git" in info.path[prefix:].split("/"):
                continue  # git's state, not the user's text
            is_named = os.path.basename(info.path) in self._named
            if info.ignored and not ignored and not is_named:
                self._ignored.append(info)
            elif stat.S_ISREG(info.mode):
                yield info
            elif stat.S_ISLNK(info.mode):
                yield from self._follow(info, links, is_named=is_named)
            elif not stat.S_ISDIR(info.mode):
                self._special.append(info.path)
            elif info.ignored and not ignored:
                yield from self._walk_folder(info.path, links, ignored=True)

    def _follow(self, link: FileInfo, links: int, *, is_named: bool) -> Iterator[FileInfo]:
        path = link.path
        if not is_named or links == _MAX_LINKS:
            self._links.append(path)
            return
        try:
            if stat.S_ISDIR(self._workspace.stat(path).mode):
                yield from self._walk_folder(path, links + 1, ignored=link.ignored)
            else:
                yield from self._workspace.walk(path, skipped=self.skipped)
        except WorkspaceError:
            self._dead_links.append(path)  # leads nowhere, or outside the workspace

    def describe_left_out(self, accepts: PathFilter) -> list[str]:
        """Explain why files that `accepts` takes were not searched."""
        links = [link for link in self._links if accepts(link) or is_folder(self._workspace, link)]
        special = list(filter(accepts, self._special))
        reasons = [
            self._describe_ignored(accepts),
            describe_paths("link", links),
            describe_paths(
                "link that cannot be followed",
                self._dead_links,
                plural="links that cannot be followed",
            ),
            describe_paths("pipe, socket or device", special, plural="pipes, sockets or devices"),
            describe_paths(
                "path that cannot be read", self.skipped, plural="paths that cannot be read"
            ),
            describe_paths(
                "folder that is nested too deep",
                self.skipped.too_deep,
                plural="folders that are nested too deep",
            ),
        ]
        if refused := self.skipped.refused:
            reasons.append(f"{count_noun(refused, 'file')} that may not be read")
        return [reason for reason in reasons if reason]

    def _describe_ignored(self, accepts: PathFilter) -> str:
        """Count the ignored files, up to a limit, so that this is not a second search."""
        deadline = time.monotonic() + _MAX_COUNT_SECONDS
        names: list[str] = []
        count = looked_at = 0
        is_cut = False
        for entry in self._ignored:
            below = 0
            slash = "/" if stat.S_ISDIR(entry.mode) else ""
            for path in self._list_ignored(entry):
                if looked_at == _MAX_COUNTED_FILES or time.monotonic() > deadline:
                    is_cut = True
                    break
                looked_at += 1
                below += accepts(path)
            if below or (is_cut and slash):
                names.append(entry.path + slash)
            count += below
        if is_cut and not count:
            return f"ignored files ({_name_paths(names)})"
        return ("at least " if is_cut else "") + describe_paths("ignored file", names, count=count)

    def _list_ignored(self, entry: FileInfo) -> Iterator[str]:
        if not stat.S_ISDIR(entry.mode):
            yield entry.path
            return
        try:
            for info in self._workspace.walk(entry.path, ignored=True):
                yield info.path
        except WorkspaceError:
            return  # removed meanwhile

    def describe_searched(self, looked_at: int, listed: int) -> str:
        more = "" if self.is_complete else "more than "
        return f"searched {looked_at:,} of {more}{count_noun(listed, 'file')}"


def describe_paths(
    noun: str, paths: Sequence[str], *, plural: str = "", count: int | None = None
) -> str:
    """Name paths with their number, or with `count`: "2 links (a, b)"; "" for none."""
    count = len(paths) if count is None else count
    if not count:
        return ""
    number = f"{count:,} {plural}" if plural and count != 1 else count_noun(count, noun)
    return f"{number} ({_name_paths(paths)})"


def _name_paths(paths: Sequence[str]) -> str:
    names = ", ".join(map(_shorten, paths[:_MAX_NAMED_PATHS]))
    return f"{names}, …" if len(paths) > _MAX_NAMED_PATHS else names


def _shorten(path: str) -> str:
    return path if len(path) <= _MAX_NAME else f"{path[: _MAX_NAME // 2]}…{path[-_MAX_NAME // 2 :]}"


def format_rows(
    rows: Sequence[str], notes: Sequence[str], left_out: Sequence[str], noun: str, *, total: int
) -> ToolResult:
    """Format a search's rows with its notes; `total` counts all matches, shown or not."""
    note = "; ".join(filter(None, (*notes, _join_left_out(left_out))))
    return ToolResult(
        "\n".join([*rows, f"({note})"] if note else rows),
        display=count_noun(total, noun),
        detail={f"{noun}s": total},
    )


def format_no_rows(
    stopped: str, left_out: Sequence[str], nothing: str, *, has_searched: bool = True
) -> ToolResult:
    """Report that there are no rows; `nothing` is the text if all files were searched."""
    unsearched = _join_left_out(left_out)
    if stopped:
        note = "; ".join(filter(None, (f"{stopped}, nothing there matches", unsearched)))
        return make_error_result(f"({note})")
    if not has_searched and unsearched:
        return ToolResult(f"(nothing was searched: {', '.join(left_out)})")
    if unsearched:
        return ToolResult(f"(in the files that were searched: {nothing}; {unsearched})")
    return ToolResult(f"({nothing})")


def _join_left_out(left_out: Sequence[str]) -> str:
    return f"not searched: {', '.join(left_out)}" if left_out else ""
