"""Next runs of named children: each begins with messages, and continues the conversation."""

from __future__ import annotations

from msgspec.structs import replace

from ..._core.budgets import Grant
from ..._core.messages import ToolCallBlock
from ..._core.run_ids import find_first_id, make_first_id, make_next_id, split_run_id
from ..._core.runs import Brief, InboxMessage
from ..._projections.team import MESSAGE_TOOL, Teammate
from ...errors import MudroomError
from ..call_context import CallContext
from ..phase import OPEN_PHASES
from ..team_registry import MAX_RUNS
from .child_brief import allocate, make_next_brief
from .child_run import ChildRun, ChildTeam, find_refusal
from .members import ActiveChild, TeamMembers


class NextRuns:
    """Starter of the next runs of the named children of one run.

    Arguments:
        team: the team of the run; it handles the ends of the runs.
    """

    def __init__(self, members: TeamMembers, team: ChildTeam) -> None:
        self._members = members
        self._team = team
        self._run = members.run

    @property
    def may_start(self) -> bool:
        """True unless the parent is ending."""
        return self._run.control.phase in OPEN_PHASES

    def has_all(self, teammate: Teammate) -> bool:
        """Return whether a child has had all its runs for this prompt."""
        return len(self._members.list_own_runs(teammate)) >= MAX_RUNS

    async def prepare(
        self, teammate: Teammate, messages: list[InboxMessage], call_id: str = ""
    ) -> tuple[Brief, Grant]:
        """Return brief and budget of the next run of a child, which begins with messages.

        Arguments:
            call_id: the parent's call that sends the last message, if one does.

        Raises ValueError if the budget does not suffice, or a hook refuses the run.
        """
        run = self._run
        earlier = self._members.get_last_brief(teammate)
        run_id = self._choose_run_id(teammate, messages[0])
        try:
            grant = await allocate(run, run_id, earlier.agent, earlier.budget.turns)
            teammates = self._members.describe_others(teammate.name, run_id)
            brief = make_next_brief(
                run, earlier, messages, grant, call_id=call_id, teammates=teammates
            )
            refusal = await find_refusal(run, brief, grant)
        except MudroomError as error:
            raise ValueError(str(error)) from None
        if refusal:
            raise ValueError(refusal)
        return brief, grant

    def _choose_run_id(self, teammate: Teammate, message: InboxMessage) -> str:
        """Return the id of a run that begins with a message.

        It is the place of the call if the parent's call begins the run.
        """
        run_id = self._run.run_id
        is_broadcast = message.id.endswith(f":{teammate.name}")
        if message.sender == run_id and not is_broadcast:
            return message.id
        return self.make_run_id(teammate)

    def make_run_id(self, teammate: Teammate) -> str:
        """Return the id of the next run that the engine begins for a child."""
        own = self._members.list_own_runs(teammate)
        first = find_first_id(own[0]) if own else make_first_id(self._run.run_id, teammate.name)
        return make_next_id(first, len(own) + 1)

    def start(self, brief: Brief, grant: Grant, first_run: str) -> None:
        """Start a run in the background."""
        call = ToolCallBlock(brief.call_id, MESSAGE_TOOL, {}) if brief.call_id else None
        _, turn, position = split_run_id(brief.run_id)
        context = CallContext(self._run, call, position, turn)
        self._members.active[brief.name] = ActiveChild(brief.run_id, first_run)
        ChildRun(context, brief, grant, self._team).work_in_background()

    async def handle_end(self, brief: Brief) -> None:
        """Handle the end of a run: start the next one if messages wait for it."""
        active = self._members.active.get(brief.name)
        if not self._members.release(brief.name, brief.run_id):
            return
        teammate = self._members.find(brief.run_id)
        if teammate and active and not active.is_stopping:
            await self.start_if_due(teammate)

    async def start_if_due(self, teammate: Teammate) -> None:
        """Start the next run of a child that is idle, if it has unread messages."""
        unread = self._members.list_unread(teammate)
        if not unread or self._members.is_stopped(teammate):
            return
        if not self.may_start or self.has_all(teammate):
            return  # The report of the parent lists the messages.
        try:
            brief, grant = await self.prepare(teammate, unread)
        except ValueError:
            return
        self.start(brief, grant, teammate.first_run)

    async def restart(self) -> None:
        """Continue the runs of an earlier process, and start those that are due."""
        run = self._run
        roster = run.services.teams.roster
        for teammate in self._members.list_all():
            # A run with work that came back is a part of the one before it.
            begun = (each for each in reversed(teammate.briefs) if not each.workspace.tree)
            brief = next(begun, teammate.briefs[-1])
            if teammate.name in self._members.active:
                continue
            is_own = brief.parent == run.run_id and bool(brief.message_ids)
            if is_own and not run.background.is_reported(brief.run_id):
                grant = run.services.meters.reopen(run.meter, brief.run_id, brief.budget)
                history = run.services.teams.list_history(brief.continues)
                self.start(replace(brief, history=history), grant, teammate.first_run)
            elif teammate.report is not None and roster.has_due_message(run.run_id, teammate):
                await self.start_if_due(teammate)
