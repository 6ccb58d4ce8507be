"""Names of child runs in lines about them, at the prompt and in `mudroom -p` progress."""

from __future__ import annotations

from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunView, format_name
from ..._projections.safe_text import sanitize_line
from .text import Glyphs, truncate


def make_child_name(tree: RunTree, run_id: str, columns: int, glyphs: Glyphs) -> str:
    """Make a name no other working child has: "general (count the lines)", or "alice".

    Working children with the same agent and title are distinguished by run id, "general#1.1.2",
    which may be wider than `columns`.
    """
    run = tree.runs[run_id]
    name = _make_name(run, columns, glyphs)
    others = (
        each for each in tree.runs.values() if each.parent and not each.report and each is not run
    )
    if not run.name and any(_make_name(each, columns, glyphs) == name for each in others):
        return run.label
    return name


def _make_name(run: RunView, columns: int, glyphs: Glyphs) -> str:
    if run.name:
        return truncate(format_name(run.name), columns, glyphs.more)
    title = sanitize_line(run.title)
    room = columns - len(run.short_label) - len(" ()")
    if not title or room <= len(glyphs.more):
        return run.label
    return f"{run.short_label} ({truncate(title, room, glyphs.more)})"
