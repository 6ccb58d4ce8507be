"""Decision on the work of a child that is not merged, as a call of the merge tool asks."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from ..._core.events import WorkMerged
from ..._core.ports import MergeChoice
from ..._core.runs import Brief, Work
from ..._core.tools import ToolResult
from ..._projections.engine_text import quote
from ...errors import suggest_names
from ..call_context import CallContext
from ..children.child_run import ChildRun, make_start_result, prepare_return
from ..children.merge import find_recorded_merge, merge_once
from ..children.open_team import open_team
from .merge_arguments import MergeArguments

_DROPPED = "[merge: nothing is merged; all work of the child is kept as run {run}]"


async def merge_work(context: CallContext, arguments: MergeArguments) -> ToolResult:
    """Merge or drop the work, or give it back to the child; return the result of the call."""
    run = context.run
    if run.background.is_reported(context.place):
        return make_start_result(context.place)
    merged = find_recorded_merge(run, call=context.place)
    if merged is None:
        team = open_team(run)
        child = team.find_open_work(arguments.run)
        isolation = run.environment.isolation
        brief = run.services.teams.find_brief(child)
        work = None
        if brief and isolation:
            work = await asyncio.to_thread(isolation.find_work, child)
        if brief is None or work is None:
            hint = suggest_names(arguments.run, team.list_open_work())
            text = f"No work of {arguments.run!r} waits to be merged. {hint}"
            return ToolResult(text, error=True)
        if brief.name in team.members.active:
            return ToolResult(f"{brief.name} works: merge when it has reported.", error=True)
        merged = await _merge(context, brief, work, arguments)
    if merged.returned:
        returned = await _return_work(context, merged)
        if isinstance(returned, str):
            return ToolResult(f"{merged.text}\n{returned}", error=True)
        if arguments.background:
            return returned.work_in_background()
        return await returned.wait_for_result()
    is_error = merged.state in ("conflict", "refused")
    detail = {"merge": merged.state}
    return ToolResult(merged.text, is_error, changes=merged.files, detail=detail)


async def _merge(
    context: CallContext, brief: Brief, work: Work, arguments: MergeArguments
) -> WorkMerged:
    """Merge the work of a child as the call asks, and record the outcome."""
    recorder = context.run.recorder
    child = brief.run_id
    if arguments.how == "drop":
        text = _DROPPED.format(run=child)
        event = recorder.make_event(
            WorkMerged, child=child, state="dropped", text=text, call=context.place
        )
        await recorder.record(event)
        context.run.evidence.add_merge(event)
        return event

    async def prepare(event: WorkMerged) -> WorkMerged:
        return replace(event, returned=context.place)

    side = "parent" if arguments.how == "clean" else arguments.side
    return await merge_once(
        context,
        brief,
        work,
        prepare if arguments.how == "return" else None,
        call=context.place,
        choice=MergeChoice(side, arguments.paths),
    )


async def _return_work(context: CallContext, merged: WorkMerged) -> ChildRun | str:
    """Start the run with which a child gets its work back, or return why it does not start."""
    run = context.run
    earlier = run.services.teams.find_brief(merged.child)
    if earlier is None:
        return "[The work could not go back to the child: its conversation is not known.]"
    call_id = context.call.id if context.call else ""
    try:
        brief, grant = await prepare_return(run, replace(earlier, call_id=call_id), merged)
    except ValueError as error:
        return f"[The work could not go back to the child: {quote(str(error))}]"
    team = open_team(run) if brief.name else None
    if team:
        team.members.begin(brief)
    return ChildRun(context, brief, grant, team)
