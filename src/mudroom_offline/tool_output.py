"""Parsers for what tools return.

Numbered lines of `read`, lists of `glob` and `grep`; Markdown tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from .catalog import words
from .plans import CallOutput, Steps, plan_call

_NUMBERED = re.compile(r"^\s*(\d+)\t(.*)$")
_IS_CUT = re.compile(r"(?i)offset|more|truncat|cut|first|limit|omitted|continue")
_NOTICE = re.compile(r"(?i)[\[(<…]|(no (files?|match|result)|found \d+|not found|showing )")
_FILES_PER_TURN = 20
_MAX_PAGES = 12
_GLOB_LIMIT = 100
_FOREIGN_FOLDERS = frozenset(words("foreign_folders"))


class FileText(Struct):
    """A file as read so far. `lines` is by line number; `has_more` says that lines are missing."""

    path: str
    lines: dict[int, str]
    error: str = ""
    has_more: bool = False

    @property
    def text(self) -> str:
        """The known lines, in order."""
        return "\n".join(self.lines[number] for number in sorted(self.lines))

    def add_page(self, output: CallOutput) -> None:
        """Add the lines of one `read` result."""
        before = len(self.lines)
        notices: list[str] = []
        for row in output.text.split("\n"):
            if match := _NUMBERED.match(row):
                self.lines[int(match[1])] = match[2]
            elif row.strip():
                notices.append(row)
        if output.is_error and not before:
            self.error = output.text.strip().split("\n")[0]
        grew = len(self.lines) > before
        self.has_more = grew and (
            self.next_line() <= max(self.lines) or any(map(_IS_CUT.search, notices))
        )

    def next_line(self) -> int:
        """Return the number of the first line that is missing."""
        return next(n for n in range(1, len(self.lines) + 2) if n not in self.lines)


def read_files(
    paths: Iterable[str],
) -> Steps[dict[str, FileText]]:
    """Read whole files, several per turn, long ones page by page."""
    files = {path: FileText(path, {}) for path in paths}
    waiting = list(files)
    while waiting:
        batch = waiting[:_FILES_PER_TURN]
        waiting = waiting[_FILES_PER_TURN:]
        for page in range(_MAX_PAGES):
            outputs = yield [
                plan_call("read", file_path=p, offset=files[p].next_line() if page else None)
                for p in batch
            ]
            for path, output in zip(batch, outputs, strict=True):
                files[path].add_page(output)
            batch = [path for path in batch if files[path].has_more]
            if not batch:
                break
    return files


def parse_paths(output: CallOutput) -> list[str]:
    """Return the paths in a result of `glob`, or of `grep` that lists files."""
    if output.is_error:
        return []
    rows = [row.strip() for row in output.text.split("\n")]
    return [row.removeprefix("./") for row in rows if row and not _NOTICE.match(row)]


def is_cut(output: CallOutput) -> bool:
    """Return True when a list says that it is not complete."""
    if len(parse_paths(output)) >= _GLOB_LIMIT:
        return True
    rows = [row.strip() for row in output.text.split("\n") if row.strip()]
    return any(row[0] in "[(…" and _IS_CUT.search(row) for row in rows)


def is_own_file(path: str, scope: str = "") -> bool:
    """Return True when a path below the scope is not vendored, a fixture or an example."""
    inside = path.removeprefix(scope)
    return not any(part in _FOREIGN_FOLDERS for part in inside.split("/")[:-1])


def list_files(pattern: str, scope: str = "") -> Steps[list[str]]:
    """Return all files that match a glob, sorted by folder.

    `grep` lists them when `glob` is cut.
    """
    folder = scope.rstrip("/") or None
    output = (yield [plan_call("glob", pattern=pattern, path=folder)])[0]
    paths = set(parse_paths(output))
    if is_cut(output):
        listing = plan_call(
            "grep",
            pattern=".",
            path=folder,
            glob=pattern.removeprefix("**/"),
            output_mode="files_with_matches",
            head_limit=20_000,
        )
        paths |= set(parse_paths((yield [listing])[0]))
    return sorted(paths, key=lambda path: ("/" in path, path.rpartition("/")[0], path))


def format_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse_table(text: str, columns: int) -> list[tuple[str, ...]]:
    """Return the rows of all tables with this number of columns, without their heads."""
    rows: list[tuple[str, ...]] = []
    for line in text.split("\n"):
        if not line.startswith("|"):
            continue
        cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) != columns:
            continue
        if set("".join(cells)) <= set("-: "):
            rows = rows[:-1]
        else:
            rows.append(tuple(cells))
    return rows
