"""Events: the only record of a session. They nest like brackets: session > run > turn > tool call.

SessionOpened
  RunStarted | RunResumed         the brief: the whole input of the run; or the run continues
    MessageSent                   a message to the run; stored before it is delivered
    NoteInjected                  text for the model from the engine or a hook
    MessageDelivered              text of a message, added to the next request
    TurnStarted                   a model call begins
      Delta …                     streamed text; shown, never stored
      ModelCallRetried …          the call failed and is repeated; its streamed text is void
    TurnFinished | TurnFailed     the complete answer, stored before any of its tool calls starts
    ResultsCleared | Compacted    the next request has less of the earlier conversation
    PermissionDecided             a tool call was denied, or the approver was asked
    ToolCallStarted               intent: stored before the tool acts
      FileWriteIntended           stored before the file is written
      InputAnswered               the user answered a question of an MCP server
    ToolCallFinished              result: stored before the next step depends on it
    TeamMessageSent               a message to a named child; its run reads it, or its next run
    CheckStarted … CheckFinished  the command that checks the work of children
    WorkMerged                    files of a child came to the folder of its parent
    RunWaiting                    the run waits for its background children; no request is sent
  RunFinished                     the report
  ConversationRewound             the next prompt continues from an earlier one
SessionClosed

`field(name=...)` gives a field another key in the journal. The key never changes, so older records
stay readable. `gc=False`: see `messages`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Struct, field

from ..errors import JournalError
from .agents import FileConflict
from .json_values import clean_json, get_decoder
from .messages import AssistantMessage, Message, ToolCallBlock, Usage
from .runs import Brief, InboxMessage, MergeCounts, Overlap, Reason, Report, RequestHead
from .tools import ToolResult, ToolView

__all__ = [
    "AnyEvent",
    "CheckFinished",
    "CheckStarted",
    "Compacted",
    "ConversationRewound",
    "Delta",
    "Event",
    "FileWriteIntended",
    "InputAnswered",
    "MessageDelivered",
    "MessageSent",
    "ModelCallRetried",
    "NoteInjected",
    "PermissionDecided",
    "ResultsCleared",
    "RunFinished",
    "RunResumed",
    "RunStarted",
    "RunWaiting",
    "SessionClosed",
    "SessionOpened",
    "StoredEvent",
    "TeamMessageSent",
    "ToolCallFinished",
    "ToolCallStarted",
    "TurnFailed",
    "TurnFinished",
    "TurnStarted",
    "WorkMerged",
    "decode_event",
    "encode_event",
]


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """Fields common to all events.

    Arguments:
        at: seconds since 1970.
        run: run id, "" for events of the session itself.
        turn: number of the model call, from 1; 0 before the first one.
        prompt_id: "session#run id#turn": identifies a turn of a run.

    Attributes:
        comes_from_world: it depends on the world outside the engine, so a replay does not make it.
        outlives_task: later runs of the session may need it after its task has ended.
    """

    comes_from_world: ClassVar[bool] = False
    outlives_task: ClassVar[bool] = False

    at: float
    run: str = ""
    turn: int = 0
    prompt_id: str = ""


class SessionOpened(Event, frozen=True, tag="session_opened"):
    """A session was opened in a folder.

    Arguments:
        cwd: folder of the session.
        version: version of mudroom that opened it.
        sandbox: tier in which commands run.
        rights: what the user or a program allowed beyond the sandbox: network, allow rules. The
            record calls it `granted`.
        isolate, check: the options `isolate` and `check`, which `options` also has; a resume reads
            these two only in records of versions without it.
        board: file name of the task board offered to all runs, "" for none. Not the option `board`,
            which `options` leaves out.
        traceparent: span of the program that started mudroom if traces are exported, else "".
        output_style: name of the output style of the root agent, "" if none was chosen.
        options: non-default options that a resumed session restores, as JSON values by name;
            None in records of older versions.
    """

    session: str
    cwd: str
    version: str
    sandbox: str = ""
    rights: tuple[str, ...] = field(default=(), name="granted")
    isolate: bool = False
    board: str = ""
    check: str = ""
    traceparent: str = ""
    output_style: str = ""
    options: dict[str, Any] | None = None


class SessionClosed(Event, frozen=True, tag="session_closed"):
    """The session was closed normally."""


class ConversationRewound(Event, frozen=True, tag="conversation_rewound"):
    """The latest prompts were removed from the conversation.

    Arguments:
        latest_run: run id of the last prompt that remains, "" if none does.
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
        machine: name of the machine that now has the files of its isolated workspace; "" if that
            is where the session's folder is, None if unchanged.
    """

    comes_from_world = True

    head: RequestHead | None = None
    machine: str | None = None


class NoteInjected(Event, frozen=True, tag="note_injected"):
    """Text for the model in addition to its prompt and tool results.

    Arguments:
        origin: "engine" or "hook"; for a message its sender: "user", "mudroom" or a run id.
        refused: outputs the run must emit again; () if only their combination was wrong, None if
            the note is not about outputs.
    """

    text: str
    origin: str = "engine"
    refused: tuple[str, ...] | None = None


class MessageSent(Event, frozen=True, tag="message_sent"):
    """A message was sent to the run and waits for the next turn.

    Arguments:
        result: result of the background command the message reports, without its text.
    """

    message: InboxMessage
    result: ToolResult | None = None


class MessageDelivered(NoteInjected, frozen=True, kw_only=True, tag="message_delivered"):
    """A message becomes part of the next request; `text` is its text as the model reads it."""

    message_id: str


class TeamMessageSent(Event, frozen=True, tag="team_message_sent"):
    """A message to a named child of the run was sent.

    The child reads it once: either its current run receives it, or its next run starts with it.

    Arguments:
        to: name of the child.
        child: id of its first run; a newer child may have the same name.
        after: run id of the last prompt if the user sent the message while no prompt ran; `run`
            is then "", and the next prompt starts the child.
    """

    comes_from_world = True
    outlives_task = True

    to: str
    child: str
    message: InboxMessage
    after: str = ""


class RunWaiting(Event, frozen=True, tag="run_waiting"):
    """The run waits for a message without sending requests.

    Arguments:
        runs: ids of the children at work; after an interrupt also of background commands.
        is_interrupted: true if the user interrupted the run, which then waits for the user's next
            message. False if it has nothing left to do: a child's first message wakes it.
    """

    runs: tuple[str, ...] = ()
    is_interrupted: bool = False


class TurnStarted(Event, frozen=True, tag="turn_started"):
    """A model call begins.

    Arguments:
        summary_reason: why the run is ending, on the final turn that asks for a summary and has
            no tools; None on any other turn.
        max_tokens: longest answer the limits allowed, None if no limit counts answers.
    """

    summary_reason: Reason | None = field(name="grace", default=None)
    max_tokens: int | None = None


class TurnFinished(Event, frozen=True, tag="turn_finished"):
    """The model's complete answer, before its tool calls start. `seconds`: of the model call."""

    message: AssistantMessage
    seconds: float = 0.0


