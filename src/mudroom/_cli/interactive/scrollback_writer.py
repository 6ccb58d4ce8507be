"""Writes a conversation to the scrollback: the root run's answers, tool calls and tasks."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from ..._core.events import (
    AnyEvent,
    Compacted,
    Delta,
    MessageSent,
    ModelCallRetried,
    PermissionDecided,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from ..._core.listings import count_noun
from ..._core.messages import AssistantMessage, ThinkingBlock, ToolCallBlock
from ..._core.runs import InboxMessage, is_child_id
from ..._core.tools import ToolResult
from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunState, RunView
from ..._projections.safe_text import make_call_title, sanitize, sanitize_line
from ..._projections.transcript import find_rules, is_marked
from ..output.answer_stream import AnswerStream
from ..output.markdown import format_unfinished, render_markdown
from ..output.scrollback import Scrollback
from ..output.text import (
    Glyphs,
    Line,
    format_tokens,
    measure_width,
    truncate,
    wrap,
    wrap_last_lines,
)
from ..output.tool_call_lines import format_finished_command, format_task, format_tool_call

# Tasks per answer; of longer lists, only failed tasks are shown.
MAX_LISTED_TASKS = 12

# Rules listed per message when they are found.
MAX_LISTED_RULES = 5


class ScrollbackWriter:
    """Writes the root run's answers and tool calls; takes the events of all runs.

    The tree applies each event first. `printed_runs` are children whose results have been written.
    """

    def __init__(self, scrollback: Scrollback, tree: RunTree, *, show_tasks: bool = True) -> None:
        self._scrollback = scrollback
        self._tree = tree
        self._show_tasks = show_tasks
        self._answer = AnswerStream(self._write, self._mark_cut_off)
        self._calls: dict[str, ToolCallStarted] = {}
        self.printed_runs: set[str] = set()
        self._denied_calls: set[str] = set()
        self._task_total = 0
        self._outcomes: Counter[RunState] = Counter()
        self._has_call_above = False
        self._group = CallGroup()
        self._thinking = ThinkingFold()
        self._todo_lines: list[str] = []
        # What Ctrl+O prints: a tool call, or the notes of a compaction.
        self._latest: tuple[ToolCallStarted, ToolResult, RunView | None] | str | None = None
        self._is_compaction = False
        self._hidden_messages: list[str] = []

    def hide_message(self, text: str) -> None:
        """Skip the user's next message with this text, which the input line shows."""
        self._hidden_messages.append(text)

    def format_pending(self, columns: int, height: int) -> list[Line]:
        """Format what is still to be written: grouped calls, thinking, the end of the answer."""
        scrollback = self._scrollback
        lines = self._group.format_lines(columns, scrollback.glyphs)
        lines += self._thinking.format_lines(columns, scrollback.glyphs)
        room = height - len(lines)
        lines += format_unfinished(
            self._answer.pending,
            columns=columns,
            height=room,
            color=scrollback.color,
            glyphs=scrollback.glyphs,
        )
        return lines[-height:] if height > 0 else []

    def apply(self, event: AnyEvent) -> None:
        """Handle an event that the tree has already applied."""
        if not event.run or is_child_id(event.run):
            return
        if isinstance(event, RunStarted):
            self._is_compaction = event.brief.is_compaction
        if self._is_compaction:
            self._fold_notes(event)
        else:
            self._apply_to_conversation(event)

    def _apply_to_conversation(self, event: AnyEvent) -> None:
        self._write_thinking(event)
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
                self._has_call_above = True
            case ToolCallFinished():
                self._write_call(event)
            case Delta(kind="search_end"):
                self._write_search(event.text)
            case Compacted() | MessageSent() | RunStarted():
                self._write_notice(event)
            case RunFinished():
                self._write_group()
                self._write_task_totals()
                self._has_call_above = False
            case _:
                pass

    def format_latest_result(self) -> list[Line]:
        """Format the last thinking or finished tool call in full."""
        scrollback = self._scrollback
        if self._thinking.is_latest:
            return self._thinking.format_full(scrollback.columns() - 1)
        if self._latest is None:
            return []
        if isinstance(self._latest, str):
            rows = sanitize(self._latest).splitlines()
            return [[(part, "")] for row in rows for part in wrap(row, scrollback.columns() - 1)]
        return format_tool_call(*self._latest, scrollback.columns(), scrollback.glyphs, full=True)

    def _fold_notes(self, event: AnyEvent) -> None:
        """Keep a compaction's notes for Ctrl+O; they are no answer."""
        if isinstance(event, TurnFinished):
            self._latest = event.message.text
            self._thinking.is_latest = False
        elif isinstance(event, Compacted):
            self._write_notice(event)
        elif isinstance(event, RunFinished):
            self._is_compaction = False

    def _write_thinking(self, event: AnyEvent) -> None:
        folded = self._thinking.apply(event)
        if folded:
            self._write_group()
            scrollback = self._scrollback
            text = truncate(folded, scrollback.columns() - 1, scrollback.glyphs.more)
            scrollback.write_lines([(text, "dim")])
            self._has_call_above = True

    def _write_group(self) -> None:
        """Write the calls that were waiting for more of their kind."""
        scrollback = self._scrollback
        lines = self._group.take_lines(scrollback.columns() - 1, scrollback.glyphs)
        if lines:
            scrollback.write_lines(*lines)
            self._has_call_above = True

    def _write(self, markdown: str, ends: bool) -> None:
        self._write_group()
        scrollback = self._scrollback
        if self._has_call_above:
            scrollback.write("\n")
        self._has_call_above = False
        scrollback.write(
            render_markdown(
                markdown, columns=scrollback.columns(), color=scrollback.color, ends=ends
            )
        )

    def _mark_cut_off(self) -> None:
        self._scrollback.write_lines([("(the answer was cut off here)", "yellow")], [("", "")])

    def _write_message(self, message: InboxMessage) -> None:
        run = self._tree.runs.get(message.sender)
        if message.kind == "notification":
            self._write_notification(message, run)
            return
        is_from_user = message.sender == "user"
        if is_from_user and message.text in self._hidden_messages:
            self._hidden_messages.remove(message.text)
        else:
            name = run.label if run else sanitize_line(message.name or message.sender)
            sender = "" if is_from_user else f"message from {name}: "
            text = f"  {self._scrollback.glyphs.arrow}{sanitize(sender + message.text)}"
            self._scrollback.write_lines([(text, "cyan")])
        if is_from_user:
            self._write_rules(message.text)

    def _write_notification(self, message: InboxMessage, run: RunView | None) -> None:
        """Write what a background child or command did, formatted like a finished task."""
        columns = self._scrollback.columns() - 1
        glyphs = self._scrollback.glyphs
        if not run:
            lines = format_finished_command(message.text, columns, glyphs)
            self._scrollback.write_lines(*lines)
        elif self._show_tasks:
            self._scrollback.write_lines(*format_task(run, columns, glyphs))
            self.printed_runs.add(run.run_id)
        self._has_call_above = True

    def _write_notice(self, event: Compacted | MessageSent | RunStarted) -> None:
        self._write_group()
        if isinstance(event, RunStarted):
            self._write_rules(event.brief.prompt)
            return
        if isinstance(event, MessageSent):
            self._write_message(event.message)
            return
        sizes = f"{format_tokens(event.before)} to {format_tokens(event.after)} tokens"
        text = f"Conversation compacted from {sizes}. /context says what the model still knows"
        # Only a compaction requested by the user is a separate run, with notes and an undo.
        more = "; ctrl+o shows its notes, /rewind undoes it." if self._is_compaction else "."
        self._scrollback.write_text(text + more, "dim")

    def _write_rules(self, text: str) -> None:
        """Write the lines of a user's message that compactions keep as rules."""
        scrollback = self._scrollback
        rules = [rule for rule, line in find_rules([text]).items() if not is_marked(line)]
        lines = [f"Rule for every compaction: {sanitize_line(rule)}" for rule in rules]
        if not lines:
            return
        hidden = len(lines) - MAX_LISTED_RULES
        more = f"{count_noun(hidden, 'more rule')}. " if hidden > 0 else ""
        lines[MAX_LISTED_RULES:] = []
        lines.append(f"{more}/pin lists the rules, /unpin removes one.")
        columns = scrollback.columns() - 1
        scrollback.write_lines(
            *([(truncate(line, columns, scrollback.glyphs.more), "dim")] for line in lines)
        )

    def _write_search(self, text: str) -> None:
        self._write_group()
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
        self._thinking.is_latest = False
        if started.view == "run" and (not self._show_tasks or self._count_task(child)):
            return
        result = self._keep_changed_todos(event) if started.view == "todos" else event.result
        scrollback = self._scrollback
        lines = format_tool_call(
            started, result, child, scrollback.columns() - 1, scrollback.glyphs
        )
        if len(lines) == 1 and not result.error:
            title = started.title or make_call_title(started.call.arguments)
            self._group.add(event.name, sanitize_line(title), lines[0])
            return
        self._write_group()
        self._has_call_above = True
        scrollback.write_lines(*lines)
        if child and child.report:
            self.printed_runs.add(child.run_id)

    def _keep_changed_todos(self, event: ToolCallFinished) -> ToolResult:
        """Keep only the result's lines that are new in the list."""
        lines = event.result.text.splitlines()
        changed = [line for line in lines if line not in self._todo_lines]
        self._todo_lines = lines
        return replace(event.result, text="\n".join(changed or ["no change"]))

    def _count_task(self, child: RunView | None) -> bool:
        """Count a finished task. Return True if it needs no row: one of many, and successful."""
        state = child.state if child else RunState.FAILED
        self._outcomes[state] += 1
        return self._task_total > MAX_LISTED_TASKS and state is RunState.DONE

    def _write_task_totals(self) -> None:
        """Write the totals of an answer's tasks if not all are listed."""
        if self._task_total > MAX_LISTED_TASKS and self._outcomes:
            counts = ", ".join(
                f"{self._outcomes[state]} {state}" for state in RunState if self._outcomes[state]
            )
            self._write_group()
            text = f"{self._scrollback.glyphs.head}{self._outcomes.total():,} tasks: {counts}"
            self._scrollback.write_lines([(text, "bold")], [("", "")])
        self._task_total = 0
        self._outcomes = Counter()


