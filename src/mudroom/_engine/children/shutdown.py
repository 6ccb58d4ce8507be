"""Requests to stop: a named child may answer, and is stopped after the deadline."""

from __future__ import annotations

import asyncio

from ..._core.runs import InboxMessage
from ...projections.team import Teammate
from ..team_registry import PARENT
from ..team_text import format_shutdown
from .members import TeamMembers

SHUTDOWN_SECONDS = 60.0
"""Time in which a child may answer a request to stop."""


class ShutdownRequests:
    """The open requests to stop of one team."""

    def __init__(self, members: TeamMembers) -> None:
        self._members = members
        self._overdue: set[str] = set()
        self._timers: set[asyncio.Task[None]] = set()

    async def ask(self, name: str, message_id: str, reason: str) -> str:
        """Ask a child that works to stop. Return the text for the model that asks."""
        active = self._members.active[name]
        run = self._members.run
        if not run.services.teams.roster.has_message(message_id):
            text = format_shutdown(reason)
            message = InboxMessage(message_id, text, run.run_id, "shutdown", PARENT)
            await self._members.record(name, active.first_run, message)
        if teammate := run.services.teams.roster.get(active.first_run):
            self._members.pass_on(teammate)
            self.watch(teammate)
        return (
            f"{name} is asked to stop. If it does not refuse, it is stopped after "
            f"{SHUTDOWN_SECONDS:g} s and a turn of its own; its task-notification then comes."
        )

    def watch(self, teammate: Teammate) -> None:
        """Start the timer of a request, if one is open."""
        if teammate.shutdown and teammate.name in self._members.active:
            timer = asyncio.create_task(self._enforce(teammate, teammate.shutdown))
            self._timers.add(timer)
            timer.add_done_callback(self._timers.discard)

    async def _enforce(self, teammate: Teammate, request: InboxMessage) -> None:
        age = self._members.run.services.clock.now() - teammate.shutdown_at
        await asyncio.sleep(max(0.0, SHUTDOWN_SECONDS - age))
        if teammate.shutdown is request:
            self._overdue.add(teammate.first_run)
            self.stop_if_overdue(teammate)

    def stop_if_overdue(self, teammate: Teammate) -> None:
        """Stop a child whose deadline is over, once it has had a turn to answer the request."""
        if teammate.first_run not in self._overdue:
            return
        if teammate.shutdown is None:
            self._overdue.discard(teammate.first_run)
        elif teammate.turns_after_shutdown:
            # This may run in the task that is stopped, while it stores an event.
            asyncio.get_running_loop().call_soon(self._members.wrap_up, teammate)

    def close(self) -> None:
        """End all timers."""
        for timer in self._timers:
            timer.cancel()
