"""Builders of events for tests: short calls with defaults for everything a test does not look at."""

from __future__ import annotations

from .._core.agents import Agent
from .._core.budgets import Budget
from .._core.events import (
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import AssistantMessage, Message, TextBlock, ToolCallBlock, Usage
from .._core.runs import Brief, Reason, Report
from .._core.tools import ToolResult


def run_started(
    run: str = "1",
    parent: str = "",
    *,
    prompt: str = "Look.",
    agent: str = "explore",
    description: str = "",
    depth: int | None = None,
    continues: str = "",
    compacts: bool = False,
    history: tuple[Message, ...] = (),
    at: float = 0.0,
) -> RunStarted:
    """Build the start of a run. `depth`: None takes it from the run id."""
    brief = Brief(
        run_id=run,
        agent=Agent(name=agent),
        prompt=prompt,
        tools=(),
        model="offline",
        budget=Budget(),
        parent=parent,
        description=description,
        depth=run.count(".") if depth is None else depth,
        continues=continues,
        compacts=compacts,
        history=history,
    )
    return RunStarted(at=at, run=run, brief=brief)


def turn_started(run: str = "1", turn: int = 1) -> TurnStarted:
    """Build the start of a model call."""
    return TurnStarted(at=0.5, run=run, turn=turn)


def turn_finished(
    run: str = "1",
    *calls: ToolCallBlock,
    text: str = "",
    turn: int = 1,
    usage: Usage = Usage(100, 10),  # noqa: B008  (immutable)
) -> TurnFinished:
    """Build an answer with a text and tool calls."""
    blocks = (TextBlock(text),) if text else ()
    message = AssistantMessage((*blocks, *calls), usage=usage)
    return TurnFinished(at=1.0, run=run, turn=turn, message=message)


def tool_call(id: str, name: str = "read", **arguments: object) -> ToolCallBlock:
    """Build a tool call of an answer."""
    return ToolCallBlock(id, name, arguments)


def tool_call_started(run: str, call: ToolCallBlock) -> ToolCallStarted:
    """Build the start of a tool call."""
    return ToolCallStarted(at=2.0, run=run, call=call)


def tool_call_finished(
    run: str = "1",
    id: str = "c",
    text: str = "ok",
    *,
    name: str = "read",
    error: bool = False,
    refused: bool = False,
) -> ToolCallFinished:
    """Build the result of a tool call."""
    result = ToolResult(text, error)
    return ToolCallFinished(at=3.0, run=run, call_id=id, name=name, result=result, refused=refused)


def run_finished(
    run: str = "1",
    reason: Reason = Reason.GOAL,
    *,
    text: str = "done",
    error: str = "",
    usage: Usage = Usage(),  # noqa: B008  (immutable)
    at: float = 9.0,
) -> RunFinished:
    """Build the end of a run."""
    report = Report(
        text=text, reason=reason, run_id=run, error=error, usage=usage, outputs=dict[str, object]()
    )
    return RunFinished(at=at, run=run, report=report)
