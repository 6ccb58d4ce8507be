"""Starts children for the task tool, and a run's team."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..._core.agents import Agent
from ..._core.listings import find_entries
from ..._core.tools import ToolResult
from ...errors import BudgetExceeded, suggest_names
from ..call_context import CallContext
from ..run_context import RunContext
from .child_brief import (
    TaskArguments,
    allocate,
    list_agents,
    make_brief,
    resolve_model,
    select_agents,
    simplify,
)
from .child_run import ChildRun, find_refusal, make_start_result

if TYPE_CHECKING:
    from .team import Team


async def start_child(context: CallContext, arguments: TaskArguments) -> ToolResult:
    """Start a child for a task call; return its report, or that it is working."""
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
    """Start a named child and return it, or the reason why it does not start."""
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


def open_team(run: RunContext) -> Team:
    from .team import Team

    team = run.services.teams.get(run.run_id)
    if not isinstance(team, Team):
        team = Team(run)
        run.services.teams.open(run.run_id, team)
    return team
