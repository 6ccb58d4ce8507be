"""Work that comes back to a child: what the child reads, and what its report decides.

A report decides on a file in conflict with a line such as `resolved: mine src/config.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..._core.agents import FileConflict
from ..._core.events import WorkMerged
from ..._core.listings import count_noun
from ..._projections.engine_text import format_value, quote
from ..._projections.safe_text import sanitize_line

_MAX_LISTED = 20  # conflicts named to the child

_CONFLICT = """\
[From mudroom, not from the user.] Your work is not merged. Since you began, the files of your \
parent have changed, and your changes conflict with them:
{conflicts}
Your folder has the present files of your parent with your changes now. Where both changed the \
same lines, a file has both versions between conflict marks. Resolve each conflict: change the \
file and remove the marks, or end your report with a line for each file that you leave as it is:
{sides}
Nothing of your work is merged while a conflict is open. Check that the whole works. Then report \
again: your parent reads only this report."""

_RED = """\
[From mudroom, not from the user.] Your work is not merged. A check of the present files of your \
parent with your changes failed:
{check}
Your folder has these files now. Find the cause, repair it, and run the check. Then report again: \
your parent reads only this report."""

_VERSIONS = {
    "parent": "your folder has the parent's version",
    "child": "your folder has your version",
    "both": "your folder has both versions between conflict marks",
    "": "your folder has no such file",
}


def make_return_prompt(merged: WorkMerged) -> str:
    if merged.state == "red":
        return _RED.format(check=quote(merged.check))
    lines = [_describe(merged, conflict) for conflict in merged.open_conflicts[:_MAX_LISTED]]
    if len(merged.open_conflicts) > _MAX_LISTED:
        lines.append(f"- and {len(merged.open_conflicts) - _MAX_LISTED} more")
    sides = [f"resolved: {side} PATH ({meaning})" for side, meaning in SIDES.items()]
    return _CONFLICT.format(conflicts="\n".join(lines), sides="\n".join(sides))


def _describe(merged: WorkMerged, conflict: FileConflict) -> str:
    """Describe a conflict in a line, with its sides' paths if the text has them."""
    start = f"- {format_value(conflict.path)} ({conflict.kind})"
    lines = (line for line in merged.text.splitlines() if line.startswith(start))
    line = next(lines, start).removesuffix("]")
    return f"{line}; {_VERSIONS[conflict.version]}"


SIDES = {
    "mine": "your version",
    "theirs": "the version of your parent",
    "new": "the file as your folder has it now",
}
"""The decisions, as the child reads them."""

_START = "resolved:"
_DECORATION = "-*•`'\"> \t"  # what models put around a line or a path to format a report

_MAX_NOTES = 10
_MAX_LINE = 200
"""Characters shown of a line that decides nothing."""


class Resolutions(Struct, frozen=True):
    """The decisions in a report."""

    sides: dict[str, str] = {}  # "mine", "theirs" or "new" by path of an open conflict
    notes: tuple[str, ...] = ()  # why other lines decide nothing


def read_resolutions(
    text: str, began_with: Sequence[FileConflict], still_open: Sequence[FileConflict]
) -> Resolutions:
    """Read what a child's report decides about its conflicts.

    Files in `still_open` have not changed since the run began.
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
    """Tell the parent's model why lines of a report decide nothing; "" if all do."""
    if not resolutions.notes:
        return ""
    notes = list(resolutions.notes[:_MAX_NOTES])
    if more := len(resolutions.notes) - len(notes):
        notes.append(f"and {count_noun(more, 'more line')}")
    return "\n".join(["[resolutions without effect:", *(f"- {note}" for note in notes)]) + "]"


def _show(line: str) -> str:
    return quote(sanitize_line(line.strip(), _MAX_LINE))
