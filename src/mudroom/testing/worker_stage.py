"""Model, tools and services for checks of workers; see `worker_conformance`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._adapters.journals.memory import MemoryJournal
from .._adapters.models.scripted import Answer, Request, ScriptedModel, call
from .._adapters.workspaces.shared import SharedWorkspace
from .._core.agents import Agent, WorkspaceSpec
from .._core.budgets import Budget
from .._core.events import AnyEvent, RunFinished, StoredEvent
from .._core.messages import AssistantMessage, TextBlock, ToolCallBlock, Usage
from .._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    CommandResult,
    Environment,
    PermissionVerdict,
    RunHandle,
    ToolContext,
    Worker,
    Workspace,
)
from .._core.runs import Brief, Report
from .._core.tools import Effect, Tool, ToolResult
from .._engine.children.task_tool import make_task_tool
from .._engine.recorded_conversations import PastEvents
from .._engine.run_tools.send_message import SEND_MESSAGE
from .._engine.session_context import SessionServices, SingleEnvironment, Watchers
from .clock import LoopClock

_POLL_SECONDS = 0.005  # seconds between checks of a condition another process may change

_AGENTS = {"general": Agent(name="general", description="does any work")}


_TEAM: dict[str, list[Answer]] = {
    "TEAM": [
        [
            call("task", prompt="ANN", name="ann", background=True),
            call("task", prompt="BEN", name="ben", background=True),
        ],
        "TEAM is done",
    ],
    "ANN": ["ANN is idle", "ANN has read it"],
    "BEN": [[call("wait")], [call("send_message", to="ann", message="read this")], "BEN is done"],
}
"""Answers of named children and their parent, by turn."""


def _answer(request: Request) -> Answer:
    """Answer by the first word of the prompt."""
    kind = request.prompt.split()[0]
    if not request.tools and kind in ("WAIT", "SPEND"):
        return "summary"
    if kind == "ANSWER":
        return "answer"
    if kind == "SPEND":
        content = (TextBlock("so far"), ToolCallBlock(f"c{request.turn}", "count", {}))
        return AssistantMessage(content, usage=Usage(100, 100))
    if kind in _TEAM:
        return _TEAM[kind][min(request.turn, len(_TEAM[kind]) - 1)]
    if request.turn:
        return f"{kind} is done"
    calls: dict[str, list[ToolCallBlock]] = {
        "PARENT_BACKGROUND": [call("task", prompt="WAIT 1", background=True), call("wait")],
        "WAIT": [call("wait")],
        "CONFIRM": [call("confirm")],
        "PARENT": [call("task", prompt="ANSWER 1"), call("task", prompt="ANSWER 2")],
        "PARENT_WAIT": [call("task", prompt="WAIT 1"), call("task", prompt="WAIT 2")],
        "PARENT_SPEND": [call("task", prompt="SPEND")],
    }
    return calls[kind]


def conformance_model(name: str = "conformance:model") -> ScriptedModel:
    """Make the scripted model for the checks."""
    return ScriptedModel(_answer, name)


def conformance_tools() -> dict[str, Tool]:
    """Make the tools for the checks, by name."""
    schema: dict[str, Any] = {"type": "object"}
    pure = Effect.PURE
    tools = [
        Tool(name="wait", description="", parameters=schema, parse=dict, run=_wait, effect=pure),
        Tool(name="count", description="", parameters=schema, parse=dict, run=_count, effect=pure),
        Tool(
            name="confirm",
            description="",
            parameters=schema,
            parse=dict,
            run=_confirm,
            needs_confirmation=True,
        ),
        make_task_tool(_AGENTS),
        SEND_MESSAGE,
    ]
    return {tool.name: tool for tool in tools}


async def _wait(context: ToolContext, arguments: object) -> ToolResult:
    """Create the file `reached-<run id>`, then wait for the file `open`."""
    folder = Path(context.workspace.root)
    (folder / f"reached-{context.run_id}").touch()
    while not (folder / "open").exists():  # noqa: ASYNC110  another process may create it
        await asyncio.sleep(_POLL_SECONDS)
    return ToolResult("waited")


async def _count(context: ToolContext, arguments: object) -> ToolResult:
    return ToolResult(f"turn {context.turn}")


async def _confirm(context: ToolContext, arguments: object) -> ToolResult:
    return ToolResult("confirmed")


class _NoSandbox:
    tier = "off"

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        raise AssertionError("no check runs a command")

    def close(self) -> None: ...


class _AskPolicy:
    """Policy that asks for tools that need confirmation."""

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        return PermissionVerdict("ask" if tool.needs_confirmation else "allow")

    def filter_workspace(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        return workspace


class WorkerStage:
    """Services, journal and events of one check, in a folder for its files.

    Attributes:
        events: all events that the watchers received, in order.
        requests: approval requests so far.
    """

    def __init__(
        self,
        folder: Path,
        *,
        past_events: Mapping[str, list[StoredEvent]] | None = None,
        journal: MemoryJournal | None = None,
    ) -> None:
        self.folder = folder
        self.journal = journal or MemoryJournal()
        self.events: list[AnyEvent] = []
        self.requests: list[ApprovalRequest] = []
        environment = Environment(
            spec=WorkspaceSpec(),
            workspace=SharedWorkspace(str(folder)),
            sandbox=_NoSandbox(),
            policy=_AskPolicy(),
        )
        self.services = SessionServices(
            session="conformance",
            get_model=conformance_model,
            journal=self.journal,
            environments=SingleEnvironment(environment),
            clock=LoopClock(),
            approver=self,
            toolbox=conformance_tools(),
            agents=_AGENTS,
            spill_folder=str(folder / "spills"),
            environment_text="",
            past_events=PastEvents(past_events),
            watchers=Watchers((self.events.append,)),
        )

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Allow the call."""
        self.requests.append(request)
        return ApprovalDecision(True)

    def start(self, worker: Worker, prompt: str, budget: Budget | None = None) -> RunHandle:
        """Start a root run."""
        budget = budget or Budget(depth=1)
        brief = Brief(
            run_id="1",
            agent=Agent(name="main"),
            prompt=prompt,
            tools=tuple(self.services.toolbox),
            model="conformance:model",
            budget=budget,
        )
        return worker.start(brief, self.services.meters.open("1", budget))

    async def wait_for_runs(self, *runs: str) -> None:
        """Wait until these runs are inside their `wait` call."""
        files = [self.folder / f"reached-{run}" for run in runs]
        await self.wait_until(lambda: all(file.exists() for file in files))

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        while not is_true():  # noqa: ASYNC110  another process may change the condition
            await asyncio.sleep(_POLL_SECONDS)

    def release(self) -> None:
        """Let all `wait` calls return."""
        (self.folder / "open").touch()

    def reports(self) -> dict[str, Report]:
        """Return the stored reports by run id."""
        events = self.journal.events
        return {event.run: event.report for event in events if isinstance(event, RunFinished)}
