"""What the engine needs of the world: small Protocols. Adapters live one folder a port, a public fake beside the real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from .agents import Brief, Report
from .budgets import Meter
from .events import StoredEvent
from .messages import AssistantMessage, Message, ToolCallBlock
from .tools import Tool


class RequestConfig(Struct, frozen=True, kw_only=True):
    """What stays the same for all turns of a run: system prompt, tools, sampling.

    Arguments:
        system: the system prompt. tools: as offered, in order; siblings with equal setups send equal bytes.
        temperature, top_p: None leaves it to the provider. max_tokens: most tokens of one answer; always sent.
    """

    system: str
    tools: tuple[Tool, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None


class StreamChunk(Struct, frozen=True):
    """A part of an answer as it arrives. `kind`: text, thinking, call; "" for a mere sign of life."""

    kind: str
    text: str


class RetryNotice(Struct, frozen=True):
    """The call failed and will be made again after `delay` seconds; pieces of this call so far are void."""

    attempt: int
    delay: float
    status: int
    error: str


class ModelConversation(Protocol):
    """One conversation with a model: it is appended to, and asked. Each message is encoded once, when added."""

    def append(self, message: Message) -> None:
        """Append a message. Answers of `ask` are not appended by themselves."""
        ...

    def request_answer(
        self, *, tools: bool = True
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Ask for the next answer: pieces, retries, and last the whole Assistant message, exactly once.

        `tools=False` forbids calls for this answer while the bytes before it stay the same.
        Raises ModelError; an answer cut off in the middle is asked for again, never repaired. Who gives no sign of life for
        150 s (450 s before the first piece, or after a retry's delay) is taken for dead.
        """
        ...


class Model(Protocol):
    """A model behind some wire.

    Example:
        class Silent:
            name = "mine:silent"

            def chat(self, setup): ...  # add(message), and ask(tools=) that yields the pieces and then the Assistant
            async def close(self): ...

        model: Model = Silent()
        Session(model=model)
    """

    @property
    def name(self) -> str:
        """The model string, "provider:model"."""
        ...

    def start_conversation(self, setup: RequestConfig) -> ModelConversation:
        """Begin a conversation; costs no request."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Journal(Protocol):
    """The append-only record of one session.

    Example:
        class Kept:
            def __init__(self): self.events = []
            async def append(self, *events): self.events += events
            def read(self): return iter(self.events)
            async def close(self): ...

        journal: Journal = Kept()
        Session(journal=journal)
    """

    async def append(self, *events: StoredEvent) -> None:
        """Record events, in order; they are durable when this returns. Raises JournalError, and then nothing is saved.

        They are taken over by the call itself: a caller cancelled while it waits finds them recorded all the same, before later ones.
        """
        ...

    def read(self) -> Iterator[StoredEvent]:
        """All events recorded so far, oldest first."""
        ...

    async def close(self) -> None:
        """Finish writing and let go of the session."""
        ...


class CommandResult(Struct, frozen=True):
    """How a command ended: exit code (negative: the signal), and whether its time ran out."""

    code: int
    timed_out: bool = False


class Sandbox(Protocol):
    """Where commands run."""

    @property
    def tier(self) -> str:
        """What it guards: "full", "file", "ask" or "off"."""
        ...

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run a bash command in the workspace, feeding stdout and stderr to `sink` as they come.

        Ends when the command's own process ends or after `timeout` seconds; all its descendants are gone then.
        Cancelling the call kills them too.
        """
        ...

    def close(self) -> None:
        """Let go of what was started for commands; those that run go on to their own end."""
        ...


class FileInfo(Struct, frozen=True):
    """A file as found: path relative to the workspace, size in bytes, mtime in seconds, permission bits."""

    path: str
    size: int
    mtime: float
    mode: int


