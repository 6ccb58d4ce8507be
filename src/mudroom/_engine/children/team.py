"""A run's team: messages to its named children, and from them to the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from ..._core.agents import WorkspaceKind
from ..._core.budgets import Grant
from ..._core.events import RunResumed, RunStarted, StoredEvent, TurnFinished
from ..._core.messages import ToolCallBlock
from ..._core.ports import Board, RunHandle
from ..._core.ports.board import BoardTask
from ..._core.runs import (
    Brief,
    InboxMessage,
    Reason,
    find_first_id,
    make_first_id,
    make_next_id,
    split_run_id,
)
from ..._projections.board_lines import format_prompt
from ..._projections.reason_words import describe_reason
from ..._projections.team import MESSAGE_TOOL, Teammate, TeammateState, normalize_name
from ...errors import MudroomError, SessionPaused, suggest_names
from ..call_context import CallContext
from ..phase import OPEN_PHASES, Phase
from ..run_context import RunContext
from ..team_registry import (
    ALL,
    EXCHANGE_NOTE,
    MAX_RUNS,
    PARENT,
    PARENT_NAMES,
    REPLACED_NOTE,
    TeamReply,
    TeamRequest,
    format_shutdown,
)
from .child_brief import allocate, make_next_brief
from .child_run import ChildRun, ChildTeam, find_refusal
from .members import ActiveChild, TeamMembers

WARN_EXCHANGES = 6
MAX_EXCHANGES = 12
"""Consecutive messages between two children without any other act; more are refused."""

_READING_PHASES = (*OPEN_PHASES, Phase.WRAPPING_UP, Phase.WAITING_FOR_CHILDREN)
"""Phases of a run during which its children may still work."""


class Team:
    """The named children of a working run.

    A message is first stored in the parent's branch. Then the child's working run gets it; if none
    is working, its next run begins with all the messages it has not read.
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
        """Add a run that the worker has accepted, and send it the waiting messages."""
        self.members.attach(brief, handle)
        if teammate := self._roster.get(brief.run_id):
            self.members.pass_on(teammate)

    async def handle_end(self, brief: Brief) -> None:
        """Handle the end of a run: start the next one if messages or tasks are waiting."""
        async with self._lock:
            await self._next_runs.handle_end(brief)
            await self._claims.look()

    async def _claim_tasks(self) -> None:
        async with self._lock:
            await self._claims.look()

    async def restart(self) -> None:
        """Continue an earlier process's runs and requests, and start the runs that are due."""
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
        """Send waiting messages to a run that has begun; enforce a request to stop."""
        if isinstance(event, RunStarted | RunResumed):
            self.members.pass_on(teammate)
        elif isinstance(event, TurnFinished):
            self.shutdowns.stop_if_overdue(teammate)

    def close(self) -> None:
        """End all timers, because the run ends."""
        self.shutdowns.close()
        self._claims.close()

    def list_open_work(self) -> list[str]:
        parents = self._roster.list_conversation(self._run.run_id)
        return [
            run_id
            for run_id, event in self._run.services.teams.open_work.items()
            if event.run in parents
        ]

    def find_open_work(self, requested: str) -> str:
        """Find the run whose work is not merged; "" if there is none.

        `requested` is its id, the id of the work's first run, or the child's name.
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
        """Send a message to children, or from a child to the run, and store it.

        The message is delivered even if the sender is cut off.
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
        if self._roster.has_message(message_id):  # the call repeats one from before a crash
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
        """Send a message to an idle child, beginning its next run."""
        name = teammate.name
        messages = [*self.members.list_unread(teammate), message]
        try:
            brief, grant = await self._next_runs.prepare(teammate, messages, call_id)
        except ValueError as error:
            return TeamReply(f"Nothing was sent to {name}: {error}", is_error=True)
        try:
            await self.members.record(name, teammate.first_run, message)
        except BaseException:
            self._run.services.meters.withdraw(grant)
            raise
        if not self._next_runs.may_start:
            self._run.services.meters.withdraw(grant)
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
        """Return why a child may not get a message, "" if it may."""
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
        run = self._run
        sender = self._roster.get(request.sender)
        assert sender is not None
        has_request = sender.shutdown is not None
        if not run.inbox.knows(request.id):  # else the call repeats one from before a crash
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
        """Return why the run may not get a message, "" if it may."""
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


