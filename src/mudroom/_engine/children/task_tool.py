"""The task tool: starts a child run on the worker and returns its report."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..._core.agents import Agent
from ..._core.listings import find_entries, format_entries
from ..._core.run_ids import split_run_id
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ...errors import suggest_names
from ..call_context import CallContext
from ..inbox.notification import make_notification
from ..resume import report_interrupted
from ..run_context import RunContext
from .child_brief import allocate, make_brief, resolve_model, select_agents, simplify
from .child_run import ChildRun, find_refusal, make_start_result
from .task_arguments import ISOLATIONS, TaskArguments
from .team import Team, open_team

_DESCRIPTION = (
    "Give a self-contained piece of work to a child agent with a clean context of its own. "
    "Use it for research, analysis or any work whose intermediate output you need not see: "
    "the child reads and runs things, only its final report comes back. It knows nothing of this "
    "conversation, so put all it needs into the prompt. "
    "Several calls in one answer run at the same time.\nAgents:\n"
)

_FIND = "words; starts no child, but lists the agents that fit, with whole descriptions"

_BACKGROUND = "return at once; the report comes later as a task-notification"

_OTHER_WORDS = ("worktree", "copy", "clone")
"""Words of other programs for an isolated workspace."""

_ISOLATION = "isolated: files of its own; its changes are merged into yours at its end"

_NAME = "name it: send_message then starts it again, with all it knows"

_PLAN = "it only reads and reports a plan; answer with send_message and approve"


_OTHER_ARGUMENTS = {
    "subagent_type": "agent",
    "agent_name": "agent",
    "maxTurns": "max_turns",
    "run_in_background": "background",
    "message": "prompt",
    "instructions": "prompt",
    "task_name": "name",
}
"""Names of arguments in other programs."""


def list_agents(agents: Mapping[str, Agent]) -> list[tuple[str, str]]:
    """Return names and descriptions of agents."""
    return [(agent.name, agent.description) for agent in agents.values()]


def make_task_tool(
    agents: Mapping[str, Agent],
    *,
    models: Sequence[str] = (),
    length: int | None = None,
    isolation: bool = False,
) -> Tool:
    """Return the task tool. Its description lists the agents.

    Arguments:
        models: model strings that it offers; with less than two it offers no choice.
        length: maximum characters of one description, None for all, 0 for none: the names are among
            the values of the argument.
        isolation: offers isolated workspaces.
    """
    listed = "" if length == 0 else format_entries(list_agents(agents), length)
    text = {"type": "string"}
    properties: dict[str, Any] = {
        "prompt": text | {"description": "the whole task"},
        "description": text | {"description": "3-5 words for the screen"},
        "agent": text | {"enum": list(agents)},
        "max_turns": {"type": "integer", "minimum": 1},
        "background": {"type": "boolean", "description": _BACKGROUND},
        "name": text | {"description": _NAME},
        "plan": {"type": "boolean", "description": _PLAN},
    }
    if isolation:
        properties["isolation"] = text | {"enum": list(ISOLATIONS), "description": _ISOLATION}
    if len(models) > 1:
        properties["model"] = text | {"enum": list(models)}
    if length is not None:
        properties["find"] = text | {"description": _FIND}
    return Tool(
        name="task",
        description=_DESCRIPTION + listed,
        parameters={
            "type": "object",
            "properties": properties,
            "required": ["prompt"] if length is None else [],
        },
        parse=_parse,
        run=_run,
        effect=Effect.KEYED,
        category=ToolCategory.AGENT,
        rule_argument="agent",
        title_argument="description",
        view="run",
        needs_children=True,
        keeps_results=True,
        argument_aliases=_OTHER_ARGUMENTS,
    )


def _parse(arguments: dict[str, Any]) -> TaskArguments:
    parsed = msgspec.convert(arguments, TaskArguments, strict=False)
    if parsed.isolation in _OTHER_WORDS:
        parsed = replace(parsed, isolation="isolated")
    if parsed.role:
        parsed = replace(parsed, prompt=f"{parsed.role}\n\n{parsed.prompt}", role="")
    if not parsed.prompt.strip() and not parsed.find:
        raise ValueError("prompt: empty; say what the child must do")
    if parsed.isolation and parsed.isolation not in ISOLATIONS:
        choices = " or ".join(ISOLATIONS)
        raise ValueError(f"isolation: {parsed.isolation!r} is not known; use {choices}")
    if parsed.max_turns is not None and parsed.max_turns < 1:
        raise ValueError("max_turns: at least 1")
    return parsed


async def _run(context: CallContext, arguments: TaskArguments) -> ToolResult:
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
    except ValueError as error:
        return f"{error}. Ask for less, or do the rest yourself."
    teammates = team.members.describe_others(arguments.name, context.place) if team else ()
    brief = make_brief(context, agent, arguments, model, grant, teammates)
    if refusal := await find_refusal(run, brief, grant):
        return refusal
    return ChildRun(context, brief, grant, team)


def prepare_team(run: RunContext) -> Team | None:
    """Open the team of a run that has named children already, and return it."""
    has_names = bool(run.services.teams.roster.list_teammates(run.run_id))
    return open_team(run) if has_names else None


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
            run.inbox.put(make_notification(run_id, "failed", title, result.text))
    run.background.interrupted.clear()
    if team := prepare_team(run):
        await team.restart()
    await asyncio.sleep(0)  # The children restore what they spent before the run spends more.
