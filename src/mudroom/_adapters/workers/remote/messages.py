"""Messages between the session's process and a worker process."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

from msgspec import Struct

from .... import errors
from ...._core.agents import Agent
from ...._core.budgets import Budget, Grant, Limit, LimitState
from ...._core.events import AnyEvent, StoredEvent
from ...._core.messages import AssistantMessage, Message, Usage
from ...._core.ports import RetryNotice, StreamChunk
from ...._core.runs import Brief, InboxMessage, Reason, Report
from ...._engine.meters.account import RequestPlan
from ...._engine.meters.meter import SharedTime


class WorkerConfig(Struct, frozen=True, kw_only=True, tag=True):
    """A worker process's session, and the values it builds services from.

    `folder` is the absolute path of the workspace. `server_agents` have their own servers. The
    caller's modules are found in `import_path`; its tools are imported as "module:name". `setup` is
    encoded, and understood only by the two programs that build services. `is_far` if the process
    may be on another machine, `has_own_files` if it does not see `folder` and `home`: runs then get
    files.
    """

    session: str
    folder: str
    home: str
    max_children: int
    isolated_bytes: int = 0
    server_agents: tuple[str, ...] = ()
    import_path: tuple[str, ...] = ()
    tool_references: tuple[str, ...] = ()
    setup: bytes = b""
    is_far: bool = False
    has_own_files: bool = False


class ErrorInfo(Struct, frozen=True, tag=True):
    """An exception of `mudroom.errors`, by class name."""

    kind: str
    message: str
    where: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, error: BaseException) -> ErrorInfo:
        """Describe an exception; any other class becomes a MudroomError that names it."""
        if isinstance(error, errors.MudroomError):
            return cls(type(error).__name__, error.message, error.where, error.remedy)
        if isinstance(error, CancelledError):
            text = "what the run waited for in the session's process was cancelled"
            return cls("MudroomError", text)
        return cls("MudroomError", f"{type(error).__name__}: {error}")

    def to_exception(self) -> errors.MudroomError:
        kind = getattr(errors, self.kind, errors.MudroomError)
        if kind is errors.UnknownName or not issubclass(kind, errors.MudroomError):
            kind = errors.UsageError if kind is errors.UnknownName else errors.MudroomError
        return kind(self.message, where=self.where, remedy=self.remedy)


class ParentMeterState(Struct, frozen=True, tag=True):
    """Limits of all of a run's ancestors, with the amounts left.

    `left` excludes amounts reserved for other runs. `charges` is the number of the worker process's
    charges included in the amounts. `time` is the run's; None without a limit.
    """

    run_id: str
    shared: tuple[LimitState, ...] = ()
    left: dict[Limit, float] = {}
    charges: int = 0
    time: SharedTime | None = None


# From the session's process to a worker process.


class AskNode(Struct, frozen=True, tag=True):
    """Asks a process that may be on another machine which files and tools it lacks; comes first.

    `nonces` are texts of files, by path, that it sees if it sees the session's folders. It must be
    able to import the caller's tools: "module:name".
    """

    nonces: dict[str, str]
    import_path: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class StartRun(Struct, frozen=True, tag=True):
    """Starts a run, or continues one from its events and those of runs below it, by run id.

    For `former_folders`, of these runs and of the one it continues, see `SessionServices`.
    """

    brief: Brief
    grant: Grant
    parent_meter: ParentMeterState
    past: dict[str, list[StoredEvent]] = {}
    former_folders: dict[str, str] = {}


class SendMessage(Struct, frozen=True, tag=True):
    run_id: str
    message: InboxMessage


class WrapUp(Struct, frozen=True, tag=True):
    run_id: str
    reason: Reason = Reason.CANCELLED


class Cancel(Struct, frozen=True, tag=True):
    run_id: str
    reason: Reason = Reason.CANCELLED


class Detach(Struct, frozen=True, tag=True):
    """Makes a run's calls return while their work continues in the background."""

    run_id: str
    work_id: str = ""


class StopCommand(Struct, frozen=True, tag=True):
    run_id: str
    work_id: str


class SetWatched(Struct, frozen=True, tag=True):
    """Tells a worker process whether the session has watchers; without them, it shows no events."""

    is_watched: bool


class AskMemory(Struct, frozen=True, tag=True):
    id: int


class CallReply(Struct, frozen=True, tag=True):
    """Replies to a message with an id: the encoded result, or the exception."""

    id: int
    result: bytes = b""
    error: ErrorInfo | None = None


class ModelItem(Struct, frozen=True, tag=True):
    """An item of a bridged model's streamed answer, or its error."""

    id: int
    item: StreamChunk | RetryNotice | AssistantMessage | ErrorInfo


ToWorker = (
    StartRun
    | SendMessage
    | WrapUp
    | Cancel
    | Detach
    | StopCommand
    | CallReply
    | ModelItem
    | ParentMeterState
    | SetWatched
    | AskMemory
)


ToProcess = AskNode | WorkerConfig | ToWorker
"""Messages to a worker process; the config comes before the first run."""


# From a worker process to the session's process.


