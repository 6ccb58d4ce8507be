"""Run a recorded session again with no model and no effect, and get the same events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ._core.agents import Brief
from ._core.budgets import Budget, Meter
from ._core.events import CallStarted, RunStarted, Stored
from ._core.tools import Tool
from ._engine.replay_check import Recorded, RecordedEvents, ReplayDiverged, briefs, conversations
from ._engine.run_context import Parts
from ._engine.task import task_tool
from ._platform.scratch_dirs import Temporary
from .build import SystemClock
from .models.replay_model import ReplayedModel, timeless
from .output_filters.injection_marker import marked
from .tools import builtin
from .workers.local import LocalWorker


async def replay(events: Sequence[Stored]) -> list[Stored]:
    """Run every root run of a record again, with all below it; the events, as they came again.

    Nothing is read, written, run or asked: answers, results and decisions are the recorded ones; what is tried is the engine.

    Errors: ReplayDiverged at the first event that is not as recorded.
    """
    journal, recorded = RecordedEvents(events, timeless), Recorded(events)
    children = [
        event.brief for event in events if isinstance(event, RunStarted) and event.brief.parent
    ]
    agents = {brief.agent.name: brief.agent for brief in children}
    with Temporary() as spills:
        nothing: Any = None
        parts = Parts(
            session=_session(events),
            models=lambda name: model,
            journal=journal,
            workspace=nothing,
            sandbox=nothing,
            clock=SystemClock(),
            approver=recorded,
            policy=recorded,
            mark=marked,
            toolbox={},
            agents=agents,
            spills=spills,
            environment="",
            child_model=_child_model(children),
            child_budget=_child_budget(children, events),
        )
        worker = LocalWorker(
            replace(parts, toolbox=recorded.toolbox({**_tools(events), "task": task_tool(agents)})),
            1 << 20,
        )
        talks = conversations(events)
        model = ReplayedModel(talks, cut_off=worker.cancel)
        for brief in briefs(events):
            await worker.run(brief, Meter(brief.budget))
    if journal.missing:
        raise ReplayDiverged(
            f"{len(journal.missing)} recorded events did not come again, first {journal.missing[0]!r}"[
                :2_000
            ]
        )
    return list(journal.read())


def _session(events: Sequence[Stored]) -> str:
    return next((event.prompt_id.split("#", 1)[0] for event in events if event.prompt_id), "")


def _tools(events: Sequence[Stored]) -> dict[str, Tool]:
    """The built-in tools, and a stand-in for every other tool a run had."""
    names = {
        name for event in events if isinstance(event, RunStarted) for name in event.brief.tools
    }
    built = builtin()
    return {name: built.get(name) or _stand_in(name) for name in names}


def _stand_in(name: str) -> Tool:
    async def never(context: Any, arguments: Any) -> Any:
        raise ReplayDiverged(f"{name} has no recorded result")

    return Tool(name=name, description="", parameters={"type": "object"}, parse=dict, run=never)


def _child_model(children: Sequence[Brief]) -> str:
    return next((brief.model for brief in children if brief.agent.model == "inherit"), "")


def _child_budget(children: Sequence[Brief], events: Sequence[Stored]) -> Budget:
    """What children were given who asked for nothing."""
    asked = {
        event.call.id
        for event in events
        if isinstance(event, CallStarted) and "max_turns" in event.call.arguments
    }
    turns = (
        brief.budget.turns
        for brief in children
        if brief.call_id not in asked and brief.agent.budget.turns is None
    )
    return Budget(turns=next(turns, 30))
