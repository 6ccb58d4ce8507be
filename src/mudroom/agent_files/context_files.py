"""Context files: what AGENTS.md, CLAUDE.md and GEMINI.md of a project and a person say, from the outermost folder to the nearest."""

from __future__ import annotations

import os
import re
from bisect import bisect
from collections.abc import Iterator

from msgspec import Struct

from .diagnostics import Diagnostic, FileDiagnostics
from .locations import project_folders
from .safe_read import is_beneath, read_text

MAX_TOTAL_BYTES = 32 << 10
"""Bytes of all context files together."""
MAX_IMPORT_DEPTH = 5
"""Files that import one another, one below the other."""
MAX_IMPORTS_TRIED = 1_000
"""Words that look like imports and are looked for, in one file and those it imports."""

_IMPORT = re.compile(r"(?<![\w`@/.])@([^\s`'\"<>]+)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_TICKS = re.compile(r"`+")


class ContextFile(Struct, frozen=True):
    """One file of the chain, its imports in place.

    Arguments:
        path: absolute. text: as a model reads it. personal: it is in the person's home. cut: bytes that had no room.
    """

    path: str
    text: str
    is_personal: bool = False
    omitted_bytes: int = 0


class ContextFiles(Struct, frozen=True):
    """The chain, outermost first, and what was found wrong with it."""

    files: tuple[ContextFile, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    def to_prompt(self, *, include_personal: bool = True) -> str:
        """All of it for a system prompt; "" if there is nothing. `personal`: with the person's own files, too."""
        shown = [_shown(file) for file in self.files if include_personal or not file.is_personal]
        return (
            "\n".join(
                [
                    "Instructions from files of this project and its people; the later ones go first:",
                    *shown,
                ]
            )
            if shown
            else ""
        )


def load_context_files(folder: str, *, home: str, max_bytes: int = MAX_TOTAL_BYTES) -> ContextFiles:
    """The context files that hold in a folder.

    Arguments:
        folder: the project's. home: the person's; "" leaves it out. budget: bytes of all together; the farthest go without first.
    """
    files: list[ContextFile] = []
    findings: list[Diagnostic] = []
    seen, said = set[str](), set[str]()
    for path, within, personal in _chained(folder, home):
        notes = FileDiagnostics(path)
        text = _whole(path, within, os.path.realpath(home) if personal else "", notes, seen)
        findings += notes.items
        if text and text not in said:
            said.add(text)
            files.append(ContextFile(path, text, personal))
    kept = _within(files, max_bytes)
    findings += [_trimmed(file, max_bytes) for file in kept if file.omitted_bytes]
    return ContextFiles(tuple(kept), tuple(findings))


def _chained(folder: str, home: str) -> Iterator[tuple[str, str, bool]]:
    """Path, the folder that imports may not leave, and whether it is the person's; outermost first."""
    for name in (".agents/AGENTS.md", ".claude/CLAUDE.md") if home else ():
        path = os.path.join(home, name)
        if os.path.lexists(path):
            yield path, os.path.dirname(os.path.realpath(path)), True
    project = project_folders(folder)
    for at in reversed(project):
        both = [
            _first(at, "AGENTS.override.md", "AGENTS.md"),
            _first(at, "CLAUDE.md", ".claude/CLAUDE.md"),
            _first(at, "CLAUDE.local.md"),
        ]
        for path in both if any(both) else [_first(at, "GEMINI.md")]:
            if path and not (
                home
                and os.path.realpath(at) == os.path.realpath(home)
                and path.endswith(".claude/CLAUDE.md")
            ):
                yield path, project[-1], False


def _first(folder: str, *names: str) -> str:
    return next((path for name in names if os.path.lexists(path := os.path.join(folder, name))), "")


def _whole(path: str, within: str, home: str, notes: FileDiagnostics, seen: set[str]) -> str:
    """The file with its imports in place; "" for one that was there before."""
    real = os.path.realpath(path)
    if real in seen:
        return ""
    seen.add(real)
    text = read_text(path, within, notes)
    return (
        "" if text is None else _imported(text, real, _Bounds(within, home, notes, seen), 1).strip()
    )


class _Bounds(Struct):
    within: str
    home: str
    notes: FileDiagnostics
    seen: set[str]
    left: int = MAX_IMPORTS_TRIED


def _imported(text: str, path: str, bounds: _Bounds, depth: int) -> str:
    """The text with each `@path` outside code replaced by that file's text."""
    lines, fence = list[str](), ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        elif not fence and "@" in line:
            line = _line(line, number, path, bounds, depth)
        lines.append(line)
    return "\n".join(lines)


def _line(line: str, number: int, path: str, bounds: _Bounds, depth: int) -> str:
    code = _code(line)

    def put(found: re.Match[str]) -> str:
        if bisect(code, found.start()) % 2 or not bounds.left:
            return found[0]
        bounds.left -= 1
        return _import(found, number, path, bounds, depth)

    return _IMPORT.sub(put, line)


def _code(line: str) -> list[int]:
    """Where code spans begin and end, in turn: a run of backticks up to the next one as long. Linear, whatever the line."""
    ticks = list(_TICKS.finditer(line))
    closing: dict[int, int] = {}
    latest: dict[int, int] = {}
    for at in range(len(ticks) - 1, -1, -1):
        length = len(ticks[at][0])
        closing[at] = latest.get(length, -1)
        latest[length] = at
    places, at = list[int](), 0
    while at < len(ticks):
        if (end := closing[at]) >= 0:
            places += (ticks[at].start(), ticks[end].end())
            at = end
        at += 1
    return places


def _import(found: re.Match[str], number: int, path: str, bounds: _Bounds, depth: int) -> str:
    name = found[1].rstrip(".,;:!?)")
    rest = found[1][len(name) :]
    target = (
        os.path.join(bounds.home, name[2:])
        if name.startswith("~/") and bounds.home
        else os.path.join(os.path.dirname(path), name)
    )
    notes = FileDiagnostics(path)
    real = os.path.realpath(target) if "\0" not in target else ""
    if not is_beneath(real, bounds.within):
        if name.endswith(".md") or os.path.isfile(real):
            bounds.notes.items.append(
                _remark(path, number, f"@{name} is outside {bounds.within}, so it is not read")
            )
        return found[0]
    if not os.path.isfile(real):
        if name.endswith(".md"):
            bounds.notes.items.append(_remark(path, number, f"@{name} is not there"))
        return found[0]
    if depth >= MAX_IMPORT_DEPTH:
        bounds.notes.items.append(
            _remark(
                path,
                number,
                f"@{name} is the {depth + 1}th file in a row; {MAX_IMPORT_DEPTH} are read",
            )
        )
        return found[0]
    if real in bounds.seen:
        return rest
    bounds.seen.add(real)
    text = read_text(real, bounds.within, notes)
    bounds.notes.items += notes.items
    return found[0] if text is None else _imported(text, real, bounds, depth + 1).strip() + rest


def _remark(path: str, line: int, text: str) -> Diagnostic:
    notes = FileDiagnostics(path)
    notes.add_warning(line, text)
    return notes.items[0]


def _within(files: list[ContextFile], budget: int) -> list[ContextFile]:
    """The files cut to the budget: the nearest have room first, and keep their beginnings."""
    kept: list[ContextFile] = []
    for file in reversed(files):
        data = file.text.encode("utf-8", "replace")
        room = max(0, budget)
        budget -= len(data)
        if len(data) > room:
            text = data[:room].decode("utf-8", "ignore")
            file = ContextFile(file.path, text, file.is_personal, len(data) - room)
        kept.append(file)
    return kept[::-1]


def _trimmed(file: ContextFile, budget: int) -> Diagnostic:
    size = len(file.text.encode()) + file.omitted_bytes
    return _remark(
        file.path,
        1,
        f"{file.omitted_bytes:,} of its {size:,} bytes are left out: all context files together have {budget:,}",
    )


def _shown(file: ContextFile) -> str:
    cut = (
        f"\n[… {file.omitted_bytes:,} bytes left out: too much for all context files together; read the file if it matters]"
        if file.omitted_bytes
        else ""
    )
    return f'<file path="{file.path}">\n{file.text}{cut}\n</file>'
