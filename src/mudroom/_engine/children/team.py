"""Team of one run: the messages to its named children, and from them to the run."""

from __future__ import annotations

import asyncio

from ..._core.events import RunResumed, RunStarted, StoredEvent, TurnFinished
from ..._core.ports import RunHandle
from ..._core.run_ids import find_first_id
from ..._core.runs import Brief, InboxMessage
from ...errors import suggest_names
from ...projections.team import Teammate, normalize_name
from ..phase import OPEN_PHASES, Phase
from ..run_context import RunContext
from ..team_registry import ALL, MAX_RUNS, PARENT, PARENT_NAMES, TeamReply, TeamRequest
from ..team_text import EXCHANGE_NOTE, REPLACED_NOTE
from .members import TeamMembers
from .next_runs import NextRuns
from .shutdown import ShutdownRequests
from .task_claims import TaskClaims

WARN_EXCHANGES = 6
MAX_EXCHANGES = 12
"""Messages in a row between two children, without another act; more are refused."""

_READING_PHASES = (*OPEN_PHASES, Phase.WRAPPING_UP, Phase.WAITING_FOR_CHILDREN)
"""Phases of a run in which its children may still work."""


class Team:
    """The named children of one run that works.

    A message is stored in the branch of the parent first. Then the run of the child at work gets
    it; if none works, its next run begins with all messages that the child has not read.

    Attributes:
        members: names of the children, and those that work.
        shutdowns: requests to stop.
    """

    def __init__(self, run: RunContext) -> None:
        self.members = TeamMembers(run)
        self.shutdowns = ShutdownRequests(self.members)
        self._run = run
        self._next_runs = NextRuns(self.members, self)
        self._claims = TaskClaims(
            self.members, self._next_runs, self._begin_with, self._claim_tasks
        )
        self._roster = run.services.teams.roster
        self._lock = asyncio.Lock()
        self._sending: set[asyncio.Task[TeamReply]] = set()

    def attach(self, brief: Brief, handle: RunHandle) -> None:
        """Add a run that the worker has, and send it the messages that wait."""
        self.members.attach(brief, handle)
        if teammate := self._roster.get(brief.run_id):
            self.members.pass_on(teammate)

    async def handle_end(self, brief: Brief) -> None:
        """Handle the end of a run: start the next one if messages or tasks wait for it."""
        async with self._lock:
            await self._next_runs.handle_end(brief)
            await self._claims.look()

    async def _claim_tasks(self) -> None:
        async with self._lock:
            await self._claims.look()

    async def restart(self) -> None:
        """Continue the runs and requests of an earlier process, and start the runs due."""
        async with self._lock:
            await self._next_runs.restart()
            await self._claims.look()
        for teammate in self.members.list_all():
            self.shutdowns.watch(teammate)

    async def start_due(self) -> None:
        """Start the children that have messages from before this prompt."""
        async with self._lock:
            await self._next_runs.restart()

    def observe(self, teammate: Teammate, event: StoredEvent) -> None:
        """Send the messages that wait to a run that has begun; enforce a request to stop."""
        if isinstance(event, RunStarted | RunResumed):
            self.members.pass_on(teammate)
        elif isinstance(event, TurnFinished):
            self.shutdowns.stop_if_overdue(teammate)

    def close(self) -> None:
        """End all timers: the run ends."""
        self.shutdowns.close()
        self._claims.close()

    def list_open_work(self) -> list[str]:
        """Return the ids of the runs below this one whose work is not merged."""
        parents = self._roster.list_conversation(self._run.run_id)
        return [
            run_id
            for run_id, event in self._run.services.teams.open_work.items()
            if event.run in parents
        ]

    def find_open_work(self, requested: str) -> str:
        """Return the id of the run whose work is not merged, "" without one.

        Arguments:
            requested: its id, that of the first run of the work, or the name of the child.
        """
        teammate = self.members.find(requested)
        names = [requested, *(brief.run_id for brief in (teammate.briefs if teammate else ()))]
        matching = [
            run_id
            for run_id in self.list_open_work()
            if run_id in names or find_first_id(run_id) == requested
        ]
        return matching[-1] if matching else ""

    async def send(self, request: TeamRequest) -> TeamReply:
        """Send a message to children, or from a child to the run. Then the record has it.

        If the sender is cut off, the message is still passed on.
        """
        if normalize_name(request.to) in PARENT_NAMES and self._roster.get(request.sender):
            return await self._send_to_parent(request)
        sending = asyncio.create_task(self._send_to_children(request))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        return await asyncio.shield(sending)

    async def _send_to_children(self, request: TeamRequest) -> TeamReply:
        sender = self._roster.get(request.sender)
        names = self.members.list_names()
        name = normalize_name(request.to)
        teammate = self.members.find(name)
        if request.to == ALL:
            receivers = [each for each in names if sender is None or each != sender.name]
        elif name in self.members.active:
            receivers = [name]
        else:
            receivers = [teammate.name] if teammate else []
        if not receivers:
            hint = suggest_names(request.to, names)
            text = f"Nothing was sent: there is no teammate {request.to!r}. {hint}"
            return TeamReply(text, is_error=True)
        async with self._lock:
            replies = [await self._send_to_child(each, request, sender) for each in receivers]
        text = "\n".join(reply.text for reply in replies)
        return TeamReply(text, all(reply.is_error for reply in replies))

    async def _send_to_child(
        self, name: str, request: TeamRequest, sender: Teammate | None
    ) -> TeamReply:
        message_id = f"{request.id}:{name}" if request.to == ALL else request.id
        if self._roster.has_message(message_id):  # the call is repeated after a crash
            return TeamReply(f"Sent to {name}.")
        active = self.members.active.get(name)
        teammate = self.members.find(name)
        if refusal := self._find_refusal(request, sender, teammate, is_active=active is not None):
            return TeamReply(f"Nothing was sent to {name}: {refusal}", is_error=True)
        notes = self._list_notes(sender, teammate)
        sender_name = "" if request.sender == "user" else PARENT
        message = InboxMessage(
            message_id,
            request.text,
            request.sender,
            name=sender.name if sender else sender_name,
            approve=request.approve,
            notes=tuple(notes),
        )
        if active is None:
            assert teammate is not None
            reply = await self._begin_with(teammate, message, request.call_id)
        else:
            await self.members.record(name, active.first_run, message)
            if teammate:
                self.members.pass_on(teammate)
            reply = TeamReply(f"Sent to {name}, who reads it after the current tool calls.")
        return TeamReply("\n".join((reply.text, *notes)), reply.is_error)

    async def _begin_with(
        self, teammate: Teammate, message: InboxMessage, call_id: str = ""
    ) -> TeamReply:
        """Send a message to a child that is idle: it begins the next run."""
        name = teammate.name
        messages = [*self.members.list_unread(teammate), message]
        try:
            brief, grant = await self._next_runs.prepare(teammate, messages, call_id)
        except ValueError as error:
            return TeamReply(f"Nothing was sent to {name}: {error}", is_error=True)
        try:
            await self.members.record(name, teammate.first_run, message)
        except BaseException:
            self._run.services.meters.close(grant)
            raise
        if not self._next_runs.may_start:
            self._run.services.meters.close(grant)
            return TeamReply(f"{name} reads it with its next run: its parent is ending now.")
        self._next_runs.start(brief, grant, teammate.first_run)
        return TeamReply(f"Sent to {name}, who works again with it (run {brief.run_id}).")

    def _find_refusal(
        self,
        request: TeamRequest,
        sender: Teammate | None,
        teammate: Teammate | None,
        *,
        is_active: bool,
    ) -> str:
        """Return the reason why a child may not get a message, "" if it may."""
        may_read = self._run.control.phase in _READING_PHASES
        if not may_read or not (is_active or self._next_runs.may_start):
            return "its parent is ending"
        active = self.members.active.get(teammate.name) if teammate else None
        is_stopping = active is not None and active.is_stopping
        if teammate and (is_stopping or self.members.is_stopped(teammate)):
            return "it was stopped, and is not started again. Start a new child"
        if teammate and not is_active and self._next_runs.has_all(teammate):
            return f"it has had {MAX_RUNS} runs for this prompt, the maximum"
        if request.approve is not None:
            if sender:
                return "only its parent approves a plan"
            if teammate is None or is_active or not self.members.get_last_brief(teammate).is_plan:
                return "it has no open request that you could approve or refuse"
        if sender and teammate:
            count = self._roster.count_exchanges(sender, teammate)
            if count >= MAX_EXCHANGES:
                return f"{count} messages in a row between you two, and no other act. Work on"
        return ""

    def _list_notes(self, sender: Teammate | None, teammate: Teammate | None) -> list[str]:
        """Return notes for a child that sends, and for the one that reads."""
        if sender is None or teammate is None:
            return []
        notes: list[str] = []
        count = 1 + self._roster.count_exchanges(sender, teammate)
        if count >= WARN_EXCHANGES:
            names = f"{sender.name} and {teammate.name}"
            notes.append(EXCHANGE_NOTE.format(count=count, names=names, maximum=MAX_EXCHANGES))
        is_newer = sender.started_at < teammate.started_at
        if is_newer and any(
            each.is_replaced and each.name == teammate.name for each in self.members.list_current()
        ):
            notes.append(REPLACED_NOTE.format(name=teammate.name))
        return notes

    async def _send_to_parent(self, request: TeamRequest) -> TeamReply:
        """Send a message of a child to the run."""
        run = self._run
        sender = self._roster.get(request.sender)
        assert sender is not None
        has_request = sender.shutdown is not None
        if not run.inbox.knows(request.id):  # else the call is repeated after a crash
            if refusal := self._find_refusal_to_parent(request, sender):
                return TeamReply(f"Nothing was sent: {refusal}", is_error=True)
            message = InboxMessage(
                request.id, request.text, request.sender, name=sender.name, approve=request.approve
            )
            run.inbox.put(message)
        if not await run.inbox.wait_until_stored(request.id):
            return TeamReply("Nothing was sent: your parent is ending.", is_error=True)
        if request.approve and has_request:
            self.members.wrap_up(sender)
        return TeamReply("Sent to your parent.")

    def _find_refusal_to_parent(self, request: TeamRequest, sender: Teammate) -> str:
        """Return the reason why the run may not get a message, "" if it may."""
        if request.approve is not None and sender.shutdown is None:
            return "no request is open that you could answer."
        if request.approve is False and sender.has_refused:
            return "you have refused to stop before. Finish, and report."
        handles = self._run.background.children.values()
        if request.sender not in {handle.run_id for handle in handles}:
            return (
                "your parent waits for your report, and reads no message before it. End with your "
                "question as your report: the answer starts you again."
            )
        if self._run.control.phase not in _READING_PHASES:
            return "your parent is ending."
        return ""
