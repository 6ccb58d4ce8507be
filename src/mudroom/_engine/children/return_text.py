"""Text that a child reads when it gets its work back."""

from __future__ import annotations

from ..._core.events import WorkMerged
from ..._core.file_conflicts import FileConflict
from ..._projections.engine_text import format_value, quote
from .resolutions import SIDES

_MAX_LISTED = 20
"""Conflicts that the child reads by name."""

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
    """Return the prompt of the run with which a child gets its work back."""
    if merged.state == "red":
        return _RED.format(check=quote(merged.check))
    lines = [_describe(merged, conflict) for conflict in merged.open_conflicts[:_MAX_LISTED]]
    if len(merged.open_conflicts) > _MAX_LISTED:
        lines.append(f"- and {len(merged.open_conflicts) - _MAX_LISTED} more")
    sides = [f"resolved: {side} PATH ({meaning})" for side, meaning in SIDES.items()]
    return _CONFLICT.format(conflicts="\n".join(lines), sides="\n".join(sides))


def _describe(merged: WorkMerged, conflict: FileConflict) -> str:
    """Return a conflict as a line, with the paths of its sides if the text has them."""
    start = f"- {format_value(conflict.path)} ({conflict.kind})"
    lines = (line for line in merged.text.splitlines() if line.startswith(start))
    line = next(lines, start).removesuffix("]")
    return f"{line}; {_VERSIONS[conflict.version]}"
