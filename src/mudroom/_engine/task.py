"""The task tool: starts a child run on the worker and returns its report.

It makes the brief and allocates the budget. No other file creates child runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._core.agents import Agent, WorkspaceKind, WorkspaceSpec, choose_child_model
from .._core.budgets import Budget, Grant
from .._core.events import RunStarted
from .._core.listings import find_entries, format_entries
from .._core.ports import RunHandle
from .._core.runs import Brief, InboxMessage, Reason, Report
from .._core.tool_names import normalize_tool_name
from .._core.tool_patterns import list_call_patterns, select_tools
from .._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..errors import suggest_names
from .call_context import CallContext
from .child_report import format_report
from .inbox.notification import choose_status, make_notification
from .resume import report_interrupted
from .run_context import RunContext

_DESCRIPTION = (
    "Give a self-contained piece of work to a child agent with a clean context of its own. "
    "Use it for research, analysis or any work whose intermediate output you need not see: "
    "the child reads and runs things, only its final report comes back. It knows nothing of this "
    "conversation, so put all it needs into the prompt. "
    "Several calls in one answer run at the same time.\nAgents:\n"
)

_FIND = "words; starts no child, but lists the agents that fit, with whole descriptions"

_BACKGROUND = "return at once; the report comes later as a task-notification"

_MAX_DESCRIPTION = 60
"""Maximum characters of the prompt's first line, the description if the call has none."""

_COPY_NOTE = (
    "\n\n[The child worked in a copy of the folder, which is removed. Nothing is changed here.]"
)

NO_REPORT = "a child ended without a report"
"""Reason why the changes of a run are not known."""

