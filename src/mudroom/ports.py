"""Ports: Protocols that your own adapters implement, and the values that cross them.

`Session` accepts your own Model, Journal, SessionStore, Approver, Hooks, ToolSource, Sandbox or
Workspace. The suites of `mudroom.testing` check an adapter. `WorkerTransport` and
`WorkerConnection` are the ports of a way to reach worker processes, as `mudroom_fleet` has them.

Example:
    import socket

    import msgspec

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

    def show(data: bytes) -> ToolResult:
        "The result of a tool that makes pictures."
        image = parse_sendable_image(data)
        return ToolResult("a picture", images=(image,)) if image else ToolResult("none", error=True)

    def needs_review(request: ApprovalRequest) -> bool:
        return request.category is ToolCategory.WRITE

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

    def answer(messages, config: RequestConfig) -> str:
        "What a model that follows rules does first."
        if SUMMARY_PROMPT in str(messages[-1]):
            return "a summary"
        return "emit" if EMIT_TOOL in {tool.name for tool in config.tools} else "work"

    class Store:
        "Rules that all stores share; see also `mudroom.views.SummarySaver`."
        ids = {"0f8fad5b-d9cb-469f-a165-70867728950e": "tax return"}

        async def find(self, text: str) -> str:
            return select_session(text, list(self.ids), [(n, i) for i, n in self.ids.items()])

        async def rename(self, session: str, name: str) -> None:
            if session not in self.ids:
                raise make_missing_session_error(session)
            check_session_name(name, [(n, i) for i, n in self.ids.items()], session)
            raise make_busy_error("process 4711", f"session {session}")

    async def repeat(link: RunLink) -> None:
        "A program for worker processes: an echo."
        while data := await link.receive():
            link.check_lease()
            link.send(data)

    class LoopConnection:
        "The part of a WorkerConnection that carries bytes: they come back."

        def __init__(self) -> None:
            self._arrived = Arrivals()
            self.answer_limits = AnswerLimits(silence=3.0)

        def send(self, data: bytes) -> None:
            self._arrived.add(data)

        async def receive(self) -> bytes:
            return await self._arrived.receive()

    def describe(transport: WorkerTransport, connection: WorkerConnection) -> str:
        activity: Activity | None = connection.read_activity()
        return f"{transport.kind} {connection.pid}: {activity}"

    class Ready(msgspec.Struct, tag=True):
        processors: int

    class Failed(msgspec.Struct, tag=True):
        reason: str

    async def start_program(folder: ScratchDir) -> Ready | Failed | None:
        "Start a program of your own, and read its first message."
        link: ByteLink = await ProgramLink.start("my-program", folder.path)
        return await MessageStream(link, Ready | Failed).receive()

    async def drive(number: int) -> None:
        "What the program does with the number of its socket, its last argument."
        link = await SocketLink.open(socket.socket(fileno=number))
        MessageStream(link, Failed).send(Ready(8))

    sandbox: Sandbox = Echo()
    conversation: ModelConversation = OneConversation()
    policy: Policy = Judge()
"""

from __future__ import annotations

from ._adapters.tools._image_files import parse_sendable_image
from ._core.budgets import Grant
from ._core.messages import StopReason
from ._core.ports import (
    AnswerLimits,
    ApprovalDecision,
    ApprovalRequest,
    Approver,
    ByteLink,
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
    RunLink,
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
    WorkerConnection,
    WorkerTransport,
    Workspace,
)
from ._core.ports.approval import InputForm
from ._core.ports.journal import (
    check_session_name,
    make_busy_error,
    make_missing_session_error,
    select_session,
)
from ._core.runs import Brief, InboxMessage
from ._core.tools import ToolCategory
from ._engine.compaction.summary import SUMMARY_PROMPT
from ._engine.structured_output import EMIT_TOOL
from ._peers import Arrivals, MessageStream, ProgramLink, SocketLink
from ._platform.processes import Activity
from ._platform.scratch_dirs import ScratchDir
from ._platform.time_limits import time_limit
from .errors import StoppedByHook

__all__ = [
    "EMIT_TOOL",
    "SUMMARY_PROMPT",
    "Activity",
    "AnswerLimits",
    "ApprovalDecision",
    "ApprovalRequest",
    "Approver",
    "Arrivals",
    "Brief",
    "ByteLink",
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
    "MessageStream",
    "Model",
    "ModelConversation",
    "PermissionVerdict",
    "Policy",
    "ProgramLink",
    "RequestConfig",
    "RetryNotice",
    "RunHandle",
    "RunLink",
    "Sandbox",
    "ScratchDir",
    "ServerPrompt",
    "ServerResource",
    "ServerStatus",
    "SessionHeader",
    "SessionInfo",
    "SessionStore",
    "SocketLink",
    "StopReason",
    "StoppedByHook",
    "StreamChunk",
    "ToolCategory",
    "ToolContext",
    "ToolHookDecision",
    "ToolSource",
    "Toolbox",
    "Worker",
    "WorkerConnection",
    "WorkerTransport",
    "Workspace",
    "check_session_name",
    "make_busy_error",
    "make_missing_session_error",
    "parse_sendable_image",
    "select_session",
    "time_limit",
]
