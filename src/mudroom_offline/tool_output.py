"""Files as the tools return them: numbered lines of `read`, lists of `glob` and `grep`; tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from .catalog import words
from .plans import CallOutput, Request, Steps, plan_call

LIST_LIMIT = 100
"""Paths that `glob` returns at most."""

_NUMBERED = re.compile(r"^\s*(\d+)\t(.*)$")
_IS_CUT = re.compile(r"(?i)offset|more|truncat|cut|first|limit|omitted|continue")
_FILES_PER_TURN = 20
_MAX_PAGES = 12
_FOREIGN_FOLDERS = frozenset(words("foreign_folders"))


class FileText(Struct):
    """A file as read so far. `lines` is by line number; `problem` says why not all is here."""

    path: str
    lines: dict[int, str]
    problem: str = ""

    @property
    def text(self) -> str:
        """The known lines, in order."""
        return "\n".join(self.lines[number] for number in sorted(self.lines))

    def add_page(self, output: CallOutput) -> bool:
        """Add the lines of one `read` result. Return True when there are more."""
        before = len(self.lines)
        notices: list[str] = []
        for row in output.text.split("\n"):
            if match := _NUMBERED.match(row):
                self.lines[int(match[1])] = match[2]
            elif row.strip():
                notices.append(row.strip())
        if output.is_error and not before:
            self.problem = notices[0] if notices else "error"
        return len(self.lines) > before and any(map(_IS_CUT.search, notices))


class Listing(Struct):
    """The rows of a result of `glob` or `grep`; `problem` says why some are missing."""

    rows: list[str]
    problem: str = ""


def read_files(paths: Iterable[str]) -> Steps[dict[str, FileText]]:
    """Read whole files, several per turn, long ones page by page."""
    files = {path: FileText(path, {}) for path in paths}
    waiting = list(files)
    for start in range(0, len(waiting), _FILES_PER_TURN):
        batch = waiting[start : start + _FILES_PER_TURN]
        for page in range(_MAX_PAGES):
            outputs = yield [
                plan_call("read", file_path=p, offset=max(files[p].lines) + 1 if page else None)
                for p in batch
            ]
            results = zip(batch, outputs, strict=True)
            batch = [path for path, output in results if files[path].add_page(output)]
            if not batch:
                break
        for path in batch:
            files[path].problem = "too long to be read whole"
    return files


def parse_listing(output: CallOutput) -> Listing:
    """Return the rows of a list without the note in parentheses that may stand at its end."""
    rows = [row.strip().removeprefix("./") for row in output.text.split("\n") if row.strip()]
    if output.is_error:
        return Listing([], rows[0] if rows else "error")
    if rows and rows[-1].startswith("(") and rows[-1].endswith(")"):
        note = rows.pop().strip("()")
        return Listing(rows, "" if note.startswith("no ") else note)
    return Listing(rows)


def is_own_file(path: str, scope: str = "") -> bool:
    """Return True when a path below the scope is not vendored, a fixture or an example."""
    inside = path.removeprefix(scope)
    return not any(part in _FOREIGN_FOLDERS for part in inside.split("/")[:-1])


def list_files(request: Request, patterns: list[str], *, own_only: bool) -> Steps[Listing]:
    """List the files that match a glob in the folder of the request, sorted by folder.

    `grep` lists text files that are not empty when `glob` returns only a part.
    """
    path = request.folder
    outputs = yield [plan_call("glob", pattern=pattern, path=path) for pattern in patterns]
    listings = [parse_listing(output) for output in outputs]
    rows = {row for listing in listings for row in listing.rows}
    if any(listing.problem for listing in listings):
        outputs = yield [
            plan_call("grep", pattern="^", glob=pattern, path=path, head_limit=20_000)
            for pattern in patterns
        ]
        listings = [parse_listing(output) for output in outputs]
        rows.update(row for listing in listings for row in listing.rows)
    paths = [
        p for p in keep_covered(request, rows) if not own_only or is_own_file(p, request.scope)
    ]
    paths.sort(key=lambda path: ("/" in path, path.rpartition("/")[0], path))
    return Listing(paths, "; ".join({x.problem: "" for x in listings if x.problem}))


def keep_covered(request: Request, paths: Iterable[str]) -> list[str]:
    """Return the paths that are not in a folder the request leaves out."""
    return [path for path in paths if not path.startswith(request.excluded)]


def format_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