# The `error` of a TurnFailed when a limit or a cancel ended the call, not the provider.
CUT_OFF = "cut off before the answer was whole"


class TurnFailed(Event, frozen=True, tag="turn_failed"):
    """The model call failed for good, or a limit or a cancel cut it off.

    Arguments:
        transient: the same call may succeed later.
        text: the part of the answer that had streamed.
        overflow: estimated tokens of the request if it was refused as too long, else 0.
        estimate: estimated tokens and price if the provider had begun to answer, since it reports
            usage only with a complete answer. Budgets count them.
    """

    error: str
    transient: bool = False
    text: str = ""
    overflow: int = 0
    estimate: Usage = Usage()


class ModelCallRetried(Event, frozen=True, tag="model_call_retried"):
    """A model call failed and will be repeated after a delay.

    Arguments:
        attempt: number of the attempt that failed, from 1.
        delay: seconds until the next attempt.
        status: HTTP status, 0 for a lost connection.
    """

    comes_from_world = True

    attempt: int
    delay: float
    status: int = 0
    error: str = ""


class ResultsCleared(Event, frozen=True, tag="results_cleared"):
    """Short texts replace old tool results and long arguments in later requests.

    Arguments:
        texts: the new text of each result, by call id.
        tokens: estimated tokens saved per request.
        arguments: the new arguments of calls whose long texts were cut, by call id.
    """

    texts: dict[str, str]
    tokens: int = 0
    arguments: dict[str, dict[str, Any]] = {}  # msgspec copies it


