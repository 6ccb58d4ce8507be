"""A child run's brief: its agent, model, permitted tools and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..._core.agents import Agent, Mode, WorkspaceKind, WorkspaceSpec, choose_child_model
from ..._core.budgets import Grant, limit_turns
from ..._core.events import RunStarted, WorkMerged
from ..._core.runs import Brief, InboxMessage
from ..._core.tool_names import (
    list_call_patterns,
    list_server_patterns,
    narrow_server_patterns,
    parse_tool_patterns,
    select_tools,
)
from ..._core.tools import Tool, ToolCategory
from ..._projections.engine_text import quote
from ..._projections.team import MESSAGE_TOOL
from ..inbox import format_message
from ..recorded_conversations import find_workspace
from ..run_context import RunContext

if TYPE_CHECKING:
    from ..call_context import CallContext


_MEMO_KEY = "task"  # key in a run's memo for its children's tools
_MAX_DESCRIPTION = 60  # characters of the prompt's first line, if a call has no description


def narrow_tools(
    tools: Mapping[str, Tool],
    patterns: Sequence[str] | None,
    *,
    may_have_children: bool,
    is_root: bool = False,
    is_named: bool = False,
) -> tuple[str, ...]:
    """Select from the parent's tools, by an agent's patterns; return their names.

    `task` is included only if the run may have children, and other tools for children only together
    with `task`. A named child always gets the tool for messages.
    """
    named = {pattern.tool for pattern in parse_tool_patterns(patterns)}
    offers = {"all", "root"} if is_root else {"all"}
    chosen = {
        name
        for name in select_tools(tools, patterns)
        if tools[name].offered_to in offers or name in named
    }
    if may_have_children and "task" in chosen:
        chosen |= {name for name, tool in tools.items() if tool.needs_children}
    else:
        chosen -= {name for name, tool in tools.items() if tool.needs_children}
    if is_named:
        chosen.add(MESSAGE_TOOL)
    return tuple(name for name in tools if name in chosen)


def list_agents(agents: Mapping[str, Agent]) -> list[tuple[str, str]]:
    return [(agent.name, quote(agent.description)) for agent in agents.values()]


def select_agents(run: RunContext) -> dict[str, Agent]:
    """Return the agents the run may call, by simplified name."""
    names = select_tools(run.services.agents, run.brief.agent.children)
    return {simplify(name): run.services.agents[name] for name in names}


def resolve_model(run: RunContext, agent: Agent, arguments: TaskArguments) -> str:
    """Resolve the child's model string. Raises MudroomError if there is no such model."""
    requested = arguments.model or agent.model
    if requested == "inherit":
        requested = choose_child_model(run.services.child_models, agent.name, run.brief.model)
    run.services.get_model(requested)
    return requested


async def allocate(run: RunContext, run_id: str, agent: Agent, turns: int | None) -> Grant:
    """Reserve a child's budget. Raises BudgetExceeded if the run's own does not suffice.

    Without `turns`, the agent's apply.
    """
    recorded = next(iter(run.services.past_events.get(run_id, ())), None)
    if isinstance(recorded, RunStarted):
        return run.services.meters.reopen(run.meter, run_id, recorded.brief.budget)
    requested = agent.budget if turns is None else replace(agent.budget, turns=turns)
    return await run.services.meters.allocate(
        run.meter,
        run_id,
        requested.with_defaults(limit_turns(run.services.children.turns)),
        run.timer.age,
    )


