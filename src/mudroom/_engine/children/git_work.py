"""What the parent reads of work that a child left only in git."""

from __future__ import annotations

from collections.abc import Iterator

from ..._core.ports import Isolation
from ..._core.runs import GitWork, Work
from ..._projections.engine_text import format_value
from ..run_context import RunContext

_MAX_NAMED = 5
"""Commits, staged files and git folders that the model reads by name."""


def collect_git_work(run: RunContext, run_id: str, work: Work) -> dict[str, GitWork]:
    """Return the git work of a child by run id: its own, and that of runs whose work came back.

    The function blocks.
    """
    isolation: Isolation | None = run.environment.isolation
    legs = run.evidence.list_earlier_legs(run_id) if isolation else []
    found = {leg: isolation.find_work(leg) for leg in legs} if isolation else {}
    works = {**dict(reversed(found.items())), run_id: work}
    return {name: each.git for name, each in works.items() if each and each.git}


def describe_git_work(session: str, works: dict[str, GitWork]) -> Iterator[str]:
    """Yield lines about work that is only in git, with the command that gets it back.

    Arguments:
        session: id of the session. works: see `collect_git_work`.
    """
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
