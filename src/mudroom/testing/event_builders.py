"""Builders of events for tests, with defaults for all fields a test does not need."""

from __future__ import annotations

from .._adapters.tools import find_builtin_tool
from .._core.agents import Agent
from .._core.budgets import Budget
from .._core.events import (
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from .._core.runs import Brief, Reason, Report, count_above
from .._core.tool_names import normalize_tool_name
from .._core.tools import ToolResult
from .._engine.children.task_tool import make_task_tool
from .._projections.safe_text import make_call_title


def run_started(
    run: str = "1",
    parent: str = "",
    *,
    prompt: str = "Look.",
    agent: str = "explore",
    description: str = "",
    name: str = "",
    message_ids: tuple[str, ...] = (),
    depth: int | None = None,
    continues: str = "",
    is_compaction: bool = False,
    history: tuple[Message, ...] = (),
    call_id: str = "",
    budget: Budget = Budget(),  # noqa: B008  (immutable)
    at: float = 0.0,
) -> RunStarted:
    """Build the start of a run. `depth`: None takes it from the run id."""
    brief = Brief(
        run_id=run,
        agent=Agent(name=agent),
        prompt=prompt,
        tools=(),
        model="offline",
        budget=budget,
        parent=parent,
        description=description,
        name=name,
        message_ids=message_ids,
        depth=count_above(run) if depth is None else depth,
        continues=continues,
        is_compaction=is_compaction,
        history=history,
        call_id=call_id,
    )
    return RunStarted(at=at, run=run, brief=brief)


def turn_started(run: str = "1", turn: int = 1, *, at: float = 0.5) -> TurnStarted:
    """Build the start of a model call."""
    return TurnStarted(at=at, run=run, turn=turn)


def turn_finished(
    run: str = "1",
    *blocks: TextBlock | ThinkingBlock | ToolCallBlock,
    text: str = "",
    turn: int = 1,
    usage: Usage = Usage(100, 10),  # noqa: B008  (immutable)
    at: float = 1.0,
) -> TurnFinished:
    """Build an answer: a text, if not empty, and other blocks."""
    first = (TextBlock(text),) if text else ()
    message = AssistantMessage((*first, *blocks), usage=usage)
    return TurnFinished(at=at, run=run, turn=turn, message=message)


def turn_events(
    run: str,
    *blocks: TextBlock | ThinkingBlock | ToolCallBlock,
    turn: int = 1,
    at: float = 1.0,
    usage: Usage = Usage(),  # noqa: B008  (immutable)
) -> list[StoredEvent]:
    """Build the start and end of a model call, both at the same time."""
    finished = turn_finished(run, *blocks, turn=turn, at=at, usage=usage)
    return [turn_started(run, turn, at=at), finished]


def tool_call(id: str, name: str = "read", **arguments: object) -> ToolCallBlock:
    """Build a tool call of an answer."""
    return ToolCallBlock(id, name, arguments)


def tool_call_started(
    run: str, call: ToolCallBlock, *, at: float = 2.0, turn: int = 0
) -> ToolCallStarted:
    """Build the start of a tool call, with the facts of the tool with this name."""
    is_task = normalize_tool_name(call.name) == "task"
    tool = make_task_tool({}) if is_task else find_builtin_tool(call.name)
    title = make_call_title(tool.rename_arguments(call.arguments) if tool else call.arguments, tool)
    view = tool.view if tool else ""
    return ToolCallStarted(at=at, run=run, turn=turn, call=call, title=title, view=view)


def tool_call_finished(
    run: str = "1",
    id: str = "c",
    text: str = "ok",
    *,
    name: str = "read",
    error: bool = False,
    refused: bool = False,
    at: float = 3.0,
) -> ToolCallFinished:
    """Build the result of a tool call."""
    result = ToolResult(text, error)
    return ToolCallFinished(at=at, run=run, call_id=id, name=name, result=result, refused=refused)


def tool_call_events(
    run: str, call: ToolCallBlock, text: str = "", *, error: bool = False, at: float = 2.0
) -> list[StoredEvent]:
    """Build the start and end of a tool call, both at the same time."""
    finished = tool_call_finished(run, call.id, text, name=call.name, error=error, at=at)
    return [tool_call_started(run, call, at=at), finished]


def run_finished(
    run: str = "1",
    reason: Reason = Reason.GOAL,
    *,
    text: str = "done",
    error: str = "",
    recovered: bool = False,
    usage: Usage = Usage(),  # noqa: B008  (immutable)
    at: float = 9.0,
) -> RunFinished:
    """Build the end of a run."""
    report = Report(
        text=text,
        reason=reason,
        run_id=run,
        error=error,
        recovered=recovered,
        usage=usage,
        outputs=dict[str, object](),
    )
    return RunFinished(at=at, run=run, report=report)