SHUTDOWN_SECONDS = 60.0  # for a child to answer a request to stop


class ShutdownRequests:
    def __init__(self, members: TeamMembers) -> None:
        self._members = members
        self._overdue: set[str] = set()
        self._timers: set[asyncio.Task[None]] = set()

    async def ask(self, name: str, message_id: str, reason: str) -> str:
        """Ask a working child to stop. Return the text for the asking model."""
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
        """Start the timer of the open request, if there is one."""
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
        """Stop a child past its deadline, once it has had a turn to answer the request."""
        if teammate.first_run not in self._overdue:
            return
        if teammate.shutdown is None:
            self._overdue.discard(teammate.first_run)
        elif teammate.turns_after_shutdown:
            # This may run in the very task to be stopped, while it stores an event.
            asyncio.get_running_loop().call_soon(self._members.wrap_up, teammate)

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()


log = logging.getLogger("mudroom")

POLL_SECONDS = 0.5  # between looks at the board while a child is idle; others also change it
BOARD = "task board"  # the sender of a task

_UNUSED_CHECK = "the check of task #%d is not used: %s has no isolated workspace"

_END = "When you end your turn, the task is completed, and your answer is its report."
_GIVE_BACK = " To give it back, call task_update with status pending."


class TaskClaims:
    """Claims tasks for the named children whose agent says `claims`.

    A claim is a message to the child, whose next run begins with the task. All methods but `close`
    need the team's lock, which `look_with_lock` takes.
    """

    def __init__(
        self,
        members: TeamMembers,
        next_runs: NextRuns,
        begin: Callable[[Teammate, InboxMessage], Awaitable[TeamReply]],
        look_with_lock: Callable[[], Awaitable[None]],
    ) -> None:
        self._members = members
        self._next_runs = next_runs
        self._begin = begin
        self._look_with_lock = look_with_lock
        self._ended: set[str] = set()
        self._refused: set[str] = set()
        self._polling: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Complete the tasks of ended runs, and claim the next ones for idle children."""
        board = self._members.run.services.board
        claimers = [each for each in self._members.list_all() if _has_claims(each)]
        if board is None or not claimers:
            return
        try:
            for teammate in claimers:
                await self._end_claim(board, teammate)
            for teammate in filter(self._may_claim, claimers):
                await self._claim(board, teammate)
        except SessionPaused:
            self.close()
            return
        except MudroomError as error:
            log.warning("no task is claimed from the board: %s", error)
            self.close()
            return
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())

    def close(self) -> None:
        if self._polling and self._polling is not asyncio.current_task():
            self._polling.cancel()

    async def _poll(self) -> None:
        while self._next_runs.may_start:
            await asyncio.sleep(POLL_SECONDS)
            if any(map(self._may_claim, self._members.list_all())):
                await self._look_with_lock()

    def _may_claim(self, teammate: Teammate) -> bool:
        """Return whether a child is idle and may take a task.

        It must have had a run for this prompt: a new prompt alone does not start it.
        """
        return (
            _has_claims(teammate)
            and bool(self._members.list_own_runs(teammate))
            and self._next_runs.may_start
            and teammate.state is TeammateState.IDLE
            and not teammate.is_replaced
            and teammate.name not in self._members.active
            and teammate.name not in self._refused
            and not self._members.list_unread(teammate)
            and not self._next_runs.has_all(teammate)
        )

    async def _end_claim(self, board: Board, teammate: Teammate) -> None:
        """Complete the task of a child's last run if that has ended, or return the task."""
        brief = teammate.briefs[-1]
        report = teammate.report
        if not brief.board_task or report is None or brief.run_id in self._ended:
            return
        if brief.name in self._members.active:
            return
        is_done = report.reason is Reason.GOAL and teammate.is_merged
        text = report.text
        if not is_done:
            ending = describe_reason(report.reason).capitalize()
            merged = f"{ending}: {report.error or text}"
            text = merged if teammate.is_merged else f"{ending}, but its files are not merged"
        await board.end_claim(brief.run_id, brief.board_task, text, is_done=is_done)
        self._ended.add(brief.run_id)

    async def _claim(self, board: Board, teammate: Teammate) -> None:
        """Claim the next ready task for an idle child and start a run with it."""
        run_id = self._next_runs.make_run_id(teammate)
        tried = [brief.board_task for brief in teammate.briefs if brief.board_task]
        agent = teammate.briefs[-1].agent.name
        task = await board.claim_next(run_id, teammate.name, agent, tried)
        if task is None:
            return
        if task.check and teammate.briefs[-1].workspace.kind is not WorkspaceKind.ISOLATED:
            log.warning(_UNUSED_CHECK, task.id, teammate.name)
        blockers = [await board.get_task(blocker) for blocker in task.blockers]
        text = _describe(teammate, task, blockers)
        message = InboxMessage(f"{run_id}:task", text, "mudroom", name=BOARD, task=task.id)
        reply = await self._begin(teammate, message)
        if reply.is_error:
            log.warning("%s does not take task #%d: %s", teammate.name, task.id, reply.text)
            self._refused.add(teammate.name)
            await board.end_claim(run_id, task.id, "", is_done=False)