# Smaller groups show a line for each call.
MIN_GROUPED_CALLS = 4


class CallGroup:
    def __init__(self) -> None:
        self._calls: list[tuple[str, str, Line]] = []

    def add(self, name: str, title: str, line: Line) -> None:
        self._calls.append((name, title, line))

    def take_lines(self, columns: int, glyphs: Glyphs) -> list[Line]:
        lines = self.format_lines(columns, glyphs)
        self._calls.clear()
        return lines

    def format_lines(self, columns: int, glyphs: Glyphs) -> list[Line]:
        """Format a line per call or, for many, the counts and the first titles."""
        if len(self._calls) < MIN_GROUPED_CALLS:
            return [line for _, _, line in self._calls]
        counts = Counter(name for name, _, _ in self._calls)
        names = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        head = f"{glyphs.head}{count_noun(len(self._calls), 'call')}: {names}"
        stem = f"  {glyphs.hook}"
        titles = ", ".join(dict.fromkeys(title for _, title, _ in self._calls if title))
        room = columns - measure_width(stem)
        return [
            [(truncate(head, columns, glyphs.more), "")],
            [(stem, "dim"), (truncate(titles, room, glyphs.more), "dim")],
        ]


# Rows shown of streamed thinking.
STREAMED_ROWS = 2


