"""Replay: runs a recorded session again without a model or effects, and compares the events.

The adapters of a replay are chosen here; those of a session in `build.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from .._adapters.models.replay_model import ReplayModel, remove_varying_text
from .._adapters.output_filters import mark_injection
from .._adapters.workers.local import LocalRunHandle, LocalWorker
from .._core.agents import WorkspaceSpec
from .._core.budgets import Grant
from .._core.events import (
    Compacted,
    MessageSent,
    ResultsCleared,
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    WorkMerged,
)
from .._core.messages import RecordedConversation, ToolCallBlock
from .._core.ports import Environment
from .._core.runs import Brief, InboxMessage, Reason, Report
from .._core.tools import Tool
from .._engine.children.merge import is_merge_of
from .._engine.children.task_tool import make_task_tool
from .._engine.compaction.record_file import ConversationRecord
from .._engine.compaction.summary import make_summary_brief
from .._engine.meters.meter import Meter
from .._engine.phase import RunControl
from .._engine.recorded_conversations import (
    group_by_run,
    rebuild_briefs,
    rebuild_conversations,
)
from .._engine.run_context import RunContext
from .._engine.session_context import SessionServices, SingleEnvironment
from .._platform.scratch_dirs import ScratchDir
from .._platform.time_limits import SystemClock
from .recorded_events import RecordedEvents, ReplayDiverged, leave_out_lost_requests
from .recorded_outcomes import (
    RecordedBackground,
    RecordedGate,
    RecordedHooks,
    RecordedInbox,
    RecordedOutcomes,
    RecordedOutputChecks,
    RecordedTeams,
    read_failure,
)
from .recorded_stops import RecordedFault, RecordedMeters, list_past_ends
from .recorded_tools import RecordedCalls, RecordedTools

__all__ = ["ReplayDiverged", "replay"]

UNLIMITED = 1 << 20  # concurrent children: a replay must not wait where the record did not

STILL_ROUNDS = 100
"""Rounds of the event loop without a step until a replay counts as standing still.

No step waits for time, a thread or another program, so a slow machine is never the reason.
"""


async def replay(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Run every root run of a record again, with all runs below it. Return the events.

    It needs no file, command, model or user: answers, results, decisions, limits and stops come
    from the record. Only the engine is tested. A replay of any record ends.

    Raises ReplayDiverged at the first event that differs from the record.
    """
    record = events
    events = leave_out_lost_requests(record)
    journal = RecordedEvents(events, remove_varying_text)
    gate = RecordedGate(journal, events)
    tools = RecordedTools(events)
    outcomes = RecordedOutcomes(events, journal)
    tools.late = outcomes.make_toolbox(tools.late)
    with ScratchDir() as spill_folder:
        services = _make_services(events, journal, gate, tools, outcomes, spill_folder)
        worker = _ReplayWorker(services, events, journal, gate, tools)
        worker.left = outcomes.left
        try:
            await _follow_record(worker, journal)
        finally:
            await worker.close()
    return list(record)


async def _follow_record(worker: _ReplayWorker, journal: RecordedEvents) -> None:
    """Start and stop runs as the record does, to its end. Raises ReplayDiverged."""
    journal.advance()
    while not await _wait_until_still(worker, journal):
        if journal.next_event is None:
            return  # the record of an unfinished session ends here
        if not (worker.start_summary() or journal.stop_next_run()):
            journal.diverge_here()
    if journal.difference.done():
        journal.difference.result()


async def _wait_until_still(worker: _ReplayWorker, journal: RecordedEvents) -> bool:
    """Wait until everything stands still. Return whether the replay has ended."""
    moves = -1
    rounds = 0
    while rounds < STILL_ROUNDS:
        if journal.difference.done() or (journal.next_event is None and not worker.is_working):
            return True
        await asyncio.sleep(0)
        rounds = rounds + 1 if moves == journal.moves else 0
        moves = journal.moves
    return False