class NodeFacts(Struct, frozen=True, tag=True):
    """Reply to AskNode: files that are missing or differ, and why tools cannot be imported."""

    unseen: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()


SENT_BRIEF = Brief(
    run_id="", agent=Agent(name="sent"), prompt="", tools=(), model="", budget=Budget()
)
"""Replaces the StartRun's brief in a RunStarted event: the session's process has that brief."""


class AppendEvents(Struct, frozen=True, tag=True):
    """Stores events, then shows them to the session's watchers.

    The reply is a `CallReply` with the position of the last one. The RunStarted of a run sent by
    the session may have SENT_BRIEF; it is then the first event of its message. The first `shown`
    events have already been shown, by `ShowEvent`.
    """

    id: int
    events: tuple[StoredEvent, ...]
    shown: int


class CallSession(Struct, frozen=True, tag=True):
    """Calls a service of the session: its journal, approver, a hook. `arguments` are encoded."""

    id: int
    name: str
    arguments: bytes


class Withdraw(Struct, frozen=True, tag=True):
    """Withdraws a CallSession or a ModelRequest: nothing awaits its reply."""

    id: int


class ShowEvent(Struct, frozen=True, tag=True):
    """Shows the session's watchers an event before it is stored, or streamed text."""

    event: AnyEvent


class Charge(Struct, frozen=True, tag=True):
    """Charges what a run and its descendants spent.

    A charge of turns, which count for the run alone, has no other amounts.
    """

    run_id: str
    usage: Usage
    usd: float | None
    children: int = 0
    turns: int = 0
    estimate: Usage = Usage()


class RequestAdmission(Struct, frozen=True, tag=True):
    """Asks to admit a model request; the reply is a `CallReply` with an `Admission`.

    The request comes from the run sent by the session, or from one below it.
    """

    id: int
    run_id: str
    plan: RequestPlan
    is_own: bool


class EndAdmission(Struct, frozen=True, tag=True):
    """Ends a model request, or abandons its admission, by the id of the `RequestAdmission`.

    An unsent request did not reach the provider, although it may have a permit.
    """

    id: int
    run_id: str
    is_unsent: bool = False


class Pause(Struct, frozen=True, tag=True):
    """Stops or restarts the clocks of a run's ancestors."""

    run_id: str
    paused: bool


class AnswerTime(Struct, frozen=True, tag=True):
    """Tells how long an answer took, for a run with a time limit."""

    run_id: str
    seconds: float


class AddChild(Struct, frozen=True, tag=True):
    """Counts a child that starts below a run; the reply has the text of a refusal, or ""."""

    id: int
    run_id: str


# About models called by the session's process for the worker process.


class ToolSpec(Struct, frozen=True):
    """The part of a tool that a model sees."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelStart(Struct, frozen=True, tag=True):
    conversation: int
    model: str
    system: str
    tools: list[ToolSpec]
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    provider_tools: tuple[str, ...] = ()
    effort: str | None = None
    cache_key: str = ""


class ModelAppend(Struct, frozen=True, tag=True):
    conversation: int
    message: Message


class ModelRequest(Struct, frozen=True, tag=True):
    id: int
    conversation: int
    tools: bool
    max_tokens: int | None = None


class ModelForget(Struct, frozen=True, tag=True):
    conversation: int


# About the rate limiters, which live in the session's process.


class AcquireSlot(Struct, frozen=True, tag=True):
    """Asks for a slot of a provider's rate limiter.

    The reply is a `CallReply`: 0.0, or the seconds that the limiter stays closed.
    """

    id: int
    provider: str


class RecordAccepted(Struct, frozen=True, tag=True):
    """Reports that the provider accepted a request; a refusal may follow.

    The id is the `AcquireSlot`'s. For `room`, see `RateLimiter.record_accepted`.
    """

    id: int
    room: int | None = None


class RecordRefused(Struct, frozen=True, tag=True):
    """Reports that the provider refused a request and wants none for `retry_after` seconds."""

    id: int
    retry_after: float


class ReleaseSlot(Struct, frozen=True, tag=True):
    """Ends a request, or the wait for its slot."""

    id: int


LimiterMessage = AcquireSlot | RecordAccepted | RecordRefused | ReleaseSlot


# About runs and the process.


class RunReply(Struct, frozen=True, tag=True):
    run_id: str
    report: Report[dict[str, Any]] | None = None
    error: ErrorInfo | None = None


class StartFailed(Struct, frozen=True, tag=True):
    """Reports that the worker process cannot build its services, and ends."""

    reason: str


class MemoryReport(Struct, frozen=True, tag=True):
    """Memory of a worker process, in bytes; 0 if unknown."""

    id: int
    size: int


ToSession = (
    NodeFacts
    | AppendEvents
    | CallSession
    | Withdraw
    | ShowEvent
    | Charge
    | RequestAdmission
    | AddChild
    | EndAdmission
    | LimiterMessage
    | Pause
    | AnswerTime
    | ModelStart
    | ModelAppend
    | ModelRequest
    | ModelForget
    | RunReply
    | MemoryReport
    | StartFailed
)
