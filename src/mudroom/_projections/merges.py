"""Merges in words: what became of a child's changes in an isolated workspace."""

from __future__ import annotations

from .._core.listings import count_noun
from .run_view import RunView


def describe_merge(run: RunView) -> str:
    """Say what became of a run's work: "merged 2 files", "conflict in 1 file", "checking".

    "" for a run that shared its parent's files, or whose merge has not ended.
    """
    if run.is_checking:
        return "checking"
    work = run.report.work if run.report else None
    if work is None or run.merge is None:
        return ""
    if run.merge.state == "merged":
        files = len(run.merge.files)
        return f"merged {count_noun(files, 'file')}" if files else "no changes"
    if run.merge.state == "conflict":
        text = f"conflict in {count_noun(len(run.merge.conflicts), 'file')}"
        return f"{text}, back to the child" if run.merge.returned else text
    if run.merge.state == "red":
        return "check failed"
    if run.merge.state == "dropped":
        return "dropped"
    return f"{count_noun(len(work.files), 'file')} not merged"
