"""Access to the team of a run. The code of teams is imported when a run has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..run_context import RunContext

if TYPE_CHECKING:
    from .team import Team


def open_team(run: RunContext) -> Team:
    """Return the team of a run that works."""
    from .team import Team

    team = run.services.teams.get(run.run_id)
    if not isinstance(team, Team):
        team = Team(run)
        run.services.teams.open(run.run_id, team)
    return team


def prepare_team(run: RunContext) -> Team | None:
    """Open the team of a run that has named children already, and return it."""
    has_names = bool(run.services.teams.roster.list_teammates(run.run_id))
    return open_team(run) if has_names else None