def make_brief(
    context: CallContext,
    agent: Agent,
    arguments: TaskArguments,
    model: str,
    grant: Grant,
    teammates: tuple[str, ...] = (),
) -> Brief:
    parent = context.run.brief
    is_plan = arguments.plan
    tools = _choose_tools(context.run, agent, grant, is_named=bool(arguments.name))
    mode = _choose_mode(context.run, agent, is_plan=is_plan)
    may_write = mode is not Mode.PLAN and _has_writing_tool(context.run, tools)
    return Brief(
        run_id=grant.run_id,
        parent=parent.run_id,
        call_id=context.call_id,
        agent=agent,
        prompt=arguments.prompt,
        description=arguments.description or _get_first_line(arguments.prompt),
        tools=tools,
        model=model,
        budget=grant.budget,
        depth=parent.depth + 1,
        mode=mode,
        inherited_patterns=_list_patterns(context.run),
        workspace=_choose_workspace(
            context.run, agent, arguments.isolation, grant.run_id, may_write=may_write
        ),
        name=arguments.name,
        teammates=teammates,
        is_plan=is_plan,
    )


def make_next_brief(
    run: RunContext,
    earlier: Brief,
    messages: Sequence[InboxMessage],
    grant: Grant,
    *,
    call_id: str = "",
    teammates: tuple[str, ...] = (),
) -> Brief:
    """Make the brief of a named child's next run, which begins with messages.

    It gets the rights that its parent, `run`, would give a new child with this agent. Plan mode
    ends only with the approval of the parent or the user; the last answer counts. `call_id` is the
    parent's call that sends the message, if one does.
    """
    approvers = ("user", run.run_id)
    answers = [each.approve for each in messages if each.sender in approvers]
    is_approved = next((each for each in reversed(answers) if each is not None), False)
    brief = replace(earlier, is_plan=earlier.is_plan and not is_approved)
    return replace(
        _continue_brief(run, brief, grant),
        call_id=call_id,
        prompt="\n\n".join(map(format_message, messages)),
        description=_get_first_line(messages[0].text),
        teammates=teammates,
        message_ids=tuple(message.id for message in messages),
        board_task=next((message.task for message in messages if message.task), 0),
    )


def make_returned_brief(run: RunContext, earlier: Brief, merged: WorkMerged, grant: Grant) -> Brief:
    """Make the brief of the run in which a child gets its work back.

    `earlier` is the brief of the run that did the work. `merged` says why the work comes back and
    has the files to start from.
    """
    from .returned_work import make_return_prompt

    brief = _continue_brief(run, earlier, grant)
    return replace(
        brief,
        prompt=make_return_prompt(merged),
        workspace=replace(
            brief.workspace,
            base=merged.base,
            tree=merged.tree,
            own=merged.own,
            conflicts=merged.open_conflicts,
        ),
        message_ids=(),
    )


def _continue_brief(run: RunContext, earlier: Brief, grant: Grant) -> Brief:
    """Make the brief of a run that continues a conversation with a new child's rights."""
    agent = earlier.agent
    is_isolated = earlier.workspace.kind is WorkspaceKind.ISOLATED
    isolation = WorkspaceKind.ISOLATED if is_isolated else WorkspaceKind.SHARED
    return replace(
        earlier,
        run_id=grant.run_id,
        parent=run.run_id,
        content=(),
        tools=_choose_tools(run, agent, grant, is_named=bool(earlier.name)),
        budget=grant.budget,
        depth=run.brief.depth + 1,
        continues=earlier.run_id,
        history=run.services.teams.list_history(earlier.run_id),
        mode=_choose_mode(run, agent, is_plan=earlier.is_plan),
        inherited_patterns=_list_patterns(run),
        workspace=_choose_workspace(run, agent, isolation, grant.run_id),
    )


def _get_first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:_MAX_DESCRIPTION]


def _choose_tools(
    run: RunContext, agent: Agent, grant: Grant, *, is_named: bool
) -> tuple[str, ...]:
    """Choose a child's tools: those its parent has and its agent allows.

    Tools on request reach the child through a parent that does not exclude them.
    """
    # Every grant states its levels: `SessionMeter.limit_budget` fills them in at the root.
    may_have_children = bool(grant.budget.depth)
    patterns = None if agent.tools is None else tuple(agent.tools)
    key = (patterns, may_have_children, is_named)
    # The calls of one answer may start many children with the same agent.
    selected: dict[object, tuple[str, ...]] = run.memo.setdefault(_MEMO_KEY, {})
    if key not in selected:
        selected[key] = _select_child_tools(
            run, agent, may_have_children=may_have_children, is_named=is_named
        )
    return selected[key]


