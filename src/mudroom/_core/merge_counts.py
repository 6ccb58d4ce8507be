"""Counts of the merges of a run, and their text."""

from __future__ import annotations

from collections.abc import Iterable

from .merge_events import WorkMerged
from .runs import MergeCounts


def count_merges(events: Iterable[WorkMerged]) -> MergeCounts | None:
    """Return what became of the work in the events, None without changed files.

    Work that came back to its child counts once.
    """
    first_runs: dict[str, str] = {}
    works: dict[str, list[WorkMerged]] = {}
    for event in events:
        first = first_runs.get(event.child, event.child)
        if event.returned:
            first_runs[event.returned] = first
        works.setdefault(first, []).append(event)
    counted = [merges for merges in works.values() if any(map(_has_changes, merges))]
    if not counted:
        return None
    landed = [merges for merges in counted if merges[-1].state == "merged"]
    states = [{event.state for event in merges} for merges in landed]
    return MergeCounts(
        works=len(counted),
        landed=len(landed),
        after_conflict=sum("conflict" in each for each in states),
        after_red=sum("red" in each for each in states),
        unmerged={
            merges[-1].child: merges[-1].state for merges in counted if merges[-1].state != "merged"
        },
        checks=tuple(dict.fromkeys(filter(None, (merges[-1].check for merges in landed)))),
    )


def _has_changes(event: WorkMerged) -> bool:
    return event.state != "merged" or bool(event.files)


def describe_merges(counts: MergeCounts) -> str:
    """Return the counts in words: "6 of 6 landed; 2 after a conflict; make test green"."""
    parts = [f"{counts.landed} of {counts.works} landed"]
    after = {"a conflict": counts.after_conflict, "a red check": counts.after_red}
    if any(after.values()):
        parts.append(", ".join(f"{count} after {what}" for what, count in after.items() if count))
    if counts.checks:
        parts.append(f"{', '.join(counts.checks)} green")
    return "; ".join(parts)
