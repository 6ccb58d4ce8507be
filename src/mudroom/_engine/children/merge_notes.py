"""What a parent reads about merged files: overlaps between children, and work only in git."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..._core.ports import FileTrees, MergeConflict
from ..._core.runs import GitWork, Overlap, Work, find_first_id
from ..._projections.engine_text import format_value
from ..run_context import RunContext

_MAX_NAMED = 5  # commits, staged files and git folders named to the model


def collect_git_work(run: RunContext, run_id: str, work: Work) -> dict[str, GitWork]:
    """Collect a child's git work by run id, including that of runs whose work came back. Blocks."""
    trees: FileTrees | None = run.environment.trees
    legs = run.evidence.list_earlier_legs(run_id) if trees else []
    found = {leg: trees.find_work(leg) for leg in legs} if trees else {}
    works = {**dict(reversed(found.items())), run_id: work}
    return {name: each.git for name, each in works.items() if each and each.git}


def describe_git_work(session: str, works: dict[str, GitWork]) -> Iterator[str]:
    """Describe work that is only in git, with the command that recovers it."""
    for run_id, work in works.items():
        command = f"The user gets them with `mudroom workspaces git {session[:8]}/{run_id}`."
        if work.only:
            yield f"[only in the child's git, so not merged: {_list(work.only)}. {command}]"
        if work.commits:
            yield f"[commits of the child, kept beside its files: {_list(work.commits)}. {command}]"
        if work.unread:
            yield (
                f"[not read of the child's git, so not merged: {_list(work.unread)}. Its folder "
                f"stays at {format_value(work.folder)}.]"
            )


def _list(names: tuple[str, ...]) -> str:
    listed = ", ".join(map(format_value, names[:_MAX_NAMED]))
    more = len(names) - _MAX_NAMED
    return f"{listed} and {more} more" if more > 0 else listed


_MAX_CHILDREN = 8  # the last ones, whose changes a child's are compared with
_MAX_LISTED = 20  # overlaps shown to the model


def list_overlaps(
    run: RunContext, child: str, work: Work, conflicts: Sequence[MergeConflict]
) -> tuple[Overlap, ...]:
    """List the files that both a child and an earlier one changed. Blocks."""
    trees = run.environment.trees
    if trees is None:
        return ()
    paths = set(work.files)
    others: dict[str, Work] = {}
    latest = {find_first_id(run_id): run_id for run_id in run.evidence.list_merged()}
    latest.pop(find_first_id(child), None)
    for run_id in latest.values():
        other = trees.find_work(run_id)
        if other and not paths.isdisjoint(other.files):
            others[run_id] = other
    if not others:
        return ()
    works = {run_id: others[run_id] for run_id in list(others)[-_MAX_CHILDREN:]}
    kinds = {conflict.path: conflict.kind for conflict in conflicts}
    found = trees.list_overlaps({**works, child: work}, kinds)
    return tuple(overlap for overlap in found if child in overlap.runs)


def describe_overlaps(run: RunContext, overlaps: Sequence[Overlap]) -> str:
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