def _select_child_tools(
    run: RunContext, agent: Agent, *, may_have_children: bool, is_named: bool
) -> tuple[str, ...]:
    toolbox = run.services.toolbox
    agent_of_parent = run.brief.agent
    on_request = [name for name, tool in toolbox.items() if tool.offered_to == "request"]
    available = dict.fromkeys((*run.brief.tools, *select_tools(on_request, agent_of_parent.tools)))
    parent_tools = select_tools(available, agent_of_parent.child_tools)
    tools = narrow_tools(
        {name: toolbox[name] for name in parent_tools if name in toolbox},
        agent.tools,
        may_have_children=may_have_children,
        is_named=is_named,
    )
    granted = list_server_patterns(run.brief.tools)
    granted = narrow_server_patterns(granted, agent_of_parent.child_tools)
    return (*tools, *narrow_server_patterns(granted, agent.tools))


def _choose_mode(run: RunContext, agent: Agent, *, is_plan: bool) -> Mode:
    """Choose a child's permission mode, never wider than its parent's."""
    if is_plan:
        return Mode.PLAN
    return (agent.mode or run.brief.mode).limit_to(run.brief.mode)


def _list_patterns(run: RunContext) -> tuple[tuple[str, ...], ...]:
    agent = run.brief.agent
    own = (agent.call_patterns, list_call_patterns(agent.child_tools))
    return (*run.brief.inherited_patterns, *filter(None, own))


def _has_writing_tool(run: RunContext, tools: Sequence[str]) -> bool:
    toolbox = run.services.toolbox
    categories = (toolbox[name].category for name in tools if name in toolbox)
    return any(category in (ToolCategory.WRITE, ToolCategory.RUN) for category in categories)


def _choose_workspace(
    run: RunContext, agent: Agent, isolation: str, run_id: str, *, may_write: bool = True
) -> WorkspaceSpec:
    """Choose a child's workspace: its parent's, a copy of it, or an isolated one.

    `isolation` is the kind requested by the call, "" for the agent's or the session's, which
    isolates only children that may change files.
    """
    if recorded := _find_recorded_workspace(run, run_id):
        return recorded
    shared = run.environment.spec
    kind = agent.workspace
    if isolation and kind is not WorkspaceKind.COPY:
        kind = WorkspaceKind(isolation)
    if kind is None and may_write and run.services.isolation.each_child and run.environment.trees:
        kind = WorkspaceKind.ISOLATED
    if kind is WorkspaceKind.ISOLATED:
        return WorkspaceSpec(
            kind,
            shared.root,
            run_id,
            shared.owner,
            base=shared.base,
            tree=shared.tree,
            machine=shared.machine,
        )
    if kind is WorkspaceKind.COPY:
        return WorkspaceSpec(kind, shared.root, base=shared.base, tree=shared.tree)
    return shared


def _find_recorded_workspace(run: RunContext, run_id: str) -> WorkspaceSpec | None:
    """Find a run's workspace in the record, which it keeps."""
    if run.services.recorded_work:
        return run.services.recorded_work.find_workspace(run_id)
    return find_workspace(run.services.past_events.get(run_id, ()))


@lru_cache(maxsize=256)
def simplify(name: str) -> str:
    """Return a name in lower case, with letters and digits only."""
    return "".join(char for char in name.lower() if char.isalnum())


ISOLATIONS = ("shared", "isolated")
"""Whose files a child works on: its parent's, or its own."""


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the task tool. `role` is put before the prompt."""

    prompt: str = ""
    description: str = ""
    agent: str = "general"
    max_turns: int | None = None
    model: str | None = None
    find: str = ""
    background: bool = False
    isolation: str = ""
    name: str = ""
    plan: bool = False
    role: str = ""