STARTED = (
    "Started {run} in the background. Its report comes by itself as a task-notification; you know "
    "nothing of it before. Go on with other work, or end your turn."
)


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the task tool."""

    prompt: str = ""
    description: str = ""
    agent: str = "general"
    max_turns: int | None = None
    model: str | None = None
    find: str = ""
    background: bool = False


def list_agents(agents: Mapping[str, Agent]) -> list[tuple[str, str]]:
    """Return names and descriptions of agents."""
    return [(agent.name, agent.description) for agent in agents.values()]


def make_task_tool(
    agents: Mapping[str, Agent], *, models: Sequence[str] = (), length: int | None = None
) -> Tool:
    """Return the task tool. Its description lists the agents.

    Arguments:
        models: model strings that it offers; with less than two it offers no choice.
        length: maximum characters of one description, None for all, 0 for none: the names are among
            the values of the argument.
    """
    listed = "" if length == 0 else format_entries(list_agents(agents), length)
    text = {"type": "string"}
    properties: dict[str, Any] = {
        "prompt": text | {"description": "the whole task"},
        "description": text | {"description": "3-5 words for the screen"},
        "agent": text | {"enum": list(agents)},
        "max_turns": {"type": "integer", "minimum": 1},
        "background": {"type": "boolean", "description": _BACKGROUND},
    }
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
        argument_aliases={
            "subagent_type": "agent",
            "agent_name": "agent",
            "maxTurns": "max_turns",
            "run_in_background": "background",
            "message": "prompt",
            "instructions": "prompt",
        },
    )


def narrow_tools(
    tools: Mapping[str, Tool], patterns: Iterable[str] | None, *, depth: int
) -> tuple[str, ...]:
    """Return the names of the tools that an agent's patterns select from its parent's.

    `task` is among them only if depth is left, and the other tools for children only beside it.
    """
    chosen = set(select_tools(tools, patterns))
    starts_children = depth > 0 and "task" in chosen
    return tuple(
        name
        for name, tool in tools.items()
        if (starts_children if tool.needs_children else name in chosen)
    )


def _parse(arguments: dict[str, Any]) -> TaskArguments:
    parsed = msgspec.convert(arguments, TaskArguments, strict=False)
    if not parsed.prompt.strip() and not parsed.find:
        raise ValueError("prompt: empty; say what the child must do")
    if parsed.max_turns is not None and parsed.max_turns < 1:
        raise ValueError("max_turns: at least 1")
    return parsed


async def _run(context: CallContext, arguments: TaskArguments) -> ToolResult:
    run = context.run
    agents = _select_agents(run)
    if arguments.find:
        matching = find_entries(arguments.find, list_agents(agents))
        return ToolResult(matching or f"No agent fits {arguments.find!r}.")
    agent = agents.get(_simplify(arguments.agent))
    if agent is None:
        hint = suggest_names(arguments.agent, [agent.name for agent in agents.values()])
        return ToolResult(f"There is no agent {arguments.agent!r}. {hint}", error=True)
    if arguments.background and run.background.is_reported(context.place):
        return _make_start_result(context.place)
    model = _resolve_model(run, agent, arguments)
    try:
        grant = await _allocate(context, agent, arguments)
    except ValueError as error:
        text = f"No child was started: {error}. Ask for less, or do the rest yourself."
        return ToolResult(text, error=True)
    brief = _make_brief(context, agent, arguments, model, grant)
    try:
        run.services.check_price(model, run.services.meters.get(grant))
        hooks = run.services.hooks
        refusal = await hooks.on_child_start(run.brief, brief) if hooks else ""
    except BaseException:
        run.services.meters.close(grant)
        raise
    if refusal:
        run.services.meters.close(grant)
        return ToolResult(f"No child was started: {refusal}", error=True)
    child = _Child(context, brief, grant)
    if arguments.background:
        run.background.add_child(child.handle, child.title, child.wait_for_notification())
        return _make_start_result(context.place)
    if brief.workspace.kind is not WorkspaceKind.COPY:
        run.evidence.open_windows[brief.call_id] = _ChildWindow(child.handle)
    return await child.wait_for_result()


def _make_start_result(run_id: str) -> ToolResult:
    detail = {"run": run_id, "background": True}
    return ToolResult(STARTED.format(run=run_id), detail=detail)


async def restart_background_work(run: RunContext) -> None:
    """Continue the background children that an earlier process left without a notification.

    A command cannot continue: its notification says so.
    """
    for run_id, call in run.background.interrupted.items():
        if normalize_tool_name(call.name) != "task":
            report_interrupted(run, run_id)
            continue
        turn, position = map(int, run_id.rsplit(".", 2)[1:])
        context = CallContext(run, call, position, turn)
        arguments = run.tools["task"].parse_arguments(call.arguments)
        assert isinstance(arguments, TaskArguments)
        result = await _run(context, replace(arguments, background=True))
        if result.error:
            run.inbox.put(make_notification(run_id, "failed", arguments.prompt, result.text))
    run.background.interrupted.clear()
    await asyncio.sleep(0)  # The children restore what they spent before the run spends more.


class _Child:
    """A child run that has started."""

    def __init__(self, context: CallContext, brief: Brief, grant: Grant) -> None:
        self._context = context
        self._brief = brief
        self._grant = grant
        self.title = f"{brief.agent.name}: {brief.description}"
        self.handle = context.run.background.worker.start(brief, grant)

    async def wait_for_result(self) -> ToolResult:
        """Wait for the end of the child and return the result of the call."""
        report, below = await self._wait_for_report()
        text, spill = self._format(report)
        detail: dict[str, Any] = {"run": report.run_id}
        if below:
            detail["below"] = below
        is_error = report.reason in (Reason.ERROR, Reason.CANCELLED, Reason.LOST)
        return ToolResult(text, is_error, detail=detail, spill=spill)

    async def wait_for_notification(self) -> InboxMessage:
        """Wait for the end of the child and return the notification, also after an error."""
        run_id = self._brief.run_id
        try:
            report, _ = await self._wait_for_report()
        except Exception as error:  # noqa: BLE001  the parent continues, as after a failed call
            self._context.run.evidence.unknown_changes = NO_REPORT
            return make_notification(run_id, "failed", self.title, str(error))
        if self._brief.workspace.kind is not WorkspaceKind.COPY:
            self._context.run.evidence.add_report(report)
        text, _ = self._format(report)
        return make_notification(run_id, choose_status(report.reason), self.title, text)

    async def _wait_for_report(self) -> tuple[Report, int]:
        """Wait for the end of the child; return its report and the number of runs below it."""
        run = self._context.run
        try:
            report = await _wait_or_stop(run, self.handle)
            if hooks := run.services.hooks:
                await hooks.on_child_end(run.brief, self._brief, report)
        finally:
            meter = run.services.meters.close(self._grant)
        return report, meter.children

    def _format(self, report: Report) -> tuple[str, str]:
        """Return the report as the parent reads it, and the path of the whole text."""
        text, spill = format_report(self._context, report)
        if self._brief.workspace.kind is WorkspaceKind.COPY and report.turns:
            text += _COPY_NOTE
        return text, spill


async def _wait_or_stop(run: RunContext, handle: RunHandle) -> Report:
    """Return the report of a child. If the run is stopped, stop the child for the same reason."""
    try:
        await handle.wait()
    except asyncio.CancelledError:
        handle.cancel(run.stop_reason)
        with suppress(Exception):  # An error of the child does not replace the cancel.
            await handle.report()
        raise
    return await handle.report()


class _ChildWindow:
    """The time in which a child works in the workspace of its parent."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle

    async def close(self, result: ToolResult) -> ToolResult:
        """Return the result of the call, cut off or not, with the files of the child."""
        try:
            report = await self._handle.report()
        except Exception:  # noqa: BLE001  the call of the child reports the error
            return replace(result, unknown_changes=NO_REPORT)
        return replace(
            result,
            reads=report.files_read,
            changes=report.files_written,
            observed_changes=report.observed_changes,
            unknown_changes=report.unknown_changes,
        )


def _select_agents(run: RunContext) -> dict[str, Agent]:
    """Return the agents that the run may call, by simplified name."""
    names = select_tools(run.services.agents, run.brief.agent.children)
    return {_simplify(name): run.services.agents[name] for name in names}


def _resolve_model(run: RunContext, agent: Agent, arguments: TaskArguments) -> str:
    """Return the model string of the child. Raises MudroomError if there is no such model."""
    requested = arguments.model or agent.model
    if requested == "inherit":
        requested = choose_child_model(run.services.child_models, agent.name, run.brief.model)
    run.services.get_model(requested)
    return requested


async def _allocate(context: CallContext, agent: Agent, arguments: TaskArguments) -> Grant:
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


def _make_brief(
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
        workspace=_choose_workspace(context.run, agent),
    )


def _choose_workspace(run: RunContext, agent: Agent) -> WorkspaceSpec:
    """Return the workspace of a child: the parent's, or a copy of it."""
    shared = run.environment.spec
    if agent.workspace is WorkspaceKind.SHARED:
        return shared
    return WorkspaceSpec(WorkspaceKind.COPY, shared.root)


@lru_cache(maxsize=256)
def _simplify(name: str) -> str:
    """Return the name in lower case without anything but letters and digits."""
    return "".join(char for char in name.lower() if char.isalnum())
