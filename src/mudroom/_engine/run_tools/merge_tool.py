"""The merge tool: decides what happens to a child's unmerged work."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..._core.events import WorkMerged
from ..._core.ports import MergeChoice
from ..._core.runs import Brief, Work
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..._projections.engine_text import quote
from ...errors import suggest_names
from ..call_context import CallContext
from ..children.child_run import ChildRun, make_start_result, prepare_return
from ..children.merge import find_recorded_merge, merge_once
from ..children.start_child import open_team

_DESCRIPTION = (
    "Decide on unmerged work. return: to the child; clean: all but conflicts; side: one version"
)


class MergeArguments(Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    how: Literal["return", "retry", "clean", "side", "drop"] = "return"
    side: Literal["", "parent", "child"] = ""
    paths: tuple[str, ...] = ()
    background: bool = False


def _parse(arguments: dict[str, Any]) -> MergeArguments:
    parsed = msgspec.convert(arguments, MergeArguments, strict=False)
    if parsed.how == "side" and not parsed.side:
        raise ValueError("side: say whose version to take: parent or child")
    if parsed.how != "side" and (parsed.side or parsed.paths):
        raise ValueError(f"how: {parsed.how!r} takes no side and no paths; use side")
    return parsed


_DROPPED = "[merge: nothing is merged; all work of the child is kept as run {run}]"


async def merge_work(context: CallContext, arguments: MergeArguments) -> ToolResult:
    """Merge or drop the work, or give it back to the child; return the call's result."""
    run = context.run
    if run.background.is_reported(context.place):
        return make_start_result(context.place)
    merged = find_recorded_merge(run, call=context.place)
    if merged is None:
        team = open_team(run)
        child = team.find_open_work(arguments.run)
        trees = run.environment.trees
        brief = run.services.teams.find_brief(child)
        work = None
        if brief and trees:
            work = await asyncio.to_thread(trees.find_work, child)
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
    """Merge a child's work as the call requests, and record the outcome."""
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
    """Start the run in which a child gets its work back, or return why it does not start."""
    run = context.run
    earlier = run.services.teams.find_brief(merged.child)
    if earlier is None:
        return "[The work could not go back to the child: its conversation is not known.]"
    try:
        brief, grant = await prepare_return(run, replace(earlier, call_id=context.call_id), merged)
    except ValueError as error:
        return f"[The work could not go back to the child: {quote(str(error))}]"
    team = open_team(run) if brief.name else None
    if team:
        team.members.begin(brief)
    return ChildRun(context, brief, grant, team)


MERGE_TOOL = Tool(
    name="merge",
    description=_DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {
            "run": {"type": "string"},
            "how": {"type": "string", "enum": ["return", "retry", "clean", "side", "drop"]},
            "side": {"type": "string", "enum": ["parent", "child"]},
            "paths": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["run"],
    },
    parse=_parse,
    run=merge_work,
    effect=Effect.KEYED,
    category=ToolCategory.AGENT,
    title_argument="run",
    needs_children=True,
    argument_aliases={"name": "run", "task_id": "run", "to": "run", "child": "run"},
)