class Workspace(Protocol):
    """The files a run sees. Every path is opened beneath the root; WorkspaceError says what is wrong with one that is not."""

    @property
    def root(self) -> str:
        """Absolute path of the folder."""
        ...

    def locate(self, path: str) -> str:
        """The path relative to the root ("." for the root itself) of an absolute or relative path inside; a spill file stays absolute."""
        ...

    def stat(self, path: str) -> FileInfo:
        """What is there. Raises WorkspaceError for anything but a regular file or a folder (mode tells which)."""
        ...

    def open(self, path: str) -> int:
        """A file descriptor of a regular file, opened for reading."""
        ...

    def replace(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        """Write a whole file at once, so that readers see the old or the new; make missing folders. True if it is new."""
        ...

    def sweep(self, path: str) -> None:
        """Remove what a `replace` of this path left when its process died."""
        ...

    def walk(self, path: str = ".", *, ignored: bool = False) -> Iterator[FileInfo]:
        """Files below a folder, links not followed; what git ignores only when asked for."""
        ...


class Clock(Protocol):
    """Time."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; the clock that `sleep` and asyncio's timeouts follow."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class ApprovalRequest(Struct, frozen=True):
    """Something a person must allow: which run asks, for which call, why it must ask, and the piece of a command it is about.

    Example:
        asked = Question("1", "main", "bash", {"command": "make"}, why="no rule allows it")
    """

    run_id: str
    agent: str
    tool: str
    arguments: dict[str, Any]
    why: str
    call_id: str = ""
    part: str = ""


class ApprovalDecision(Struct, frozen=True):
    """Yes or no, and what to tell the model when it is no.

    Example:
        Answer(False, "Use the tests instead.")
    """

    allowed: bool
    why: str = ""


class Approver(Protocol):
    """Whoever answers questions; one that cannot ask a person answers no at once.

    Example:
        class Careful:
            async def decide(self, question: Question) -> Answer:
                return Answer(question.tool != "bash", "No commands here.")

        approver: Approver = Careful()
        Session(approver=approver)
    """

    async def decide(self, question: ApprovalRequest) -> ApprovalDecision:
        """Answer it."""
        ...


class PermissionVerdict(Struct, frozen=True):
    """What the rules say of a call.

    Arguments:
        verdict: "allow", "ask" or "deny". why: a sentence for the model, the person and the record.
        rule: the rule that decided, with its origin, or "". part: the piece of a command it is about, or "".
    """

    verdict: str
    why: str = ""
    rule: str = ""
    part: str = ""


class Policy(Protocol):
    """Who says what a call may do; it asks nobody and has no effect."""

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        """Decide on a call of a run. `arguments`: as checked, by the names the tool knows them by."""
        ...

    def view(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """The workspace as a tool of that name may see it in a run: what may not be read is neither listed nor opened."""
        ...


class Worker(Protocol):
    """Where runs run: this process, another, a cluster."""

    async def run(self, brief: Brief, meter: Meter) -> Report:
        """Run a brief to its end. Never raises for what happens inside the run; a cancelled run raises CancelledError."""
        ...


class ToolContext(Protocol):
    """All that a tool may touch of the run it works for.

    Example:
        @tool
        def note(ctx: ToolContext, line: str) -> str:
            "Keep a line for later."
            lines = ctx.memo.setdefault("note", [])
            lines.append(line)
            return f"{len(lines)} kept in run {ctx.run_id}"
    """

    @property
    def run_id(self) -> str: ...
    @property
    def workspace(self) -> Workspace: ...
    @property
    def sandbox(self) -> Sandbox: ...
    @property
    def memo(self) -> dict[str, Any]:
        """What the tools of this run keep between calls, by tool name."""
        ...

    @property
    def turn(self) -> int:
        """Number of the current turn, from 1."""
        ...

    @property
    def redact(self) -> Callable[[str], str]:
        """Takes secrets out of a text; results need not go through it, files for long output do."""
        ...

    def spill_path(self, name: str) -> str:
        """Path of a new file outside the workspace, readable by the `read` tool, for output too long for a context."""
        ...


Toolbox = Mapping[str, Tool]
