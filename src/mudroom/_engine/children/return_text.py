"""Text that a child reads when it gets its work back."""

from __future__ import annotations

from ..._core.events import WorkMerged
from ...projections.engine_text import format_value, quote

_MAX_LISTED = 20
"""Conflicts that the child reads by name."""

_CONFLICT = """\
[From mudroom, not from the user.] Your work is not merged. Since you began, the files of your \
parent have changed, and your changes conflict with them:
{conflicts}
Your folder has the present files of your parent with your changes now. Where both changed the \
same lines, a file has both versions between conflict marks; of any other file in conflict it has \
one version. Resolve each conflict, remove the marks, and check that the whole works. Then report \
again: your parent reads only this report."""

_RED = """\
[From mudroom, not from the user.] Your work is not merged. A check of the present files of your \
parent with your changes failed:
{check}
Your folder has these files now. Find the cause, repair it, and run the check. Then report again: \
your parent reads only this report."""


def make_return_prompt(merged: WorkMerged) -> str:
    """Return the prompt of the run with which a child gets its work back."""
    if merged.state == "red":
        return _RED.format(check=quote(merged.check))
    lines = [_describe(merged, path, kind) for path, kind in merged.conflicts[:_MAX_LISTED]]
    if len(merged.conflicts) > _MAX_LISTED:
        lines.append(f"- and {len(merged.conflicts) - _MAX_LISTED} more")
    return _CONFLICT.format(conflicts="\n".join(lines))


def _describe(merged: WorkMerged, path: str, kind: str) -> str:
    """Return a conflict as a line, with the paths of its sides if the text has them."""
    start = f"- {format_value(path)} ({kind})"
    lines = (line for line in merged.text.splitlines() if line.startswith(start))
    return next(lines, start).removesuffix("]")