class Compacted(Event, frozen=True, tag="compacted"):
    """The conversation continues from these messages, which replace all earlier ones.

    Arguments:
        messages: the new conversation, without results and notes still due in the next request.
        cause: "size", "overflow", "model" or "user".
        before, after: estimated tokens of the request, before and after.
        summary_run: id of the run that wrote the notes, even if it failed; "" if none was started.
        parts: how many things of each kind were kept, by name such as "files"; names ending in
            "_tokens" are sizes.
    """

    messages: tuple[Message, ...]
    cause: str = "size"
    before: int = 0
    after: int = 0
    summary_run: str = ""
    parts: dict[str, int] = {}  # msgspec copies it


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
        before, after: sha256 of the file's bytes, "" for no file; for a link, "link:" and the
            sha256 of its target path.
        old_mode: permission bits before; None for no file, for a link, and in older records.
        executable: true if its owner may execute the file afterwards; None if there is none then,
            for a link, and in older records.
    """

    comes_from_world = True

    call_id: str
    path: str
    before: str
    after: str
    old_mode: int | None = None
    executable: bool | None = None


class PermissionDecided(Event, frozen=True, tag="permission_decided"):
    """A tool call was denied by a rule or the mode, or the approver was asked.

    Arguments:
        verdict: "deny" or "ask".
        allowed: the final decision.
        policy_reason, approver_reason: why the policy and the approver decided as they did.
        rule: the rule that decided, with its origin, or "".
        command_part: the part of the command the decision is about, or "".
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
    """The user's answer to a question an MCP server or a tool asked during a call.

    Arguments:
        call_id, name: id of the call and name of its tool.
        server: who asked.
        message: the question. url: address to open, "" for a form.
        allowed: false if the user declined; `why` is then the reason.
        values: the answers by field.
    """

    comes_from_world = True

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
    """Streamed text of an answer, or a line about a search or call; shown, never stored.

    Arguments:
        kind: "text", "thinking", "call", "search_start", "search_end", "progress" for a line about
            the progress of a tool call, "output" for the last lines that a call has printed so
            far, or "waiting" for the limit that holds back a request.
        call_id: the call that "output" is of, "" for other kinds.
    """

    kind: str
    text: str
    call_id: str = ""


