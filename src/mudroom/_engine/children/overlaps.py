"""Files that the work of a child and that of other children of the same parent changed."""

from __future__ import annotations

from collections.abc import Sequence

from ..._core.merge_events import Overlap
from ..._core.ports import MergeConflict
from ..._core.run_ids import find_first_id
from ..._core.runs import Work
from ..run_context import RunContext

_MAX_CHILDREN = 8
"""Children whose changes are compared with those of one child: the last ones."""

_MAX_LISTED = 20
"""Overlaps that the model reads."""


def list_overlaps(
    run: RunContext, child: str, work: Work, conflicts: Sequence[MergeConflict]
) -> tuple[Overlap, ...]:
    """Return the files that a child and an earlier one changed. The function blocks.

    Arguments:
        child: id of the run. work: its work.
        conflicts: what could not be merged.
    """
    isolation = run.environment.isolation
    if isolation is None:
        return ()
    paths = set(work.files)
    others: dict[str, Work] = {}
    latest = {find_first_id(run_id): run_id for run_id in run.evidence.list_merged()}
    latest.pop(find_first_id(child), None)
    for run_id in latest.values():
        other = isolation.find_work(run_id)
        if other and not paths.isdisjoint(other.files):
            others[run_id] = other
    if not others:
        return ()
    works = {run_id: others[run_id] for run_id in list(others)[-_MAX_CHILDREN:]}
    kinds = {conflict.path: conflict.kind for conflict in conflicts}
    found = isolation.list_overlaps({**works, child: work}, kinds)
    return tuple(overlap for overlap in found if child in overlap.runs)


def describe_overlaps(run: RunContext, overlaps: Sequence[Overlap]) -> str:
    """Return the overlaps as the parent's model reads them; "" if there are none."""
    if not overlaps:
        return ""
    briefs = {
        run_id: run.services.teams.find_brief(run_id)
        for overlap in overlaps
        for run_id in overlap.runs
    }
    names = {run_id: brief.name for run_id, brief in briefs.items() if brief and brief.name}
    lines = [f"- {overlap.describe(names)}" for overlap in overlaps[:_MAX_LISTED]]
    if len(overlaps) > _MAX_LISTED:
        lines.append(f"- and {len(overlaps) - _MAX_LISTED} more")
    return "\n".join(["[overlap: other children changed these files, too.", *lines]) + "]"
