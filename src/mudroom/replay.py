"""Replay: run a recorded session again without a model and without effects, and compare the events.

The adapters of a replay are chosen here; those of a session in `build.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ._core.agents import WorkspaceSpec
from ._core.budgets import Budget
from ._core.events import RunStarted, StoredEvent, ToolCallStarted
from ._core.ports import Environment
from ._core.runs import Brief, InboxMessage
from ._core.tools import Tool
from ._engine.replay_check import (
    RecordedEvents,
    RecordedHooks,
    RecordedOutcomes,
    RecordedOutputChecks,
    ReplayDiverged,
    rebuild_briefs,
    rebuild_conversations,
)
from ._engine.session_context import SessionServices, SingleEnvironment
from ._engine.task import make_task_tool
from ._platform.scratch_dirs import ScratchDir
from ._platform.system_clock import SystemClock
from .models.replay_model import ReplayModel, remove_varying_text
from .output_filters.injection_marker import mark_injection
from .pricing import calculate_cost
from .tools import builtin_tools
from .workers.local import LocalWorker

UNLIMITED = 1 << 20
"""Maximum of children at the same time: the replay must not wait where the record did not."""

MAX_ERROR_LENGTH = 2_000


async def replay(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Run every root run of a record again, with all runs below it; return the new events.

    No file, command, model or user is needed: answers, results and decisions come from the record.
    Only the engine is tested.

    Raises ReplayDiverged at the first event that differs from the record.
    """
    journal = RecordedEvents(events, remove_varying_text)
    outcomes = RecordedOutcomes(events)
    children = [
        event.brief for event in events if isinstance(event, RunStarted) and event.brief.parent
    ]
    agents = {brief.agent.name: brief.agent for brief in children}
    tools = {**_make_recorded_tools(events), "task": make_task_tool(agents)}
    unused: Any = None
    environment = Environment(
        spec=WorkspaceSpec(), workspace=unused, sandbox=unused, policy=outcomes
    )
    hooks = RecordedHooks(events, lambda run_id, message: _send(worker, run_id, message))
    journal.on_run_start = lambda run_id: hooks.send_messages(run_id, 0)
    with ScratchDir() as spill_folder:
        services = SessionServices(
            session=_find_session_id(events),
            get_model=lambda name: model,
            journal=journal,
            environments=SingleEnvironment(environment),
            clock=SystemClock(),
            approver=outcomes,
            mark_report=mark_injection,
            toolbox=outcomes.make_toolbox(tools),
            agents=agents,
            compute_price=calculate_cost,
            spill_folder=spill_folder,
            environment_text="",
            child_model=_find_child_model(children),
            child_budget=_find_child_budget(children, events),
            output_checks=RecordedOutputChecks(events),
            hooks=hooks,
        )
        worker = LocalWorker(services, UNLIMITED)
        model = ReplayModel(
            rebuild_conversations(events), cancel_run=lambda run_id: _cancel(worker, run_id)
        )
        for brief in rebuild_briefs(events):
            grant = services.meters.open(brief.run_id, brief.budget)
            await worker.start(brief, grant).report()
    missing = journal.missing_events
    if missing:
        message = f"{len(missing)} recorded events did not come again, the first: {missing[0]!r}"
        raise ReplayDiverged(message[:MAX_ERROR_LENGTH])
    return [event async for event in journal.read()]


def _send(worker: LocalWorker, run_id: str, message: InboxMessage) -> None:
    if handle := worker.find(run_id):
        handle.send(message)


def _cancel(worker: LocalWorker, run_id: str) -> None:
    if handle := worker.find(run_id):
        handle.cancel()


def _find_session_id(events: Sequence[StoredEvent]) -> str:
    return next((event.prompt_id.split("#", 1)[0] for event in events if event.prompt_id), "")


def _make_recorded_tools(events: Sequence[StoredEvent]) -> dict[str, Tool]:
    """Return each tool that a run had: the built-in one, or a stand-in."""
    names = {
        name for event in events if isinstance(event, RunStarted) for name in event.brief.tools
    }
    builtin = builtin_tools()
    return {name: builtin.get(name) or _make_stand_in(name) for name in names}


def _make_stand_in(name: str) -> Tool:
    async def fail(context: object, arguments: object) -> NoReturn:
        raise ReplayDiverged(f"{name} has no recorded result")

    return Tool(name=name, description="", parameters={"type": "object"}, parse=dict, run=fail)


def _find_child_model(children: Sequence[Brief]) -> str:
    return next((brief.model for brief in children if brief.agent.model == "inherit"), "")


def _find_child_budget(children: Sequence[Brief], events: Sequence[StoredEvent]) -> Budget:
    """Return the limits of children for which neither agent nor call set any."""
    calls_with_limit = {
        event.call.id
        for event in events
        if isinstance(event, ToolCallStarted) and "max_turns" in event.call.arguments
    }
    for brief in children:
        if brief.call_id not in calls_with_limit and brief.agent.budget.turns is None:
            return Budget(turns=brief.budget.turns)
    return Budget(turns=30)
