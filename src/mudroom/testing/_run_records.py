"""State kept by the invariant checker for each run and tool call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from .._core.agents import WorkspaceKind
from .._core.events import (
    PermissionDecided,
    RunFinished,
    RunResumed,
    RunStarted,
    RunWaiting,
    StoredEvent,
    ToolCallStarted,
    WorkMerged,
)
from .._core.messages import AssistantMessage, TextBlock, ToolResultBlock, Usage
from .._core.runs import Brief, Reason, Report, is_next_run
from .._core.tools import ToolResult
from .._engine.child_report import NO_SUMMARY, REPORT_CAP
from .._engine.conversation import is_cut_off_result
from .._engine.inbox import make_end_id
from .._projections.engine_text import quote, unquote
from .._projections.transcript import build_transcript


class Violation(Struct, frozen=True):
    """A broken promise: its name ("S1" to "S11"), the run, and a description."""

    promise: str
    run: str
    description: str

    def __str__(self) -> str:
        return f"{self.promise} in run {self.run}: {self.description}"


class CallRecord:
    """The recorded facts of one tool call."""

    def __init__(self, started: ToolCallStarted | None, process: int) -> None:
        self.started = started
        self.process = process  # number of the process that started it, from 1
        self.result: ToolResult | None = None
        self.has_child = False
        self.is_cut_off_by_user = False

    @property
    def is_interrupted(self) -> bool:
        """True if the result only says that the call was interrupted."""
        result = self.result
        return result is not None and result.error and is_cut_off_result(result.text)


class ActiveTime:
    """Seconds during which a run or a run below it was active.

    Excludes the time between a crash and the resume, and the time until a lost run is ended.
    """

    def __init__(self, at: float) -> None:
        self.last = at
        self.seconds = 0.0
        self.was_paused = False
        self._seconds_before_last = 0.0

    def add(self, event: StoredEvent, *, is_own: bool) -> None:
        """Add the time since the last event; `is_own` is False for an event of a run below."""
        if event.at > self.last:
            self._seconds_before_last = self.seconds
            if not (is_own and isinstance(event, RunResumed)):
                self.seconds += event.at - self.last
            self.last = event.at
        is_lost = isinstance(event, RunFinished) and event.report.reason is Reason.LOST
        if is_own and is_lost and event.at == self.last:
            # The ends of its calls and of the runs below it were recorded at the same time.
            self.seconds = self._seconds_before_last
        asks = isinstance(event, PermissionDecided) and event.verdict == "ask"
        if asks or (isinstance(event, RunWaiting) and event.is_interrupted):
            self.was_paused = True


class RunRecord:
    """The recorded facts of one run."""

    def __init__(self, started: RunStarted) -> None:
        self.brief: Brief = started.brief
        self.time = ActiveTime(started.at)
        self.events: list[StoredEvent] = []
        self.processes = 1  # processes that have executed the run
        self.turn = 0
        self.turn_is_open = False  # its answer is missing
        self.in_grace = False  # in the grace turn, the last, which asks for a summary
        self.answered: set[int] = set()  # turns with an answer
        self.counted_turns = 0  # number of those, without the grace turn
        self.requested: set[str] = set()  # ids of the calls in the last answer
        self.used_ids: set[str] = set()  # of all calls
        self.calls: dict[str, CallRecord] = {}
        self.runs_below = 0
        self.messages: dict[str, str | None] = {}  # by id, None until the run reads them
        self.usage = Usage()
        self.finished: RunFinished | None = None

    @property
    def is_returned(self) -> bool:
        """True if the run begins with work that comes back without a call by its parent."""
        return bool(self.brief.workspace.tree) and is_next_run(self.brief.run_id)

    def allows_write(self, call_id: str) -> bool:
        # The files of a background child are merged after its call, or without one.
        call = self.calls.get(call_id)
        return call.result is None or call.has_child if call else not call_id

    def mark_cut_off_calls(self, event: RunWaiting) -> None:
        """Mark the calls cut off by a user's interrupt."""
        if event.is_interrupted:
            for call in (self.calls[call_id] for call_id in self.requested):
                call.is_cut_off_by_user = call.is_interrupted


def check_messages(run_id: str, run: RunRecord) -> Iterator[Violation]:
    """Yield violations of S11: messages left unread by a run with the reason GOAL."""
    if run.finished is None or run.finished.report.reason is not Reason.GOAL:
        return
    for message_id, text in run.messages.items():
        if text is None:
            yield Violation("S11", run_id, f"it ended before it read message {message_id}")


def get_delivered_words(report: Report) -> str:
    """Return what a run's parent must have read, without quotes: older records have none."""
    return unquote(quote(report.text.strip())[:REPORT_CAP]) or NO_SUMMARY


def check_notification(run_id: str, text: str, parent: RunRecord) -> Iterator[Violation]:
    """Yield violations of S4: a background child whose parent did not get its report's text."""
    assert parent.finished is not None
    notification = parent.messages.get(make_end_id(run_id))
    if notification is None:
        if parent.finished.report.reason is Reason.GOAL:
            yield Violation("S4", run_id, "its parent continued without its report")
    elif text not in unquote(notification) and "has ended; read " not in notification:
        yield Violation("S4", run_id, "its parent got a text that differs from its report")


def conversation_errors(run_id: str, run: RunRecord) -> Iterator[Violation]:
    """Yield violations of S7 in a run's conversation, as its next model call would send it."""
    open_calls: list[str] = []
    for message in build_transcript(run.events, run_id):
        if isinstance(message, AssistantMessage):
            if open_calls:
                yield Violation("S7", run_id, f"no results for calls {open_calls}")
            open_calls = [call.id for call in message.tool_calls]
            continue
        results = [block.call_id for block in message.content if isinstance(block, ToolResultBlock)]
        if results != open_calls:
            yield Violation("S7", run_id, f"results of calls {results} for calls {open_calls}")
        texts = [block.text for block in message.content if isinstance(block, TextBlock)]
        if not all(text.strip() for text in texts):
            yield Violation("S7", run_id, "an empty block")
        open_calls = []
    if open_calls:
        yield Violation("S7", run_id, f"no results for calls {open_calls}")


def has_own_files(run: RunRecord) -> bool:
    workspace = run.brief.workspace
    is_own = workspace.owner == run.brief.run_id
    return workspace.kind is WorkspaceKind.ISOLATED and is_own


def check_work(run_id: str, runs: Mapping[str, RunRecord]) -> Iterator[Violation]:
    """Yield violations of S13: an ended child's work, in files or git, not accounted for."""
    run = runs[run_id]
    merges = [e for e in runs[run.brief.parent].events if isinstance(e, WorkMerged)]
    last = next((event for event in reversed(merges) if event.child == run_id), None)
    if last is None:
        if run.finished and run.finished.report.turns:
            yield Violation("S13", run_id, "nothing says what became of its work")
        return
    work = run.finished.report.work if run.finished else None
    has_git_work = work and work.git and (work.git.only or work.git.unread)
    if has_git_work and not any(e.only_in_git for e in merges if e.child == run_id):
        yield Violation("S13", run_id, "nothing names the work that is only in its git")
    if last.state != "merged":
        return
    before = {event.returned: event.child for event in merges if event.returned}
    changed: set[str] = set()
    while run_id in runs:
        finished = runs[run_id].finished
        if finished and finished.report.work:
            changed.update(finished.report.work.files)
        run_id = before.get(run_id, "")
    if lost := sorted(changed.difference(last.files, last.left_out)):
        yield Violation("S13", last.child, f"neither merged nor named: {', '.join(lost)}")