def _has_claims(teammate: Teammate) -> bool:
    return teammate.briefs[-1].agent.claims_tasks


def _describe(teammate: Teammate, task: BoardTask, blockers: list[BoardTask]) -> str:
    end = _END
    if "task_update" in teammate.briefs[-1].tools:
        end += _GIVE_BACK
    return f"Task #{task.id}: {format_prompt(task, blockers)}\n\n{end}"


class NextRuns:
    """Starts the next runs of a run's named children; the team handles their ends."""

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
        """Prepare the brief and budget of a child's next run, which begins with messages.

        `call_id` is the parent's call that sends the last message, if one does. Raises ValueError
        if the budget does not suffice or a hook refuses the run.
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
        """Choose the id of a run that begins with a message.

        If a call by the parent begins the run, the id is the place of that call.
        """
        run_id = self._run.run_id
        is_broadcast = message.id.endswith(f":{teammate.name}")
        if message.sender == run_id and not is_broadcast:
            return message.id
        return self.make_run_id(teammate)

    def make_run_id(self, teammate: Teammate) -> str:
        """Make the id of the next run that the engine begins for a child."""
        own = self._members.list_own_runs(teammate)
        first = find_first_id(own[0]) if own else make_first_id(self._run.run_id, teammate.name)
        return make_next_id(first, len(own) + 1)

    def start(self, brief: Brief, grant: Grant, first_run: str) -> None:
        call = ToolCallBlock(brief.call_id, MESSAGE_TOOL, {}) if brief.call_id else None
        _, turn, position = split_run_id(brief.run_id)
        context = CallContext(self._run, call, position, turn)
        self._members.active[brief.name] = ActiveChild(brief.run_id, first_run)
        ChildRun(context, brief, grant, self._team).work_in_background()

    async def handle_end(self, brief: Brief) -> None:
        """Handle the end of a run: start the next one if messages are waiting."""
        active = self._members.active.get(brief.name)
        if not self._members.release(brief.name, brief.run_id):
            return
        teammate = self._members.find(brief.run_id)
        if teammate and active and not active.is_stopping:
            await self.start_if_due(teammate)

    async def start_if_due(self, teammate: Teammate) -> None:
        """Start an idle child's next run, if it has unread messages."""
        unread = self._members.list_unread(teammate)
        if not unread or self._members.is_stopped(teammate):
            return
        if not self.may_start or self.has_all(teammate):
            return  # the parent's report lists the messages
        try:
            brief, grant = await self.prepare(teammate, unread)
        except ValueError:
            return
        self.start(brief, grant, teammate.first_run)

    async def restart(self) -> None:
        """Continue an earlier process's runs, and start those that are due."""
        run = self._run
        roster = run.services.teams.roster
        for teammate in self._members.list_all():
            # A run whose work came back counts as part of the one before.
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
