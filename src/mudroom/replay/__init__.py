"""Replay: run a recorded session again without a model and without effects, and compare the events.

The adapters of a replay are chosen here; those of a session in `build.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from .._core.agents import WorkspaceSpec
from .._core.budgets import Grant
from .._core.events import RunStarted, StoredEvent, ToolCallStarted
from .._core.messages import RecordedConversation
from .._core.ports import Environment
from .._core.runs import Brief
from .._core.tools import Tool
from .._engine.children.task_tool import make_task_tool
from .._engine.meters.meter import Meter
from .._engine.phase import RunControl
from .._engine.recorded_conversations import rebuild_briefs, rebuild_conversations
from .._engine.run_context import RunContext
from .._engine.run_tools import RUN_TOOLS
from .._engine.run_tools.merge_tool import MERGE_TOOL
from .._engine.session_context import SessionServices, SingleEnvironment
from .._platform.scratch_dirs import ScratchDir
from .._platform.system_clock import SystemClock
from ..models.replay_model import ReplayModel, remove_varying_text
from ..output_filters.injection_marker import mark_injection
from ..projections.team import MESSAGE_TOOL
from ..recorded_options import is_board_offered
from ..tools import BOARD_TOOLS, make_builtin_tools
from ..workers.local import LocalWorker
from .recorded_background import RecordedBackground
from .recorded_edits import RecordedEdits
from .recorded_events import RecordedEvents, ReplayDiverged
from .recorded_meters import RecordedMeters
from .recorded_outcomes import (
    RecordedHooks,
    RecordedOutcomes,
    RecordedOutputChecks,
    RecordedTeams,
)
from .recorded_stops import RecordedFault, RecordedStops
from .recorded_work import RecordedWork

__all__ = ["ReplayDiverged", "replay"]

UNLIMITED = 1 << 20
"""Maximum of children at the same time: the replay must not wait where the record did not."""

STALL_SECONDS = 60.0
"""Seconds without an event after which the replay differs: nothing in it takes so long."""

MAX_ERROR_LENGTH = 2_000


async def replay(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Run every root run of a record again, with all runs below it. Return its events.

    No file, command, model or user is needed: answers, results, decisions, limits and stops come
    from the record. Only the engine is tested.

    Raises ReplayDiverged at the first event that differs from the record.
    """
    stops = RecordedStops(events)
    journal = RecordedEvents(events, stops, remove_varying_text)
    hooks = RecordedHooks(events, stops)
    with ScratchDir() as spill_folder:
        services = _make_services(events, stops, journal, hooks, spill_folder)
        worker = _ReplayWorker(services, events, stops, journal, hooks)
        try:
            for brief in rebuild_briefs(events):
                if not brief.parent:
                    await _run_root(worker, journal, brief, worker.open_meter(brief))
        finally:
            await worker.close()
    missing = journal.missing_events
    if missing:
        message = f"{len(missing)} recorded events did not come again, the first: {missing[0]!r}"
        raise ReplayDiverged(message[:MAX_ERROR_LENGTH])
    return list(events)


