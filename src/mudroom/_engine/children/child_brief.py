"""Brief of a child run: its agent, its model, the tools that it may have and its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from ..._core.agents import Agent, WorkspaceKind, WorkspaceSpec, choose_child_model
from ..._core.budgets import Budget, Grant
from ..._core.events import RunStarted
from ..._core.runs import Brief
from ..._core.tool_patterns import list_call_patterns, parse_tool_patterns, select_tools
from ..._core.tools import Tool
from ..call_context import CallContext
from ..run_context import RunContext
from .task_arguments import TaskArguments

_MAX_DESCRIPTION = 60
"""Maximum characters of the prompt's first line, the description if the call has none."""


def narrow_tools(
    tools: Mapping[str, Tool],
    patterns: Sequence[str] | None,
    *,
    depth: int,
    is_root: bool = False,
) -> tuple[str, ...]:
    """Return the names of the tools that an agent's patterns select from its parent's.

    `task` is among them only if depth is left, and the other tools for children only beside it.
    """
    chosen = set(select_tools(tools, patterns))
    if not is_root:
        named = {pattern.tool for pattern in parse_tool_patterns(patterns)}
        chosen = {name for name in chosen if tools[name].is_inherited or name in named}
    starts_children = depth > 0 and "task" in chosen
    return tuple(
        name
        for name, tool in tools.items()
        if (starts_children if tool.needs_children else name in chosen)
    )


def select_agents(run: RunContext) -> dict[str, Agent]:
    """Return the agents that the run may call, by simplified name."""
    names = select_tools(run.services.agents, run.brief.agent.children)
    return {simplify(name): run.services.agents[name] for name in names}


def resolve_model(run: RunContext, agent: Agent, arguments: TaskArguments) -> str:
    """Return the model string of the child. Raises MudroomError if there is no such model."""
    requested = arguments.model or agent.model
    if requested == "inherit":
        requested = choose_child_model(run.services.child_models, agent.name, run.brief.model)
    run.services.get_model(requested)
    return requested


async def allocate(context: CallContext, agent: Agent, arguments: TaskArguments) -> Grant:
    """Reserve the child's budget. Raises ValueError if the parent's does not suffice."""
    run = context.run
    recorded = next(iter(run.services.past_events.get(context.place, ())), None)
    if isinstance(recorded, RunStarted):
        return run.services.meters.reopen(run.meter, context.place, recorded.brief.budget)
    requested = Budget(turns=arguments.max_turns).with_defaults(agent.budget)
    return await run.services.meters.allocate(
        run.meter,
        context.place,
        requested.with_defaults(run.services.child_budget),
        run.timer.age,
    )


def make_brief(
    context: CallContext, agent: Agent, arguments: TaskArguments, model: str, grant: Grant
) -> Brief:
    parent = context.run.brief
    toolbox = context.run.services.toolbox
    parent_tools = select_tools(parent.tools, parent.agent.child_tools)
    own_limits = (parent.agent.call_patterns, list_call_patterns(parent.agent.child_tools))
    first_line = arguments.prompt.strip().splitlines()[0]
    return Brief(
        run_id=grant.run_id,
        parent=parent.run_id,
        call_id=context.call.id if context.call else "",
        agent=agent,
        prompt=arguments.prompt,
        description=arguments.description or first_line[:_MAX_DESCRIPTION],
        tools=narrow_tools(
            {name: toolbox[name] for name in parent_tools if name in toolbox},
            agent.tools,
            depth=grant.budget.depth or 0,
        ),
        model=model,
        budget=grant.budget,
        depth=parent.depth + 1,
        mode=(agent.mode or parent.mode).limit_to(parent.mode),
        inherited_patterns=(*parent.inherited_patterns, *filter(None, own_limits)),
        workspace=_choose_workspace(context.run, agent, arguments, grant.run_id),
    )


def _choose_workspace(
    run: RunContext, agent: Agent, arguments: TaskArguments, run_id: str
) -> WorkspaceSpec:
    """Return the workspace of a child: its parent's, a copy of it, or an isolated one."""
    shared = run.environment.spec
    kind = agent.workspace
    if kind is WorkspaceKind.SHARED and arguments.isolation:
        kind = WorkspaceKind(arguments.isolation)
    if kind is WorkspaceKind.SHARED:
        return shared
    if kind is WorkspaceKind.ISOLATED:
        return WorkspaceSpec(kind, shared.root, run_id, shared.owner)
    return WorkspaceSpec(WorkspaceKind.COPY, shared.root)


@lru_cache(maxsize=256)
def simplify(name: str) -> str:
    """Return the name in lower case without anything but letters and digits."""
    return "".join(char for char in name.lower() if char.isalnum())