class WorkMerged(Event, frozen=True, tag="work_merged"):
    """The outcome of merging a child's isolated work into the files of the run.

    Arguments:
        child: id of the child run.
        state: "merged", "conflict", "red" (a check failed), "refused" or "dropped".
        files: paths of the changed files, relative to the workspace.
        conflicts: the files that could not be merged, with the kinds of their conflicts.
        text: what the model of the run reads about it.
        returned: id of the child's next run, which gets the work back; "" if none does.
        base: id of the tree with the run's files at that time.
        tree: id of the tree that next run starts with: both sides, with conflict marks.
        check: command of the check; if it failed, also how and the end of its output.
        call: place of the call of `merge` that asked for it; "" when the child ended.
        overlaps: files that other children changed as well.
        open_conflicts: the same conflicts, with what the child needs to decide them.
        own: id of the tree with the child's version of these files.
        left_out: paths the child changed but that keep the run's version, because the child or a
            call of `merge` decided so.
        only_in_git: see `MergeCounts`.
    """

    comes_from_world = True
    outlives_task = True

    child: str
    state: str
    files: tuple[str, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    text: str = ""
    returned: str = ""
    base: str = ""
    tree: str = ""
    check: str = ""
    call: str = ""
    overlaps: tuple[Overlap, ...] = ()
    open_conflicts: tuple[FileConflict, ...] = ()
    own: str = ""
    left_out: tuple[str, ...] = ()
    only_in_git: tuple[str, ...] = ()


class CheckStarted(Event, frozen=True, tag="check_started"):
    """A check of merged files begins.

    Arguments:
        command: the bash command.
        tree: id of the tree with the files.
        children: ids of the child runs whose work is in the tree; () for the files without it.
    """

    comes_from_world = True
    outlives_task = True

    command: str
    tree: str
    children: tuple[str, ...] = ()


class CheckFinished(Event, frozen=True, tag="check_finished"):
    """A check of merged files has ended.

    Arguments:
        command, tree, children: see CheckStarted.
        exit_code: exit code of the command.
        timed_out: true if the time limit ended it.
        seconds: duration.
        output: the end of its output.
    """

    comes_from_world = True
    outlives_task = True

    command: str
    tree: str
    children: tuple[str, ...] = ()
    exit_code: int = 0
    timed_out: bool = False
    seconds: float = 0.0
    output: str = ""

    @property
    def is_green(self) -> bool:
        """True if the command succeeded within its time limit."""
        return self.exit_code == 0 and not self.timed_out


def count_merges(events: Iterable[WorkMerged]) -> MergeCounts | None:
    """Count what became of the work in the events; None if there was none.

    Work that came back to its child counts once.
    """
    first_runs: dict[str, str] = {}
    works: dict[str, list[WorkMerged]] = {}
    for event in events:
        first = first_runs.get(event.child, event.child)
        if event.returned:
            first_runs[event.returned] = first
        works.setdefault(first, []).append(event)
    if not works:
        return None  # most runs have no isolated children
    counted = [merges for merges in works.values() if any(map(_has_changes, merges))]
    # The call that drops work says nothing of its git.
    events_with_git = (event for merges in works.values() for event in merges if event.only_in_git)
    only_in_git = {event.child: event.only_in_git for event in events_with_git}
    if not counted and not only_in_git:
        return None
    landed = [merges for merges in counted if merges[-1].state == "merged"]
    states = [{event.state for event in merges} for merges in landed]
    return MergeCounts(
        works=len(counted),
        landed=len(landed),
        after_conflict=sum("conflict" in each for each in states),
        after_red=sum("red" in each for each in states),
        unmerged={
            merges[-1].child: merges[-1].state for merges in counted if merges[-1].state != "merged"
        },
        checks=tuple(dict.fromkeys(filter(None, (merges[-1].check for merges in landed)))),
        only_in_git=only_in_git,
    )


def _has_changes(event: WorkMerged) -> bool:
    return event.state != "merged" or bool(event.files)


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
"""One event as a watcher receives it. The classes above are all kinds there are.

Example:
    def print_event(event: AnyEvent) -> None:
        print(event.run, event.turn, type(event).__name__)

    session.watch(print_event)
"""


_encoder = msgspec.json.Encoder(enc_hook=repr)
_KIND = cast("type[StoredEvent]", StoredEvent)


def encode_event(event: StoredEvent) -> bytes:
    """Encode an event as JSON in UTF-8.

    Values that JSON cannot hold are stored as their `repr`, surrogates as in `clean_text`.

    Arguments:
        event: the event.

    Raises JournalError for a Delta, and for an event that nests too deeply.

    Example:
        body = encode_event(RunWaiting(run="r1", at=0.0))
        assert decode_event(body).run == "r1"
    """
    if isinstance(event, Delta):
        raise JournalError("a Delta cannot be stored", remedy="Append the whole answer instead.")
    try:
        return _encoder.encode(event)
    except (ValueError, OverflowError):  # a surrogate, or a number with too many digits
        return _encoder.encode(clean_json(msgspec.to_builtins(event, enc_hook=repr)))
    except RecursionError as error:
        message = "an event nests too deeply to be recorded"
        raise JournalError(message, where=f"run {event.run}") from error


def decode_event(body: bytes) -> StoredEvent:
    """Decode an event.

    Arguments:
        body: what `encode_event` returned.

    Raises ValueError if the bytes are not an event.

    Example:
        try:
            decode_event(b"{}")
        except ValueError:
            print("not an event")
    """
    try:
        return get_decoder(_KIND).decode(body)
    except RecursionError as error:
        raise ValueError(str(error)) from error
