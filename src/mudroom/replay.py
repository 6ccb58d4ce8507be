"""Run a recorded session again with no model and no effect, and get the same events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ._core.agents import Brief
from ._core.budgets import Budget
from ._core.events import RunStarted, StoredEvent, ToolCallStarted
from ._core.tools import Tool
from ._engine.replay_check import (
    RecordedEvents,
    RecordedOutcomes,
    ReplayDiverged,
    recorded_briefs,
    recorded_conversations,
)
from ._engine.services import SessionServices
from ._engine.task import task_tool
from ._platform.scratch_dirs import ScratchDir
from .build import SystemClock
from .models.replay_model import ReplayModel, remove_varying_text
from .output_filters.injection_marker import mark_injection
from .tools import builtin_tools
from .workers.local import LocalWorker


async def replay(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Run every root run of a record again, with all below it; the events, as they came again.

    Nothing is read, written, run or asked: answers, results and decisions are the recorded ones; what is tried is the engine.

    Errors: ReplayDiverged at the first event that is not as recorded.
    """
    journal, recorded = RecordedEvents(events, remove_varying_text), RecordedOutcomes(events)
    children = [
        event.brief for event in events if isinstance(event, RunStarted) and event.brief.parent
    ]
    agents = {brief.agent.name: brief.agent for brief in children}
    with ScratchDir() as spills:
        nothing: Any = None
        parts = SessionServices(
            session=_find_session_id(events),
            get_model=lambda name: model,
            journal=journal,
            workspace=nothing,
            sandbox=nothing,
            clock=SystemClock(),
            approver=recorded,
            policy=recorded,
            mark_report=mark_injection,
            toolbox={},
            agents=agents,
            spill_folder=spills,
            environment_text="",
            child_model=_find_child_model(children),
            child_budget=_find_child_budget(children, events),
        )
        worker = LocalWorker(
            replace(
                parts,
                toolbox=recorded.toolbox({**_recorded_tools(events), "task": task_tool(agents)}),
            ),
            1 << 20,
        )
        talks = recorded_conversations(events)
        model = ReplayModel(talks, cancel_run=lambda run_id: _cancel(worker, run_id))
        for brief in recorded_briefs(events):
            grant = parts.meters.open(brief.run_id, brief.budget)
            await worker.start(brief, grant).report()
    if journal.missing_events:
        raise ReplayDiverged(
            f"{len(journal.missing_events)} recorded events did not come again, first {journal.missing_events[0]!r}"[
                :2_000
            ]
        )
    return list(journal.read())


def _cancel(worker: LocalWorker, run_id: str) -> None:
    if handle := worker.find(run_id):
        handle.cancel()


def _find_session_id(events: Sequence[StoredEvent]) -> str:
    return next((event.prompt_id.split("#", 1)[0] for event in events if event.prompt_id), "")


def _recorded_tools(events: Sequence[StoredEvent]) -> dict[str, Tool]:
    """The built-in tools, and a stand-in for every other tool a run had."""
    names = {
        name for event in events if isinstance(event, RunStarted) for name in event.brief.tools
    }
    built = builtin_tools()
    return {name: built.get(name) or _make_stand_in(name) for name in names}


def _make_stand_in(name: str) -> Tool:
    async def never(context: Any, arguments: Any) -> Any:
        raise ReplayDiverged(f"{name} has no recorded result")

    return Tool(name=name, description="", parameters={"type": "object"}, parse=dict, run=never)


def _find_child_model(children: Sequence[Brief]) -> str:
    return next((brief.model for brief in children if brief.agent.model == "inherit"), "")


def _find_child_budget(children: Sequence[Brief], events: Sequence[StoredEvent]) -> Budget:
    """What children were given who asked for nothing."""
    asked = {
        event.call.id
        for event in events
        if isinstance(event, ToolCallStarted) and "max_turns" in event.call.arguments
    }
    turns = (
        brief.budget.turns
        for brief in children
        if brief.call_id not in asked and brief.agent.budget.turns is None
    )
    return Budget(turns=next(turns, 30))