async def _call_here(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def _make_services(
    events: Sequence[StoredEvent],
    journal: RecordedEvents,
    gate: RecordedGate,
    recorded_tools: RecordedTools,
    outcomes: RecordedOutcomes,
    spill_folder: str,
) -> SessionServices:
    briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    started = [brief for brief in briefs.values() if not brief.is_compaction]
    children = [brief for brief in started if brief.parent]
    hooks = RecordedHooks(events)
    hooks.reach_next = gate.reach_next_of
    agents = {brief.agent.name: brief.agent for brief in children}
    tools = {**recorded_tools.toolbox, "task": make_task_tool(agents)}
    unused: Any = None
    environment = Environment(
        spec=WorkspaceSpec(), workspace=unused, sandbox=unused, policy=outcomes
    )
    return SessionServices(
        session=next((event.prompt_id.split("#", 1)[0] for event in events if event.prompt_id), ""),
        get_model=_always(ReplayModel(())),
        journal=journal,
        environments=SingleEnvironment(environment),
        clock=SystemClock(),
        approver=outcomes,
        mark_report=mark_injection,
        toolbox=outcomes.make_toolbox(tools),
        agents=agents,
        spill_folder=spill_folder,
        environment_text="",
        meters=RecordedMeters(briefs, journal.stops, gate),
        output_checks=RecordedOutputChecks(events),
        hooks=hooks,
        teams=RecordedTeams(events),
        in_thread=_call_here,
        recorded_edits=RecordedEdits(events, gate.reach_next_of).take,
        recorded_work=RecordedWork(events),
    )


class _ReplayWorker(LocalWorker):
    """A worker that gives each run its recorded answers."""

    def __init__(
        self,
        services: SessionServices,
        events: Sequence[StoredEvent],
        journal: RecordedEvents,
        gate: RecordedGate,
        tools: RecordedTools,
    ) -> None:
        super().__init__(services, UNLIMITED)
        self._tools = tools
        self._backgrounds: dict[str, RecordedBackground] = {}
        self._due = {brief.run_id: brief for brief in rebuild_briefs(events)}
        self._journal = journal
        self._gate = gate
        self._own_events = group_by_run(events)
        self._waiting: dict[str, list[InboxMessage]] = {}
        self._child_models = _find_child_models(events)
        self._conversations: dict[str, list[RecordedConversation]] = {}
        for conversation in rebuild_conversations(events):
            self._conversations.setdefault(conversation.run, []).append(conversation)
        past_ends = list_past_ends(events)
        self._past_ends = {
            event.run: asyncio.get_running_loop().create_future()
            for event in events
            if isinstance(event, RunFinished) and id(event) in past_ends
        }
        self.left: set[asyncio.Task[Any]] = set()
        self._summaries: dict[str, LocalRunHandle | None] = {}
        journal.on_message = self._send
        journal.on_run_due = self._start_due
        journal.on_run_ended = self._end_past_run

    @property
    def is_working(self) -> bool:
        return bool(self._pool.handles)

    async def close(self) -> None:
        """End the runs still working after a difference, whatever they are waiting for."""
        await self._end_left_work()
        for number in range(STILL_ROUNDS):
            for handle in list(self._pool.handles.values()):
                if number == 0:
                    handle.cancel()
                elif number % 10 == 0:
                    handle.outcome.cancel()
            if not self._pool.handles:
                return
            await asyncio.sleep(0)

    async def _end_left_work(self) -> None:
        """End the work of runs that no process in the record continued."""
        for _ in range(STILL_ROUNDS):
            for task in self.left:
                task.cancel()
            await asyncio.sleep(0)
            self.left -= {task for task in self.left if task.done()}
            if not self.left:
                return

    async def _run_in_environment(
        self, handle: LocalRunHandle, brief: Brief, grant: Grant, control: RunControl
    ) -> Report:
        """Run to the end; a run that no process continued works until its recorded end."""
        work = super()._run_in_environment(handle, brief, grant, control)
        if (end := self._past_ends.get(brief.run_id)) is None:
            return await work
        task = asyncio.create_task(work)
        control.attach(task)
        task.add_done_callback(read_failure)
        self.left.add(task)
        return await end

    def _end_past_run(self, report: Report) -> None:
        if not (end := self._past_ends[report.run_id]).done():
            end.set_result(report)

    async def _load_tools(self, brief: Brief) -> tuple[str, ...]:
        """Return (): the record has the message about missing tools."""
        return ()

    def _make_run(
        self, brief: Brief, meter: Meter, control: RunControl, environment: Environment
    ) -> RunContext:
        recorded = self._conversations.get(brief.run_id, [])
        model = ReplayModel(recorded, stop_run=self._gate.stop_call)
        services = replace(
            self._services,
            get_model=_always(model),
            child_models=self._child_models.get(brief.run_id, {}),
        )
        run = ReplayedRun(brief, meter, services, self, control, environment)
        list_next = partial(self._journal.list_delivered_next, brief.run_id)
        run.inbox = RecordedInbox(run.recorder, list_next)
        run.recorded_report = self._journal.stops.find_report(brief.run_id)
        own = self._own_events.get(brief.run_id, ())
        run.recorded_calls = RecordedCalls(own)
        run.late_tools = self._tools.late
        for name in self._tools.offered.get(brief.run_id, {}):
            if name in run.late_tools:
                run.tools.setdefault(name, run.late_tools[name])
        run.list_notes_between = partial(self._journal.list_notes_between, brief.run_id)
        background = RecordedBackground(run, own, self._journal, self._gate)
        self._backgrounds[brief.run_id] = background
        run.background = background
        self._journal.stops.add_run(run)
        for message in self._waiting.pop(brief.run_id, ()):
            run.inbox.restore(message)
        return run

    def _send(self, event: MessageSent) -> None:
        """Send a message to a run, perhaps as its first event."""
        if run := self._journal.stops.find_run(event.run):
            run.inbox.restore(event.message)
        else:
            self._waiting.setdefault(event.run, []).append(event.message)

    def start(self, brief: Brief, grant: Grant) -> LocalRunHandle:
        """Start a run, unless it is a summary run that is already working."""
        return self._summaries.pop(brief.run_id, None) or super().start(brief, grant)

    def start_summary(self) -> bool:
        """Start the next summary run that is due. Return False if there is none.

        Its parent only starts it where the record has a compaction. But it may have been stopped or
        killed before that, and its parent may have gone on without it in the next process.
        """
        step = self._journal.next_event
        if not isinstance(step, RunStarted) or not (step.brief.is_compaction and step.brief.parent):
            return False
        run = self._journal.stops.find_run(step.brief.parent)
        if run is None or step.run in self._summaries:
            return False
        self._summaries[step.run] = None
        task = asyncio.create_task(self._begin_summary(run, step.brief))
        task.add_done_callback(read_failure)
        self.left.add(task)
        self._journal.moves += 1
        return True

    async def _begin_summary(self, run: RunContext, brief: Brief) -> None:
        messages = (await ConversationRecord(run).read_context()).sent_messages
        history = make_summary_brief(run, brief.run_id, "", messages).history
        grant = self._services.meters.open(brief.run_id, brief.budget, run.meter)
        self._summaries[brief.run_id] = super().start(replace(brief, history=history), grant)

    def _start_due(self, run_id: str) -> None:
        """Start a run that no working parent made."""
        brief = self._due.pop(run_id, None)
        if brief is None:
            return
        if not brief.parent:
            handle = self.start(brief, self._services.meters.open(run_id, brief.budget))
            handle.outcome.add_done_callback(self._check_end)
        elif background := self._backgrounds.get(brief.parent):
            background.start_next_run(brief)

    def _check_end(self, outcome: asyncio.Future[Report]) -> None:
        """Note a prompt's failure if its report does not have it."""
        error = None if outcome.cancelled() else outcome.exception()
        if error is not None and not isinstance(error, RecordedFault):
            self._journal.diverge(f"{type(error).__name__}: {error}")


def _always(model: ReplayModel) -> Callable[[str], ReplayModel]:
    return lambda name: model


def _find_child_models(events: Sequence[StoredEvent]) -> dict[str, dict[str, str]]:
    """Find each run's rules for its children's models, by run id."""
    requested = {
        (event.run, event.call.id): event.call.arguments.get("model")
        for event in events
        if isinstance(event, ToolCallStarted)
    }
    briefs = (event.brief for event in events if isinstance(event, RunStarted))
    models: dict[str, dict[str, str]] = {}
    for brief in briefs:
        model = requested.get((brief.parent, brief.call_id)) or brief.agent.model
        if model == "inherit":
            models.setdefault(brief.parent, {})[brief.agent.name] = brief.model
    return models


class RecordedEdits:
    """A record's edits of conversations, by run, turn and number of refusals before them.

    `reach_next` waits until a run's next event is due.
    """

    def __init__(
        self, events: Iterable[StoredEvent], reach_next: Callable[[str], Awaitable[object]]
    ) -> None:
        self._reach_next = reach_next
        self._edits: dict[
            tuple[str, int, int], list[tuple[ResultsCleared | Compacted, Brief | None]]
        ] = {}
        briefs: dict[str, Brief] = {}
        refusals: dict[str, int] = {}
        for event in events:
            if isinstance(event, RunStarted):
                briefs[event.run] = event.brief
            elif isinstance(event, TurnFinished):
                refusals[event.run] = 0
            elif isinstance(event, TurnFailed) and event.overflow:
                refusals[event.run] = refusals.get(event.run, 0) + 1
            elif isinstance(event, ResultsCleared | Compacted):
                summary = event.summary_run if isinstance(event, Compacted) else ""
                key = (event.run, event.turn, refusals.get(event.run, 0))
                self._edits.setdefault(key, []).append((event, briefs.get(summary)))

    async def take(
        self, run_id: str, turn: int, refusals: int
    ) -> Sequence[tuple[ResultsCleared | Compacted, Brief | None]]:
        """Take the edits at a point of a run, each with its summary run's brief.

        Each edit is returned once, although an interrupted run comes back to the same point.
        """
        edits = self._edits.pop((run_id, turn, refusals), [])
        if refusals and not edits:
            await self._reach_next(run_id)  # the run may be stopped before it is shortened
        return edits


class RecordedWork:
    """A record's work and merges, by the id of the run with the isolated workspace."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        self._workspaces: dict[str, WorkspaceSpec] = {}
        self._reports: dict[str, Report] = {}
        self._merges: list[WorkMerged] = []
        for event in events:
            if isinstance(event, RunStarted):
                self._workspaces[event.run] = event.brief.workspace
            elif isinstance(event, RunFinished):
                self._reports[event.run] = event.report
            elif isinstance(event, WorkMerged):
                self._merges.append(event)

    def find_workspace(self, run_id: str) -> WorkspaceSpec | None:
        return self._workspaces.get(run_id)

    def find_report(self, run_id: str) -> Report | None:
        return self._reports.get(run_id)

    def find_merge(self, child: str, call: str) -> WorkMerged | None:
        merged = next((each for each in self._merges if is_merge_of(each, child, call)), None)
        if merged and merged.returned not in self._workspaces:
            return replace(merged, returned="")
        return merged


class ReplayedRun(RunContext):
    """The objects of a replayed run.

    `late_tools` are tools that its brief does not name, such as MCP tools.
    """

    recorded_report: Report | None = None
    recorded_calls = RecordedCalls(())
    late_tools: Mapping[str, Tool] = MappingProxyType({})
    list_notes_between: Callable[[], list[tuple[str, list[str]]]] = list

    async def deliver_messages(self) -> None:
        """Deliver the unread messages, with the notes about limits that come between them."""
        assert isinstance(self.inbox, RecordedInbox)
        notes = self.list_notes_between()
        self.inbox.later = {each for _, ids in notes for each in ids}
        await super().deliver_messages()
        for text, ids in notes:
            self.add_note(text)
            self.conversation.restored_notes.append(text)  # so the engine does not add it again
            self.inbox.later -= set(ids)
            await super().deliver_messages()

    def find_tool(self, call: ToolCallBlock, name: str) -> Tool | None:
        """Find a call's tool; one the engine lacks is made from the record.

        Which tools a run's servers had, and when, was true only then.
        """
        tool = super().find_tool(call, name) or self.late_tools.get(name)
        return self.recorded_calls.adapt(tool, call)

    def read_path(self, call_id: str, name: str, path: str) -> str:
        """Return the path as it was read: which files exist, and what `~` is, may have changed."""
        return self.recorded_calls.read_path(call_id, name, path)

    def make_report(self, reason: Reason, text: str, **fields: Any) -> Report:
        """Make the run's report, taking from the record what a replay cannot know.

        How a report explains an insufficient budget depends on the size of the first request, and a
        replay has neither the system prompt nor the tools. The reasons for missing MCP tools are
        also taken from the record, and the order of the evidence, which depends on when background
        commands and parallel calls ended.
        """
        recorded = self.recorded_report
        if recorded is None:
            return super().make_report(reason, text, **fields)
        if reason is Reason.BUDGET:
            fields["error"] = recorded.error
        report = super().make_report(reason, text, **fields)
        report = replace(report, missing_tools=recorded.missing_tools)
        return replace(report, **{name: order_as(recorded, report, name) for name in EVIDENCE})


EVIDENCE = (
    "calls",
    "files_read",
    "files_changed",
    "observed_changes",
    "unknown_changes",
    "parallel_runs",
)
"""Report fields in the order their facts were found."""


def order_as(recorded: Report, report: Report, name: str) -> object:
    """Return a report field's recorded value if only its order differs, else its own."""
    value: Any = getattr(report, name)
    other: Any = getattr(recorded, name)
    if name == "calls":
        return other if value == other else value
    if name == "unknown_changes":
        is_same = sorted(value.split("; ")) == sorted(other.split("; "))
    else:
        is_same = sorted(value) == sorted(other)
    return other if is_same else value
