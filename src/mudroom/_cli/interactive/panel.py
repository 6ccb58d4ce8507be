"""The panel above the input line: running children, a transcript, a question, queued lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..._core.events import AnyEvent, Delta, RunFinished, StoredEvent
from ..._core.listings import count_noun
from ..._core.runs import InboxMessage
from ..._projections.run_tree import list_idle, list_unread
from ..._projections.run_view import RunView
from ..._projections.safe_text import sanitize, sanitize_line
from ..output.child_names import make_child_name
from ..output.live_tree import MAX_IDLE, MAX_RUNS
from ..output.text import Glyphs, Line, truncate, wrap, wrap_line
from ..output.transcript_lines import TextStyle, format_transcript
from ..output.tree_lines import MAX_OUTPUT_LINES, TreeStyle, format_command, format_tree_by_run
from .questions.choice import Choice

if TYPE_CHECKING:
    from .conversation import Conversation

# Seconds between frames of the spinner.
SPINNER_SECONDS = 0.125

# Rows of children above a question too tall for the screen.
MAX_TREE_ROWS = 6
_ALL_ROWS = 1_000_000

# Columns for the name of the child that receives the next line.
MAX_TARGET_COLUMNS = 26

# Background commands to show.
MAX_COMMANDS = 5

# Queued lines to show; the others are counted.
MAX_QUEUED_SHOWN = 3

# How long keys still belong to the tree after its last child has gone: what the user types blindly,
# such as a message to a child that has just ended, must not become a prompt.
HELD_SECONDS = 2.0


class Panel:
    def __init__(self, glyphs: Glyphs) -> None:
        self.conversation: Conversation | None = None
        self.choice: Choice | None = None
        self.pager: TranscriptPager | None = None
        self.selected_run_id = ""
        self.target_run_id = ""
        self._glyphs = glyphs
        self._is_tree_open = False
        self._held_until = 0.0
        self._shown_run_ids: list[str] = []
        self._live_events: dict[str, list[StoredEvent]] = {}

    @property
    def key_hint(self) -> str:
        if self.choice:
            if self.conversation and self.conversation.is_busy:
                return "enter, y, n: answer, esc: stop"
            return "enter: select, esc: cancel"
        if self.target_run_id:
            return "enter: send, esc: back"
        if self.child_run_id:
            return ", ".join(self._list_child_keys())
        if self.is_steering:
            return "no child works, esc: back"
        return f"{self._choose_spinner()} {self._describe_work()}" if self.is_working else ""

    def _describe_work(self) -> str:
        work = self.conversation.background_work if self.conversation else ()
        steer = ["ctrl+t: steer a child"] if self._has_child else []
        if work:
            return ", ".join([f"{len(work)} in the background", *steer, "ctrl+c twice: stop all"])
        keys = ["esc: stop", *steer]
        if self._queued:
            keys.append("ctrl+s: send now")
        if self._can_detach:
            keys.append("ctrl+b: background")
        return ", ".join(keys)

    @property
    def is_command_selected(self) -> bool:
        return bool(self.child_run_id) and not (
            self.conversation and self.child_run_id in self.conversation.tree.runs
        )

    def _list_child_keys(self) -> Iterator[str]:
        run_id = self.child_run_id
        if not self.pager:
            yield "enter: output" if self.is_command_selected else "enter: open"
        if not (self.is_command_selected or self.has_ended(run_id)):
            yield "m: message"
            if not self.is_idle(run_id):
                yield "w: wrap up"
        if not (self.is_idle(run_id) or self.has_ended(run_id)):
            yield "x: stop"
        yield "esc: back"

    @property
    def _has_child(self) -> bool:
        """True if a child or background command is running."""
        conversation = self.conversation
        if not conversation or not conversation.tree.roots:
            return False
        root = conversation.tree.roots[-1].run_id
        runs = conversation.tree.walk(root)
        return any(run.parent and not run.report for run in runs) or bool(
            conversation.tree.list_background_commands(root)
        )

    def has_ended(self, run_id: str) -> bool:
        """Return whether a run has ended for good, so that no message restarts it."""
        run = self.conversation.tree.runs.get(run_id) if self.conversation else None
        return bool(run and run.report and not run.name)

    def is_idle(self, run_id: str) -> bool:
        """Return whether a run is the last run of an idle named child."""
        run = self.conversation.tree.runs.get(run_id) if self.conversation else None
        return bool(run and run.name and run.report)

    @property
    def _can_detach(self) -> bool:
        """True if a call by the main agent is waiting for a child or a command."""
        tree = self.conversation.tree if self.conversation else None
        if not tree or not tree.roots:
            return False
        root = tree.roots[-1]
        return "command" in root.open_calls.values() or bool(tree.list_waited_for(root.run_id))

    def _choose_spinner(self) -> str:
        spinner = self._glyphs.spinner
        return spinner[int(time.monotonic() / SPINNER_SECONDS) % len(spinner)]

    @property
    def _queued(self) -> Sequence[str]:
        return self.conversation.lines.queued if self.conversation else ()

    @property
    def is_working(self) -> bool:
        """True if a prompt is running or its background work continues."""
        conversation = self.conversation
        return conversation is not None and bool(
            conversation.is_busy or conversation.background_work
        )

    @property
    def target_name(self) -> str:
        """Name of the agent that receives the next line; "" for the main agent."""
        if not self.target_run_id or not self.conversation:
            return ""
        return self.name_child(self.target_run_id, MAX_TARGET_COLUMNS)

    def name_child(self, run_id: str, columns: int) -> str:
        if not self.conversation or run_id not in self.conversation.tree.runs:
            return f"command#{run_id}"
        return make_child_name(self.conversation.tree, run_id, columns, self._glyphs)

    @property
    def child_run_id(self) -> str:
        """Id of the open or selected run."""
        return self.pager.run.run_id if self.pager else self.selected_run_id

    def apply(self, event: AnyEvent) -> None:
        """Handle an event that the conversation's tree has already applied."""
        if not event.run or isinstance(event, Delta):
            return
        # Kept for transcripts that follow the run; those of ended runs are read from the record.
        self._live_events.setdefault(event.run, []).append(event)
        if isinstance(event, RunFinished):
            del self._live_events[event.run]

    def open_transcript(self, run_id: str, events: list[StoredEvent] | None = None) -> None:
        """Open a run's transcript with its unread messages.

        The transcript follows an active run; for an ended one, pass its events.
        """

        if not self.conversation:
            return
        tree = self.conversation.tree
        run = tree.runs[run_id]
        if events is None:
            events = self._live_events.setdefault(run_id, [])
        self._is_tree_open = True
        self.pager = TranscriptPager(run, events, lambda: list_unread(tree, run))

    def answer_choice(self, value: str | None) -> None:
        # Close the question first, so that the next line is not its answer.
        if self.choice:
            self.choice.resolve(value)
            self.choice = None

    @property
    def is_steering(self) -> bool:
        """True if the keys act on the tree instead of the input line."""
        has_rows = bool(self._shown_run_ids) or self.pager is not None
        return self._is_tree_open and (has_rows or time.monotonic() < self._held_until)

    def open_tree(self) -> None:
        """Let the keys act on the tree; select the last running child."""
        self._is_tree_open = True
        self.hold_keys()
        if self._shown_run_ids and self.selected_run_id not in self._shown_run_ids:
            self.selected_run_id = self._shown_run_ids[self._find_last_row()]

    def close_tree(self) -> None:
        self._is_tree_open = False
        self.selected_run_id = ""
        self.pager = None

    def hold_keys(self) -> None:
        """Keep keys away from the input line for a moment, although no child is left."""
        self._held_until = time.monotonic() + HELD_SECONDS

    def _show_runs(self, run_ids: list[str]) -> None:
        """Note the selectable rows. If the selected one is gone, select its neighbour."""
        before = self._shown_run_ids
        self._shown_run_ids = run_ids
        if self._is_tree_open and before and not run_ids:
            self.hold_keys()
        if self.selected_run_id in before and self.selected_run_id not in run_ids:
            index = min(before.index(self.selected_run_id), len(run_ids) - 1)
            self.selected_run_id = run_ids[index] if run_ids else ""

    def move_selection(self, step: int) -> None:
        if self.choice:
            self.choice.move(step)
        elif self.pager:
            self.pager.lines_from_end -= step
        elif self._shown_run_ids:
            index = self._find_last_row()
            if self.selected_run_id in self._shown_run_ids:
                index = self._shown_run_ids.index(self.selected_run_id) + step
            self.selected_run_id = self._shown_run_ids[index % len(self._shown_run_ids)]

    def _find_last_row(self) -> int:
        rows = range(len(self._shown_run_ids))
        working = [row for row in rows if not self.is_idle(self._shown_run_ids[row])]
        return (working or rows)[-1]

    def format_lines(self, columns: int, height: int) -> list[Line]:
        queued = list(self._format_queued(columns))
        room = max(1, height - len(queued))
        if self.choice:
            tree = self._format_tree_of_question(self.choice, columns, room)
            question = self.choice.format_lines(columns, room - len(tree), self._glyphs)
            return [*tree, *question, *queued]
        if self.pager:
            title = self._format_title(self.pager.run, columns)
            return [
                title,
                *self.pager.format_lines(columns, max(1, room - 1), self._glyphs),
                *queued,
            ]
        conversation = self.conversation
        if not (conversation and conversation.tree.roots and self.is_working):
            self._show_runs([])
            return queued
        tree = self._format_tree(conversation, columns, room)
        pending = conversation.writer.format_pending(columns, room - len(tree))
        return [*pending, *tree, *queued]

    def _format_tree_of_question(self, choice: Choice, columns: int, height: int) -> list[Line]:
        """Format the running children for the rows a question leaves free, or a few more."""
        conversation = self.conversation
        if not (conversation and conversation.tree.roots and self.is_working):
            return []
        needed = len(choice.format_lines(columns, _ALL_ROWS, self._glyphs))
        rows = max(height - needed, min(MAX_TREE_ROWS, height // 3))
        tree = self._format_tree(conversation, columns, rows)
        return tree if self._shown_run_ids else []

    def _format_tree(self, conversation: Conversation, columns: int, height: int) -> list[Line]:
        tree = conversation.tree
        root = tree.roots[-1]
        if root.report:
            self._show_runs([])
            return []
        idle = list_idle(tree)[:MAX_IDLE]
        style = TreeStyle(
            columns=columns,
            # Each run may take two rows; the root run takes two more.
            max_runs=max(1, min(MAX_RUNS, (height - 2 - len(idle)) // 2)),
            now=time.time(),
            selected=self.selected_run_id,
            printed_runs=conversation.writer.printed_runs,
            asking_runs=conversation.approvals.asking_runs,
            idle=idle,
            glyphs=self._glyphs,
        )
        commands = tree.list_background_commands(root.run_id)[:MAX_COMMANDS]
        rows = format_tree_by_run(tree, root, style)
        rows += [(command.id, format_command(command, style)) for command in commands]
        rows = rows[:height]
        runs = dict.fromkeys(run for run, _ in rows[1:] if run)
        self._show_runs([run for run in runs if not self.has_ended(run)])
        return [line for _, line in rows]

    def _format_title(self, run: RunView, columns: int) -> Line:
        name = self.name_child(run.run_id, columns) if run.parent else run.label
        has_title = not run.name and name != run.label
        text = name if has_title else f"{name}  {sanitize_line(run.title)}"
        return [(truncate(text, columns, self._glyphs.more), "bold reverse")]

    def _format_queued(self, columns: int) -> Iterator[Line]:
        for n, line in enumerate(self._queued):
            if n == MAX_QUEUED_SHOWN:
                text = f"  and {count_noun(len(self._queued) - n, 'more line')}"
                yield [(truncate(text, columns, self._glyphs.more), "dim")]
                return
            text = f"  queued: {sanitize_line(line)}"
            yield [(truncate(text, columns, self._glyphs.more), "dim")]


class TranscriptPager:
    """A run's transcript and the position in it. Events may be appended later."""

    def __init__(
        self,
        run: RunView,
        events: list[StoredEvent],
        list_unread: Callable[[], list[InboxMessage]] = list,
    ) -> None:
        self.run = run
        self.lines_from_end = 0
        self._events = events
        self._list_unread = list_unread
        self._drawn: tuple[int, int] = (-1, 0)
        self._body: list[Line] = []

    def format_lines(self, columns: int, height: int, glyphs: Glyphs) -> list[Line]:
        """Format the end, or the part `lines_from_end` lines before it."""
        # Formatting a long transcript is slow, and most drawings show the same lines.
        if self._drawn != (len(self._events), columns):
            self._drawn = (len(self._events), columns)
            style = TextStyle(columns=columns, glyphs=glyphs)
            lines = format_transcript(self.run, self._events, style)
            self._body = [part for line in lines for part in wrap_line(line, columns)]
        streaming: list[Line] = [
            [(f"  {part}", "")]
            for line in self.run.streamed_tail.splitlines()
            for part in wrap(line, columns - 2)
        ]
        for row in self.run.output_tail.splitlines()[-MAX_OUTPUT_LINES:]:
            streaming += wrap_line([(f"    {sanitize(row).expandtabs(4)}", "dim")], columns)
        lines = [*self._body, *streaming, *self._format_unread(columns)]
        self.lines_from_end = max(0, min(self.lines_from_end, len(lines) - height))
        end = len(lines) - self.lines_from_end
        return lines[max(0, end - height) : end]

    def _format_unread(self, columns: int) -> Iterator[Line]:
        for message in self._list_unread():
            sender = sanitize_line(message.name or message.sender)
            for line in (
                [("", "")],
                [(f"message from {sender}, not read yet", "bold yellow")],
                *([(f"    {row}", "")] for row in sanitize(message.text).split("\n")),
            ):
                yield from wrap_line(line, columns)
