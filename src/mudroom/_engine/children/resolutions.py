"""Decisions about files in conflict that a child names in its report, one on each line:

resolved: mine src/config.py
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..._core.file_conflicts import FileConflict
from ..._core.listings import count_noun
from ..._projections.engine_text import format_value, quote
from ..._projections.safe_text import sanitize_line

SIDES = {
    "mine": "your version",
    "theirs": "the version of your parent",
    "new": "the file as your folder has it now",
}
"""The decisions, as the child reads them."""

_START = "resolved:"
_DECORATION = "-*•`'\"> \t"
"""Characters around a line or a path that a model adds to format its report."""

_MAX_NOTES = 10
_MAX_LINE = 200
"""Lines that decide nothing which the parent reads, and characters of each."""


class Resolutions(Struct, frozen=True):
    """What a report decides.

    Arguments:
        sides: "mine", "theirs" or "new" by path of an open conflict.
        notes: why other lines decide nothing.
    """

    sides: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def read_resolutions(
    text: str, began_with: Sequence[FileConflict], still_open: Sequence[FileConflict]
) -> Resolutions:
    """Return what the report of a child decides about its conflicts.

    Arguments:
        began_with: the conflicts with which the run began.
        still_open: those among them whose files it has not changed.
    """
    if not began_with:
        return Resolutions()
    opened = {path: each for each in still_open for path in each.paths}
    known = {path for each in began_with for path in each.paths}
    decisions: dict[FileConflict, dict[str, str]] = {}
    notes: list[str] = []
    for line in text.splitlines():
        decision = line.strip(_DECORATION)
        if not decision.casefold().startswith(_START):
            continue
        side, _, name = decision[len(_START) :].strip(_DECORATION).partition(" ")
        side = side.strip(_DECORATION).casefold()
        path = name.strip(_DECORATION)
        if side not in SIDES:
            notes.append(f"{_show(line)}: say mine, theirs or new, then the path")
        elif path in opened:
            decisions.setdefault(opened[path], {})[side] = path
        elif path not in known:
            notes.append(f"{_show(line)}: no file in conflict has this path")
        elif side != "new":
            notes.append(f"{format_value(path)}: the child changed it, so the changed file counts")
    sides: dict[str, str] = {}
    for conflict, named in decisions.items():
        if len(named) == 1:
            sides |= {path: side for side, path in named.items()}
        else:
            paths = ", ".join(map(format_value, conflict.paths))
            notes.append(f"{paths}: decided as {' and '.join(named)}; decide once for one conflict")
    return Resolutions(sides, tuple(notes))


def describe_notes(resolutions: Resolutions) -> str:
    """Return why lines of a report decide nothing, as the parent's model reads it; "" if none."""
    if not resolutions.notes:
        return ""
    notes = list(resolutions.notes[:_MAX_NOTES])
    if more := len(resolutions.notes) - len(notes):
        notes.append(f"and {count_noun(more, 'more line')}")
    return "\n".join(["[resolutions without effect:", *(f"- {note}" for note in notes)]) + "]"


def _show(line: str) -> str:
    return quote(sanitize_line(line.strip(), _MAX_LINE))
