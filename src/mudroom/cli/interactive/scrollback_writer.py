"""Writer of a conversation into the scrollback: the root run's answers, tool calls and tasks."""

from __future__ import annotations

from collections import Counter

from ..._core.events import (
    AnyEvent,
    Compacted,
    Delta,
    MessageSent,
    PermissionDecided,
    RunFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnStarted,
)
from ..._core.messages import ToolCallBlock
from ..._core.runs import InboxMessage
from ..._core.tools import ToolResult
from ...projections.run_tree import RunState, RunTree, RunView
from ...projections.safe_text import sanitize, sanitize_line
from ..output.answer_stream import AnswerStream
from ..output.markdown import render_markdown
from ..output.scrollback import Scrollback
from ..output.text import Line, format_tokens, truncate
from ..output.tool_call_lines import format_tool_call

MAX_LISTED_TASKS = 12
"""Tasks of one answer that are listed one by one; of more, only failed ones are listed."""


class ScrollbackWriter:
    """Writer of the answers and tool calls of the root run; it takes the events of all runs.

    Arguments:
        tree: fold of the same events, which applies each event first.
        show_tasks: write the results of tasks, too.
    """

    def __init__(self, scrollback: Scrollback, tree: RunTree, *, show_tasks: bool = True) -> None:
        self._scrollback = scrollback
        self._tree = tree
        self._show_tasks = show_tasks
        self._answer = AnswerStream(self._write, self._mark_cut_off)
        self._calls: dict[str, ToolCallStarted] = {}
        self._denied_calls: set[str] = set()
        self._task_total = 0
        self._outcomes: Counter[RunState] = Counter()
        self._has_call_above = False
        self._latest: tuple[ToolCallStarted, ToolResult, RunView | None] | None = None

    @property
    def pending(self) -> str:
        """The last block of the streaming answer, not yet written."""
        return self._answer.pending

    def apply(self, event: AnyEvent) -> None:
        """Handle an event that the tree has already applied."""
        if not event.run or "." in event.run:
            return
        self._answer.apply(event)
        match event:
            case TurnStarted():
                self._write_task_totals()
            case ToolCallStarted():
                self._calls[event.call.id] = event
                self._task_total += event.view == "run"
            case PermissionDecided(verdict="ask", allowed=False):
                self._denied_calls.add(event.call_id)
            case ToolCallFinished() if event.call_id in self._denied_calls:
                self._calls.pop(event.call_id, None)  # The question and its answer were printed.
            case ToolCallFinished():
                self._write_call(event)
            case Delta(kind="search_end"):
                self._write_search(event.text)
            case Compacted() | MessageSent():
                self._write_notice(event)
            case RunFinished():
                self._write_task_totals()
                self._has_call_above = False
            case _:
                pass

    def format_latest_result(self) -> list[Line]:
        """Return the last finished tool call with its full result; empty if there is none."""
        if self._latest is None:
            return []
        scrollback = self._scrollback
        return format_tool_call(*self._latest, scrollback.columns(), scrollback.glyphs, full=True)

    def _write(self, markdown: str) -> None:
        scrollback = self._scrollback
        if self._has_call_above:
            scrollback.write("\n")
        self._has_call_above = False
        scrollback.write(
            render_markdown(markdown, columns=scrollback.columns(), color=scrollback.color)
        )

    def _mark_cut_off(self) -> None:
        self._scrollback.write_lines([("(the answer was cut off here)", "yellow")], [("", "")])

    def _write_message(self, message: InboxMessage) -> None:
        sender = "" if message.sender == "user" else f"message from {message.sender}: "
        text = f"  {self._scrollback.glyphs.arrow}{sanitize(sender + message.text)}"
        self._scrollback.write_lines([(text, "cyan")])

    def _write_notice(self, event: Compacted | MessageSent) -> None:
        if isinstance(event, MessageSent):
            self._write_message(event.message)
            return
        sizes = f"{format_tokens(event.before)} to {format_tokens(event.after)} tokens"
        text = f"Conversation compacted from {sizes}. /context says what the model still knows."
        self._scrollback.write_lines([(text, "dim")])

    def _write_search(self, text: str) -> None:
        self._has_call_above = True
        scrollback = self._scrollback
        line = f"{scrollback.glyphs.head}{sanitize_line(text)}"
        shown = truncate(line, scrollback.columns() - 1, scrollback.glyphs.more)
        scrollback.write_lines([(shown, "")])

    def _write_call(self, event: ToolCallFinished) -> None:
        never_started = ToolCallStarted(at=0.0, call=ToolCallBlock(event.call_id, event.name, {}))
        started = self._calls.pop(event.call_id, never_started)
        if started is never_started and not event.refused:
            return  # The run was stopped before the call.
        children = self._tree.children(event.run)
        child = next((run for run in children if run.call_id == event.call_id), None)
        self._latest = (started, event.result, child)
        if started.view == "run" and (not self._show_tasks or self._count_task(child)):
            return
        self._has_call_above = True
        scrollback = self._scrollback
        scrollback.write_lines(
            *format_tool_call(
                started, event.result, child, scrollback.columns() - 1, scrollback.glyphs
            )
        )

    def _count_task(self, child: RunView | None) -> bool:
        """Count a finished task. Return True if it needs no row: it succeeded, one of many."""
        state = child.state if child else RunState.FAILED
        self._outcomes[state] += 1
        return self._task_total > MAX_LISTED_TASKS and state is RunState.DONE

    def _write_task_totals(self) -> None:
        """Write the totals of the tasks of an answer if not all of them are listed."""
        if self._task_total > MAX_LISTED_TASKS and self._outcomes:
            counts = ", ".join(
                f"{self._outcomes[state]} {state}" for state in RunState if self._outcomes[state]
            )
            text = f"{self._scrollback.glyphs.head}{self._outcomes.total():,} tasks: {counts}"
            self._scrollback.write_lines([(text, "bold")], [("", "")])
        self._task_total = 0
        self._outcomes = Counter()
