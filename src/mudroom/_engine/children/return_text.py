"""Text that a child reads when it gets its work back."""

from __future__ import annotations

from ..._core.events import WorkMerged

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
        return _RED.format(check=merged.check)
    conflicts = [line for line in merged.text.splitlines() if line.startswith("- ")]
    return _CONFLICT.format(conflicts="\n".join(conflicts).removesuffix("]"))