class ThinkingFold:
    """The root run's thinking; `is_latest` if no result came after it."""

    def __init__(self) -> None:
        self.is_latest = False
        self._streamed = ""
        self._complete = ""
        self._is_folded = False

    def apply(self, event: AnyEvent) -> str:
        """Add an event; return the line for thinking that is now complete, "" for none."""
        match event:
            case TurnStarted():
                self._is_folded = False
                self._streamed = ""
            case Delta(kind="thinking"):
                self._streamed += event.text
            case Delta():
                return self._fold(self._streamed)
            case TurnFinished():
                return self._fold(self._streamed or _join_thinking(event.message))
            case TurnFailed() | ModelCallRetried():
                self._streamed = ""
            case _:
                pass
        return ""

    def format_lines(self, columns: int, glyphs: Glyphs) -> list[Line]:
        rows = wrap_last_lines(sanitize(self._streamed), columns - 2, STREAMED_ROWS)
        return [[(f"  {row}", "dim")] for row in rows]

    def format_full(self, columns: int) -> list[Line]:
        lines = sanitize(self._complete).strip().splitlines()
        return [[(row, "dim")] for line in lines for row in wrap(line, columns)]

    def _fold(self, text: str) -> str:
        self._streamed = ""
        if self._is_folded or not text.strip():
            return ""
        self._is_folded = True
        self.is_latest = True
        self._complete = text
        lines = text.strip().splitlines()
        size = count_noun(len(lines), "line")
        return f"Thought ({size}, ctrl+o): {sanitize_line(lines[0])}"


def _join_thinking(message: AssistantMessage) -> str:
    blocks = [block for block in message.content if isinstance(block, ThinkingBlock)]
    return "\n".join(block.text for block in blocks if block.text)
