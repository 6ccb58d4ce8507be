"""Events: the only record of a session. They nest like brackets: session > run > turn > tool call.

SessionOpened
  RunStarted                      the brief: the whole input of the run
    MessageSent                   a message to the run; stored before it is delivered
    NoteInjected                  text of the engine or a hook for the model
    MessageDelivered              text of a message, added to the next request
    TurnStarted                   a model call begins
      Delta …                     streamed text; shown, never stored
      ModelCallRetried …          the call failed and is repeated; its streamed text is void
    TurnFinished | TurnFailed     the complete answer, stored before any of its tool calls starts
    ResultsCleared | Compacted    the next request has less of the earlier conversation
    PermissionDecided             a tool call was denied, or the approver was asked
    ToolCallStarted               intent: stored before the tool acts
      FileWriteIntended           stored before the file is written
    ToolCallFinished              result: stored before the next step depends on it
    TeamMessageSent               a message to a named child; its run reads it, or its next run
    RunWaiting                    the run waits for its background children; no request is sent
  RunFinished                     the report
SessionClosed

`field(name=...)` gives a field another key in the journal. The key never changes, so older records
stay readable. `gc=False`: see `messages`.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from .event import Event
from .merge_events import CheckFinished, CheckStarted, WorkMerged
from .messages import AssistantMessage, Message, ToolCallBlock, Usage
from .runs import Brief, InboxMessage, Reason, Report, RequestHead
from .tools import ToolResult, ToolView


class SessionOpened(Event, frozen=True, tag="session_opened"):
    """A session was opened in a folder.

    Arguments:
        cwd: folder of the session.
        version: version of mudroom that opened it.
        sandbox: tier in which commands run.
        granted: rights beyond the sandbox that the user or a program gave: network, allow rules.
        isolate: true if children that may change files have isolated workspaces by default.
        check: command that must succeed with merged files; "" for none.
        board: file name of the task board that is offered to all runs, "" for none.
        traceparent: span of the program that started mudroom, if traces are exported; else "".
        output_style: name of the output style of the root agent, "" if none was chosen.
        options: options of the session that a resumed one has again, without defaults, as JSON
            values by name; None in records of older versions.
    """

    session: str
    cwd: str
    version: str
    sandbox: str = ""
    granted: tuple[str, ...] = ()
    isolate: bool = False
    board: str = ""
    check: str = ""
    traceparent: str = ""
    output_style: str = ""
    options: dict[str, Any] | None = None


class SessionClosed(Event, frozen=True, tag="session_closed"):
    """The session was closed normally."""


class ConversationRewound(Event, frozen=True, tag="conversation_rewound"):
    """The last prompts were removed from the conversation.

    Arguments:
        latest_run: the last prompt that remains, "" if none does.
    """

    latest_run: str


class RunStarted(Event, frozen=True, tag="run_started"):
    """A run begins with this brief.

    Arguments:
        head: system prompt and tools of its requests; None in records of older versions.
    """

    brief: Brief
    head: RequestHead | None = None


class RunResumed(Event, frozen=True, tag="run_resumed"):
    """The run continues from its last recorded step, in another process than before.

    Arguments:
        head: system prompt and tools of its requests from now on.
        machine: name of the machine that has the files of its isolated workspace from now on; "" if
            that is where the folder of the session is, None if the event does not say it.
    """

    head: RequestHead | None = None
    machine: str | None = None


class NoteInjected(Event, frozen=True, tag="note_injected"):
    """Text for the model beside its prompt and tool results.

    Arguments:
        origin: "engine" or "hook"; of a message its sender: "user", "mudroom" or a run id.
        refused: outputs that the run must emit again; () if only their combination was wrong, None
            if the note is not about outputs.
    """

    text: str
    origin: str = "engine"
    refused: tuple[str, ...] | None = None


class MessageSent(Event, frozen=True, tag="message_sent"):
    """A message was sent to the run and waits for the next turn.

    Arguments:
        result: result of the background command that the message reports, without its text.
    """

    message: InboxMessage
    result: ToolResult | None = None


class MessageDelivered(NoteInjected, frozen=True, kw_only=True, tag="message_delivered"):
    """A message becomes part of the next request; `text` is its text as the model reads it."""

    message_id: str


class TeamMessageSent(Event, frozen=True, tag="team_message_sent"):
    """A message to a named child of the run was sent.

    The child reads it once: its run at work gets it, or its next run begins with it.

    Arguments:
        to: name of the child.
        child: id of its first run; a newer child may have the same name.
        after: id of the last prompt, if the user sent the message while no prompt ran; `run` is
            then "". The next prompt starts the child.
    """

    to: str
    child: str
    message: InboxMessage
    after: str = ""


class RunWaiting(Event, frozen=True, tag="run_waiting"):
    """The run waits for a message, without a request.

    Arguments:
        runs: ids of the children that work; after an interrupt those of background commands, too.
        is_interrupted: true if the user interrupted the run: it waits for the next message of the
            user. False if it has no more to do: the first message of a child wakes it.
    """

    runs: tuple[str, ...] = ()
    is_interrupted: bool = False


class TurnStarted(Event, frozen=True, tag="turn_started"):
    """A model call begins.

    Arguments:
        summary_reason: None, except on the turn that asks for a summary at the end: the reason
            why the run ends. That turn has no tools.
        max_tokens: longest answer that the limits allowed, None if no limit counts answers.
    """

    summary_reason: Reason | None = field(name="grace", default=None)
    max_tokens: int | None = None


class TurnFinished(Event, frozen=True, tag="turn_finished"):
    """The complete answer of the model. `seconds`: duration of the call."""

    message: AssistantMessage
    seconds: float = 0.0


CUT_OFF = "cut off before the answer was whole"
"""Error of a turn whose model call a limit or a cancel cut off."""


class TurnFailed(Event, frozen=True, tag="turn_failed"):
    """The model call failed finally, or a limit or a cancel cut it off.

    Arguments:
        transient: the same call may succeed later.
        text: the text of the answer that streamed before.
        overflow: about how many tokens the request had, if it was refused as too long; else 0.
        estimate: tokens of the call and their price, estimated where the provider had begun to
            answer: it tells them only with a complete answer. Budgets count them.
    """

    error: str
    transient: bool = False
    text: str = ""
    overflow: int = 0
    estimate: Usage = Usage()


class ModelCallRetried(Event, frozen=True, tag="model_call_retried"):
    """A model call failed and is repeated after a delay.

    Arguments:
        attempt: number of the attempt that failed, from 1.
        delay: seconds until the next attempt.
        status: HTTP status, 0 for a lost connection.
    """

    attempt: int
    delay: float
    status: int = 0
    error: str = ""


class ResultsCleared(Event, frozen=True, tag="results_cleared"):
    """The next requests have short texts in place of old tool results and long arguments.

    Arguments:
        texts: the new text of each result, by call id.
        tokens: about how many tokens the requests have less.
        arguments: the new arguments of calls whose long texts were cut, by call id.
    """

    texts: dict[str, str]
    tokens: int = 0
    arguments: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (msgspec copies it)


class Compacted(Event, frozen=True, tag="compacted"):
    """The conversation continues from these messages, in place of all before.

    Arguments:
        messages: the new conversation, without results and notes that wait for the next request.
        cause: "size", "overflow", "model" or "user".
        before, after: about how many tokens the request had, and has.
        summary_run: id of the run that wrote the notes, also if it failed; "" if none was started.
        parts: numbers of the kept things by name, such as "files"; those that end in "_tokens" are
            sizes.
    """

    messages: tuple[Message, ...]
    cause: str = "size"
    before: int = 0
    after: int = 0
    summary_run: str = ""
    parts: dict[str, int] = {}  # noqa: RUF012  (msgspec copies it)


class ToolCallStarted(Event, frozen=True, tag="tool_call_started"):
    """The intent to run a tool call.

    Arguments:
        title: what the call is about, one line that is safe to print.
        view: how screens show the call.
    """

    call: ToolCallBlock
    title: str = ""
    view: ToolView = ""


class FileWriteIntended(Event, frozen=True, tag="file_write_intended"):
    """A tool call is about to change a file.

    Arguments:
        before, after: sha256 of the file's bytes, "" if there is no file; of a link "link:" and the
            sha256 of its path.
    """

    call_id: str
    path: str
    before: str
    after: str


class PermissionDecided(Event, frozen=True, tag="permission_decided"):
    """A tool call was denied by a rule or the mode, or the approver was asked.

    Arguments:
        verdict: "deny" or "ask".
        allowed: the final decision.
        policy_reason, approver_reason: why the policy, and the approver, decided so.
        rule: the rule that decided, with its origin, or "".
        command_part: the part of a command that the decision is about, or "".
    """

    call_id: str
    name: str
    verdict: str
    allowed: bool
    policy_reason: str = field(name="why", default="")
    approver_reason: str = field(name="answer", default="")
    rule: str = ""
    command_part: str = field(name="part", default="")


class InputAnswered(Event, frozen=True, tag="input_answered"):
    """The answer to a question that an MCP server or a tool asked the user during a call.

    Arguments:
        call_id, name: of the call. server: that asked.
        message: the question. url: address to open, "" for a form.
        allowed: false if it was declined; then `why` is the reason.
        values: the answers by field.
    """

    call_id: str
    name: str
    server: str
    message: str
    allowed: bool
    url: str = ""
    why: str = ""
    values: dict[str, Any] = field(default_factory=dict[str, Any])


class ToolCallFinished(Event, frozen=True, tag="tool_call_finished"):
    """The result of a tool call.

    Arguments:
        refused: the call never acted: unknown tool, invalid arguments, denied.
    """

    call_id: str
    name: str
    result: ToolResult
    seconds: float = 0.0
    refused: bool = False


class RunFinished(Event, frozen=True, tag="run_finished"):
    """The end of a run, with its report."""

    report: Report


class Delta(Event, frozen=True, tag="delta"):
    """Streamed text of an answer, or a line about a web search or a call; shown, never stored.

    Arguments:
        kind: "text", "thinking", "call", "search_start", "search_end", "progress" for a line about
            the progress of a tool call, or "waiting" for the limit that holds back a request.
    """

    kind: str
    text: str


StoredEvent = (
    SessionOpened
    | SessionClosed
    | ConversationRewound
    | RunStarted
    | RunResumed
    | NoteInjected
    | MessageSent
    | MessageDelivered
    | TeamMessageSent
    | RunWaiting
    | TurnStarted
    | TurnFinished
    | TurnFailed
    | ModelCallRetried
    | ResultsCleared
    | Compacted
    | WorkMerged
    | CheckStarted
    | CheckFinished
    | PermissionDecided
    | ToolCallStarted
    | FileWriteIntended
    | InputAnswered
    | ToolCallFinished
    | RunFinished
)
"""One event of the journal: every event except streamed text."""
AnyEvent = StoredEvent | Delta
"""One event as a watcher receives it. The page "journal and ledger" lists all of them.

Example:
    def print_event(event: AnyEvent) -> None:
        print(event.run, event.turn, type(event).__name__)

    session.watch(print_event)
"""
