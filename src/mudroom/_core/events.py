"""Facts that happened, the only truth about a session. They nest like brackets: session > run > turn > call.

SessionOpened
  RunStarted                      the brief: all that went in
    Told                          a word of the engine's or the person's to the model
    TurnStarted                   a model call is about to be made
      Delta …                     words as they arrive; shown, never stored
      Retried …                   the call failed and is tried again; what was streamed of it is void
    TurnFinished | TurnFailed     the whole answer, stored before any of its calls starts
    Judged                        a call was denied, or somebody was asked
    CallStarted  → CallFinished   intent, act, result; each durable before the next, but for quick pure calls
  RunFinished                     the report
SessionClosed
"""

from __future__ import annotations

from msgspec import Struct

from .agents import Brief, Reason, Report
from .messages import AssistantMessage, ToolCallBlock
from .tools import ToolResult


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What every event carries.

    Arguments:
        run: run id, "" for events of the session. turn: number of the model call, from 1; 0 before the first.
        prompt_id: "session#agent#turn" (seed 004), the thread through logs and traces. at: seconds since 1970.
    """

    at: float
    run: str = ""
    turn: int = 0
    prompt_id: str = ""


class SessionOpened(Event, frozen=True, tag="session_opened"):
    """A person or program opened a session in a folder.

    Arguments:
        sandbox: the tier its commands run in. granted: what they or a program of theirs gave it beyond that: the network, allow rules.
    """

    session: str
    cwd: str
    version: str
    sandbox: str = ""
    granted: tuple[str, ...] = ()


class SessionClosed(Event, frozen=True, tag="session_closed"):
    """The session was left in good order."""


class RunStarted(Event, frozen=True, tag="run_started"):
    """A run begins with this brief."""

    brief: Brief


class RunResumed(Event, frozen=True, tag="resumed"):
    """The run goes on from its last step, in another process than the one that began it."""


class NoteInjected(Event, frozen=True, tag="told"):
    """Words added for the model beside its prompt and results. `origin`: engine, person, parent."""

    text: str
    origin: str = "engine"


class TurnStarted(Event, frozen=True, tag="turn_started"):
    """A model call is about to be made. `grace`: the reason the run ends for, on the turn without tools that asks for a summary."""

    grace: Reason | None = None


class TurnFinished(Event, frozen=True, tag="turn_finished"):
    """The model's whole answer. `seconds`: how long it took."""

    message: AssistantMessage
    seconds: float = 0.0


class TurnFailed(Event, frozen=True, tag="turn_failed"):
    """The model call failed for good, or was cut off by a limit or a cancel. `transient`: the same call may work later."""

    error: str
    transient: bool = False


class ModelCallRetried(Event, frozen=True, tag="retried"):
    """A model call failed and will be made again after `delay` seconds; `status` is HTTP's, 0 for a lost connection."""

    attempt: int
    delay: float
    status: int = 0
    error: str = ""


class ToolCallStarted(Event, frozen=True, tag="call_started"):
    """The intent: this call is about to act."""

    call: ToolCallBlock


class FileWriteIntended(Event, frozen=True, tag="changing"):
    """A file is about to be changed by a call. `before`, `after`: sha256 of its bytes, "" where there is no file."""

    call_id: str
    path: str
    before: str
    after: str


class PermissionDecided(Event, frozen=True, tag="judged"):
    """A call was not simply allowed: a rule or the run's mode denied it, or somebody was asked.

    Arguments:
        verdict: "deny" or "ask". allowed: what came of it. why: the rules' reason; answer: the words of who was asked.
        rule: the rule that decided, with its origin, or "". part: the piece of a command it is about, or "".
    """

    call_id: str
    name: str
    verdict: str
    allowed: bool
    why: str = ""
    answer: str = ""
    rule: str = ""
    part: str = ""


class ToolCallFinished(Event, frozen=True, tag="call_finished"):
    """The result of a call. `refused` calls never acted: unknown, invalid, denied."""

    call_id: str
    name: str
    result: ToolResult
    seconds: float = 0.0
    refused: bool = False


class RunFinished(Event, frozen=True, tag="run_finished"):
    """The run's report."""

    report: Report


class Delta(Event, frozen=True, tag="delta"):
    """Words as they arrive. `kind`: text, thinking or call. Shown, never stored."""

    kind: str
    text: str


StoredEvent = (
    SessionOpened
    | SessionClosed
    | RunStarted
    | RunResumed
    | NoteInjected
    | TurnStarted
    | TurnFinished
    | TurnFailed
    | ModelCallRetried
    | PermissionDecided
    | ToolCallStarted
    | FileWriteIntended
    | ToolCallFinished
    | RunFinished
)
AnyEvent = StoredEvent | Delta
"""One fact, as a watcher is told it; the page "journal and ledger" has the list.

Example:
    def tell(event: AnyEvent) -> None:
        print(event.run, event.turn, type(event).__name__)

    session.watch(tell)
"""
