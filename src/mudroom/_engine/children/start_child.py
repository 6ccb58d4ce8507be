"""Start of children, by calls of the task tool and after an interruption."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..._core.agents import Agent
from ..._core.listings import find_entries
from ..._core.run_ids import split_run_id
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import ToolResult
from ..._projections.engine_text import quote
from ...errors import BudgetExceeded, suggest_names
from ..call_context import CallContext
from ..inbox.inbox import make_notification
from ..resume import report_interrupted
from ..run_context import RunContext
from .child_brief import allocate, list_agents, make_brief, resolve_model, select_agents, simplify
from .child_run import ChildRun, find_refusal, make_start_result
from .open_team import open_team, prepare_team
from .task_arguments import TaskArguments

if TYPE_CHECKING:
    from .team import Team


async def start_child(context: CallContext, arguments: TaskArguments) -> ToolResult:
    """Start a child as a call of the task tool asks; return its report, or that it works."""
    run = context.run
    agents = select_agents(run)
    if arguments.find:
        matching = find_entries(arguments.find, list_agents(agents))
        return ToolResult(matching or f"No agent fits {arguments.find!r}.")
    agent = agents.get(simplify(arguments.agent))
    if agent is None:
        hint = suggest_names(arguments.agent, [agent.name for agent in agents.values()])
        return ToolResult(f"There is no agent {arguments.agent!r}. {hint}", error=True)
    if run.background.is_reported(context.place):
        return make_start_result(context.place)
    needs_name = arguments.plan or agent.is_teammate or agent.claims_tasks
    if not (arguments.name or needs_name):
        child = await _start(context, agent, arguments)
    else:
        child = await _start_named(context, agent, arguments)
    if isinstance(child, str):
        return ToolResult(f"No child was started: {child}", error=True)
    return child.work_in_background() if arguments.background else await child.wait_for_result()


async def _start_named(
    context: CallContext, agent: Agent, arguments: TaskArguments
) -> ChildRun | str:
    """Start a child with a name, and return it; or return the reason why it does not start."""
    team = open_team(context.run)
    place = context.place
    try:
        name = team.members.reserve(arguments.name, agent, place, needs_name=arguments.plan)
    except ValueError as error:
        return str(error)
    try:
        child = await _start(context, agent, replace(arguments, name=name), team)
    except BaseException:
        team.members.release(name, place)
        raise
    if isinstance(child, str):
        team.members.release(name, place)
    return child


async def _start(
    context: CallContext, agent: Agent, arguments: TaskArguments, team: Team | None = None
) -> ChildRun | str:
    """Start a child and return it, or return the reason why it does not start."""
    run = context.run
    model = resolve_model(run, agent, arguments)
    try:
        grant = await allocate(run, context.place, agent, arguments.max_turns)
    except BudgetExceeded as error:
        return f"{error}. Ask for less, or do the rest yourself."
    teammates = team.members.describe_others(arguments.name, context.place) if team else ()
    brief = make_brief(context, agent, arguments, model, grant, teammates)
    if refusal := await find_refusal(run, brief, grant):
        return refusal
    return ChildRun(context, brief, grant, team)


async def restart_background_work(run: RunContext) -> None:
    """Continue the background children that an earlier process left without a notification.

    A command cannot continue: its notification says so.
    """
    for run_id, call in run.background.interrupted.items():
        tool = run.tools.get(normalize_tool_name(call.name))
        if tool is None or not tool.needs_children:
            report_interrupted(run, run_id)
            continue
        _, turn, position = split_run_id(run_id)
        context = CallContext(run, call, position, turn)
        arguments = tool.parse_arguments(call.arguments | {"background": True})
        result = await tool.run(context, arguments)
        if result.error:
            title = str(call.arguments.get(tool.title_argument, call.name))
            run.inbox.put(make_notification(run_id, "failed", title, quote(result.text)))
    run.background.interrupted.clear()
    if team := prepare_team(run):
        await team.restart()
    await asyncio.sleep(0)  # The children restore what they spent before the run spends more.
