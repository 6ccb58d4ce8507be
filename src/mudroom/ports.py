"""Ports: Protocols that your own adapters implement, and the values that cross them.

`Session` accepts your own Model, Journal, SessionStore, Approver, Hooks, ToolSource, Sandbox or
Workspace. The suites of `mudroom.testing` check an adapter.

Example:
    class Echo:
        "A sandbox that runs nothing."
        tier = "full"

        async def run(self, command, *, timeout, sink) -> CommandResult:
            sink(command.encode())
            return CommandResult(0)

        async def close(self) -> None: ...

    class OneConversation:
        async def append(self, message) -> None: ...

        async def request_answer(self, *, tools=True, max_tokens=None):
            yield RetryNotice(1, 0.5, 529, "overloaded")
            yield StreamChunk("text", "Hello.")
            yield AssistantMessage((TextBlock("Hello."),), StopReason.END)

    class ReadOnly(Hooks):
        async def before_tool(self, brief: Brief, call) -> ToolHookDecision | None:
            return ToolHookDecision(denial="Only read.") if call.name == "write" else None

    class Judge:
        def judge(self, call, tool, arguments, brief: Brief) -> PermissionVerdict:
            return PermissionVerdict("deny", why="the budget has ended")

        def filter_workspace(self, workspace: Workspace, tool, brief: Brief) -> Workspace:
            return workspace

    async def list_names(store: SessionStore) -> list[str]:
        infos: list[SessionInfo] = list(await store.list())
        headers: list[SessionHeader] = [await store.read_header(info.id) for info in infos]
        return [header.name for header in headers]

    def count_bytes(workspace: Workspace) -> int:
        files: list[FileInfo] = list(workspace.walk())
        return sum(file.size for file in files)

    async def run_elsewhere(worker: Worker, brief: Brief):
        handle: RunHandle = worker.start(brief, Grant(brief.run_id, brief.budget))
        handle.send(InboxMessage("m1", "Be brief."))
        return await handle.report()

    async def run_commands(environments: Environments, brief: Brief, clock: Clock) -> float:
        async with environments.open(brief.workspace) as environment:
            opened: Environment = environment
            await opened.sandbox.run("make", timeout=60, sink=print)
        return clock.now()

    def count_pure(toolbox: Toolbox, source: ToolSource, config: RequestConfig) -> int:
        return len(toolbox) + len(config.tools)

    sandbox: Sandbox = Echo()
    conversation: ModelConversation = OneConversation()
    policy: Policy = Judge()
"""

from __future__ import annotations

from ._core.budgets import Grant
from ._core.messages import StopReason
from ._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Approver,
    Clock,
    CommandResult,
    Environment,
    Environments,
    FileInfo,
    HookCallback,
    Hooks,
    Journal,
    MessageHookDecision,
    Model,
    ModelConversation,
    PermissionVerdict,
    Policy,
    RequestConfig,
    RetryNotice,
    RunHandle,
    Sandbox,
    ServerPrompt,
    ServerResource,
    ServerStatus,
    SessionHeader,
    SessionInfo,
    SessionStore,
    StreamChunk,
    Toolbox,
    ToolContext,
    ToolHookDecision,
    ToolSource,
    Worker,
    Workspace,
)
from ._core.ports.input_forms import InputForm
from ._core.runs import Brief, InboxMessage
from .errors import StoppedByHook

__all__ = [
    "ApprovalDecision",
    "ApprovalRequest",
    "Approver",
    "Brief",
    "Clock",
    "CommandResult",
    "Environment",
    "Environments",
    "FileInfo",
    "Grant",
    "HookCallback",
    "Hooks",
    "InboxMessage",
    "InputForm",
    "Journal",
    "MessageHookDecision",
    "Model",
    "ModelConversation",
    "PermissionVerdict",
    "Policy",
    "RequestConfig",
    "RetryNotice",
    "RunHandle",
    "Sandbox",
    "ServerPrompt",
    "ServerResource",
    "ServerStatus",
    "SessionHeader",
    "SessionInfo",
    "SessionStore",
    "StopReason",
    "StoppedByHook",
    "StreamChunk",
    "ToolContext",
    "ToolHookDecision",
    "ToolSource",
    "Toolbox",
    "Worker",
    "Workspace",
]