async def _run_root(
    worker: _ReplayWorker, journal: RecordedEvents, brief: Brief, grant: Grant
) -> None:
    """Execute a root run until it ends or differs from the record."""
    running = asyncio.ensure_future(worker.start(brief, grant).report())
    while not running.done():
        accepted_count = len(journal.accepted)
        await asyncio.wait(
            {running, journal.difference},
            timeout=STALL_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if (
            not running.done()
            and not journal.difference.done()
            and accepted_count == len(journal.accepted)
        ):
            first = next(iter(journal.missing_events), None)
            journal.diverge(f"the replay stands still; the next recorded event: {first!r}")
        if journal.difference.done():
            await worker.close()
            await asyncio.wait({running})
    if journal.difference.done():
        running.exception()
        journal.difference.result()
    try:
        await running
    except RecordedFault:
        pass  # The report has it.


def _make_services(
    events: Sequence[StoredEvent],
    stops: RecordedStops,
    journal: RecordedEvents,
    hooks: RecordedHooks,
    spill_folder: str,
) -> SessionServices:
    """Return the services of a replay. Model and tools come from the record."""
    briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    started = [brief for brief in briefs.values() if not brief.is_compaction]
    children = [brief for brief in started if brief.parent]
    outcomes = RecordedOutcomes(events, stops)
    agents = {brief.agent.name: brief.agent for brief in children}
    tools = {**_make_recorded_tools(events), "task": make_task_tool(agents)}
    unused: Any = None
    environment = Environment(
        spec=WorkspaceSpec(), workspace=unused, sandbox=unused, policy=outcomes
    )
    stops.on_stop = hooks.send_messages
    return SessionServices(
        session=_find_session_id(events),
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
        meters=RecordedMeters(briefs, stops),
        output_checks=RecordedOutputChecks(events),
        hooks=hooks,
        teams=RecordedTeams(events),
        recorded_edits=RecordedEdits(events).take,
        recorded_work=RecordedWork(events),
    )


class _ReplayWorker(LocalWorker):
    """Worker that gives each run its recorded answers."""

    def __init__(
        self,
        services: SessionServices,
        events: Sequence[StoredEvent],
        stops: RecordedStops,
        journal: RecordedEvents,
        hooks: RecordedHooks,
    ) -> None:
        super().__init__(services, UNLIMITED)
        self._backgrounds: dict[str, RecordedBackground] = {}
        self._next_briefs: dict[str, list[Brief]] = {}
        for brief in rebuild_briefs(events):
            self._next_briefs.setdefault(brief.parent, []).append(brief)
        journal.on_run_start = self._handle_start
        self._events = events
        self._stops = stops
        self._journal = journal
        self._hooks = hooks
        self._child_models = _find_child_models(events)
        self._conversations: dict[str, list[RecordedConversation]] = {}
        for conversation in rebuild_conversations(events):
            self._conversations.setdefault(conversation.run, []).append(conversation)

    def open_meter(self, brief: Brief) -> Grant:
        """Return the grant of a root run."""
        return self._services.meters.open(brief.run_id, brief.budget)

    def _make_run(
        self, brief: Brief, meter: Meter, control: RunControl, environment: Environment
    ) -> RunContext:
        recorded = self._conversations.get(brief.run_id, [])
        model = ReplayModel(recorded, stop_run=self._stops.stop)
        services = replace(
            self._services,
            get_model=_always(model),
            child_models=self._child_models.get(brief.run_id, {}),
        )
        run = RunContext(brief, meter, services, self, control, environment)
        background = RecordedBackground(
            run, self._events, self._journal, self._hooks, self._stops, remove_varying_text
        )
        self._backgrounds[brief.run_id] = background
        run.background = background
        self._stops.add_run(run)
        return run

    def _handle_start(self, run_id: str) -> None:
        """Send the first messages of a run, and start the runs that its messages began."""
        self._hooks.send_messages(run_id, 0)
        self._backgrounds[run_id].start_next_runs(self._next_briefs.get(run_id, ()))


def _always(model: ReplayModel) -> Callable[[str], ReplayModel]:
    return lambda name: model


def _find_session_id(events: Sequence[StoredEvent]) -> str:
    return next((event.prompt_id.split("#", 1)[0] for event in events if event.prompt_id), "")


def _make_recorded_tools(events: Sequence[StoredEvent]) -> dict[str, Tool]:
    """Return each tool that a run had: the built-in one, or a stand-in."""
    briefs = [event.brief for event in events if isinstance(event, RunStarted)]
    tools = [set(brief.tools) - ({MESSAGE_TOOL} if brief.name else set()) for brief in briefs]
    names = set[str]().union(*(brief.tools for brief in briefs))
    # Tools of the user had these names, too.
    are_engine_tools = all("task" in each for each in tools if each & RUN_TOOLS.keys())
    engine_tools = {**RUN_TOOLS, "merge": MERGE_TOOL} if are_engine_tools else {}
    builtin = {**make_builtin_tools(), **engine_tools}
    made = {name: builtin.get(name) or _make_stand_in(name) for name in names}
    if not is_board_offered(events):
        on_request = {name: made[name] for name in BOARD_TOOLS if name in made}
        made |= {name: replace(tool, offered_to="request") for name, tool in on_request.items()}
    return made


def _make_stand_in(name: str) -> Tool:
    async def fail(context: object, arguments: object) -> NoReturn:
        raise ReplayDiverged(f"{name} has no recorded result")

    return Tool(name=name, description="", parameters={"type": "object"}, parse=dict, run=fail)


def _find_child_models(events: Sequence[StoredEvent]) -> dict[str, dict[str, str]]:
    """Return the rules that each run had for the models of its children, by run id."""
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
