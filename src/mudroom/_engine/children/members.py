"""The members of a run's team: its children's names, and which of them are working."""

from __future__ import annotations

from msgspec import Struct, field

from ..._core.agents import Agent
from ..._core.events import TeamMessageSent
from ..._core.ports import RunHandle
from ..._core.runs import Brief, InboxMessage
from ..._projections.team import Teammate, normalize_name
from ..run_context import RunContext
from ..team_registry import check_name, make_agent_name


class ActiveChild(Struct):
    """A named child that is working or starting."""

    run_id: str  # of its current run
    first_run: str
    handle: RunHandle | None = None  # None until the worker has accepted the run
    sent: set[str] = field(default_factory=set[str])  # ids of messages the run has received
    is_stopping: bool = False  # its parent is stopping it: no message starts it again
    work_id: str = ""  # its first `run_id`, kept when work comes back to the child

    def __post_init__(self) -> None:
        self.work_id = self.work_id or self.run_id


class TeamMembers:
    """A run's named children; `active` are the working ones, by name."""

    def __init__(self, run: RunContext) -> None:
        self.run = run
        self.active: dict[str, ActiveChild] = {}
        self._teams = run.services.teams

    def find(self, name: str) -> Teammate | None:
        """Find the newest child with this name, or the one this run id belongs to."""
        name = normalize_name(name)
        active = self.active.get(name)
        return self._teams.roster.find(self.run.run_id, active.first_run if active else name)

    def get_last_brief(self, teammate: Teammate) -> Brief:
        return self._teams.roster.get_last_brief(self.run.run_id, teammate)

    def list_unread(self, teammate: Teammate) -> list[InboxMessage]:
        return self._teams.roster.list_unread(self.run.run_id, teammate)

    def list_all(self) -> list[Teammate]:
        """List the named children of the run and of the runs it continues."""
        return self._teams.roster.list_teammates(self.run.run_id)

    def list_current(self) -> list[Teammate]:
        """List copies of the named children, without what a rewind removed."""
        return self._teams.roster.list_current(self.run.run_id)

    def is_stopped(self, teammate: Teammate) -> bool:
        return self._teams.roster.is_stopped(self.run.run_id, teammate)

    def list_names(self) -> list[str]:
        """List the names of children that messages can reach."""
        known = [each.name for each in self.list_current() if not each.is_stopped]
        return list(dict.fromkeys((*known, *self.active)))

    def list_own_runs(self, teammate: Teammate) -> list[str]:
        run_id = self.run.run_id
        return [brief.run_id for brief in teammate.briefs if brief.parent == run_id]

    def describe_others(self, name: str, place: str) -> tuple[str, ...]:
        """Describe the other named children to a run that begins at `place`.

        Includes those started by other calls of the same answer.
        """
        if recorded := self._teams.find_brief(place):
            return recorded.teammates
        agents = {each.name: each.agent for each in self.list_all()}
        task = self.run.tools.get("task")
        for call in self.run.turn.calls.values():
            arguments = task.rename_arguments(call.arguments) if task else {}
            if isinstance(called := arguments.get("name"), str) and called:
                agents[normalize_name(called)] = str(arguments.get("agent", "general"))
        agents.pop(name, None)
        return tuple(f"{other} ({agent})" for other, agent in agents.items())

    def reserve(self, requested: str, agent: Agent, place: str, *, needs_name: bool) -> str:
        """Reserve a name for a child that begins at `place`; "" if it has none. `release` frees it.

        Raises ValueError if the child may not have the requested name.
        """
        if recorded := self._teams.find_brief(place):
            name = recorded.name
        elif requested:
            name = self._check_requested(normalize_name(requested))
        elif agent.is_teammate or agent.claims_tasks or needs_name:
            base = make_agent_name(agent.name)
            name = base
            number = 1
            while name in self.active:
                number += 1
                name = f"{base}-{number}"
        else:
            name = ""
        if name:
            self.active.setdefault(name, ActiveChild(place, place))
        return name

    def _check_requested(self, name: str) -> str:
        if refusal := check_name(name):
            raise ValueError(refusal)
        if name in self.active:
            raise ValueError(
                f"name: {name!r} is the name of a child that works; choose another one, "
                "or send it a message"
            )
        return name

    def begin(self, brief: Brief) -> None:
        teammate = self.find(brief.continues)
        first_run = teammate.first_run if teammate else brief.run_id
        self.active[brief.name] = ActiveChild(brief.run_id, first_run)

    def attach(self, brief: Brief, handle: RunHandle) -> None:
        active = self.active.get(brief.name)
        if active and active.run_id in (brief.run_id, brief.continues):
            active.run_id = brief.run_id
            active.handle = handle

    def is_stopping(self, name: str) -> bool:
        """Return whether the parent is stopping a working child of this name."""
        active = self.active.get(name)
        return active is not None and active.is_stopping

    def release(self, name: str, run_id: str) -> bool:
        """Remove a run that ended or never began. Return False if a later one has begun."""
        active = self.active.get(name)
        if active is None or active.run_id != run_id:
            return False
        del self.active[name]
        return True

    async def record(self, name: str, first_run: str, message: InboxMessage) -> None:
        recorder = self.run.recorder
        await recorder.record(
            recorder.make_event(TeamMessageSent, to=name, child=first_run, message=message)
        )

    def pass_on(self, teammate: Teammate) -> None:
        """Send a child's unread messages to its run, if one is working."""
        active = self.active.get(teammate.name)
        if active is None or active.handle is None or active.run_id != teammate.run_id:
            return
        for message in self.list_unread(teammate):
            if message.id in active.sent:
                continue
            if not active.handle.send(message):
                return
            active.sent.add(message.id)

    def wrap_up(self, teammate: Teammate) -> None:
        active = self.active.get(teammate.name)
        if active and active.handle and active.first_run == teammate.first_run:
            active.handle.wrap_up()
