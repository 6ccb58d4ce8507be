"""Reading what tools return: the gutter of `read`, the lists of `glob` and `grep`; and reading files whole, page by page."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable

from msgspec import Struct

from .plan import Ask, Outcome, call

Steps = Generator[list[Ask], list[Outcome], dict[str, "File"]]

_GUTTER = re.compile(r"^\s*(\d+)\t(.*)$")
_MORE = re.compile(r"offset|more lines|truncat|cut|still|continue", re.I)
_AT_ONCE = 20
_PAGES = 12
_LISTED_MOST = 100

_FOREIGN_TREES_WORDS = (
    "node_modules bower_components vendor vendored _vendor third_party thirdparty third-party extern external deps subprojects "
    "site-packages .venv venv .git .tox .nox fixtures __fixtures__ fixture testdata test-data test_data templates template "
    "examples example samples sample demo demos corpus dist target Pods"
)
_FOREIGN_TREES = frozenset(_FOREIGN_TREES_WORDS.split())


class File(Struct):
    """A file as read so far: its lines by number, and whether lines are missing at the end or in the middle."""

    path: str
    lines: dict[int, str]
    error: str = ""
    more: bool = False

    @property
    def text(self) -> str:
        """The lines known, in order."""
        return "\n".join(self.lines[n] for n in sorted(self.lines))

    def take(self, outcome: Outcome) -> None:
        """Add a page."""
        known = len(self.lines)
        rows = outcome.text.split("\n")
        matches = [_GUTTER.match(row) for row in rows]
        self.lines.update({int(m[1]): m[2] for m in matches if m})
        notices = [row for row, m in zip(rows, matches, strict=True) if not m and row.strip()]
        if outcome.error and not known:
            self.error = outcome.text.strip().split("\n")[0]
        grew = len(self.lines) > known
        self.more = grew and (bool(self.gap()) or any(_MORE.search(n) for n in notices))

    def gap(self) -> int:
        """The first line that is missing before the last one known; 0 when there is none."""
        if not self.lines or len(self.lines) == max(self.lines):
            return 0
        return next(n for n in range(1, max(self.lines)) if n not in self.lines)

    def next_offset(self) -> int:
        """Where the next page begins."""
        return self.gap() or max(self.lines, default=0) + 1


def read_all(paths: Iterable[str]) -> Steps:
    """Read files whole, several at a time, long ones page by page. What was read comes back even if the plan is cut short."""
    files = {path: File(path, {}) for path in paths}
    waiting = list(files)
    while waiting:
        batch, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        pages = 0
        while batch and pages < _PAGES:
            outcomes = yield [
                call("read", file_path=p, offset=files[p].next_offset() if pages else None)
                for p in batch
            ]
            for path, outcome in zip(batch, outcomes, strict=True):
                files[path].take(outcome)
            batch = [path for path in batch if files[path].more]
            pages += 1
    return files


def paths(outcome: Outcome) -> list[str]:
    """The paths of a `glob` or of a `grep` that lists files."""
    if outcome.error:
        return []
    rows = (row.strip() for row in outcome.text.split("\n"))
    return [row.removeprefix("./") for row in rows if row and not _is_notice(row)]


def _is_notice(row: str) -> bool:
    return row[0] in "[(<…" or bool(
        re.match(r"(?i)(no (files?|match|result)|found \d+|not found|showing |\.\.\. )", row)
    )


def truncated(outcome: Outcome) -> bool:
    """Whether a list says that it is not whole."""
    rows = [row.strip() for row in outcome.text.split("\n") if row.strip()]
    return len(paths(outcome)) >= _LISTED_MOST or any(
        row[0] in "[(…" and re.search(r"(?i)trunc|more|first|limit|cut|omitted", row)
        for row in rows
    )


def own(path: str, scope: str = "") -> bool:
    """Whether a path is the project's own: not vendored, not a fixture, not an example."""
    inside = path[len(scope) :] if scope else path
    return not any(part in _FOREIGN_TREES for part in inside.split("/")[:-1])


def listing(pattern: str, scope: str = "") -> Generator[list[Ask], list[Outcome], list[str]]:
    """All files that match a glob, sorted: `glob` lists the newest hundred; when there are more, `grep` lists the rest."""
    base = scope.rstrip("/") or None
    first = (yield [call("glob", pattern=pattern, path=base)])[0]
    found = set(paths(first))
    if truncated(first):
        name = pattern.removeprefix("**/")
        more = (
            yield [
                call(
                    "grep",
                    pattern=".",
                    path=base,
                    glob=name,
                    output_mode="files_with_matches",
                    head_limit=20_000,
                )
            ]
        )[0]
        found |= set(paths(more))
    return sorted(found, key=lambda p: (p.count("/") > 0, p.rpartition("/")[0], p))


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
        for row in rows
    ]
    return "\n".join(lines)


def rows_of(text: str, columns: int) -> list[list[str]]:
    """The rows of the tables in a report, without their heads."""
    found: list[list[str]] = []
    above = ""
    for line in text.split("\n"):
        cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if len(cells) == columns and line.startswith("|"):
            if set("".join(cells)) <= set("-: "):
                found = found[:-1] if above else found
            else:
                found.append(cells)
        above = line
    return found
