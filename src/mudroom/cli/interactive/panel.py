"""What is drawn above the input line: the children at work, one child's transcript, a question with its answers, the queue."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..._core.events import AnyEvent, Delta, RunFinished, StoredEvent
from ...projections.run_tree import RunView
from ...projections.safe_text import sanitize
from ..output.live_tree import MAX_PENDING_LINES, MAX_RUNS
from ..output.text import Glyphs, Line, count_noun, last_lines, sanitize_line, truncate, wrap
from ..output.tree_lines import TreeStyle, format_tree_by_run

if TYPE_CHECKING:
    from .conversation import Conversation
    from .transcript_pager import TranscriptPager

MAX_QUEUED_SHOWN = 3
"""Queued lines shown; the others are counted."""


class Choice:
    """A question with a list of answers, one of them marked; `answer` gets the value of the one taken, None for none.

    Arguments:
        words: whether a line typed instead is the answer.
    """

    def __init__(
        self, title: str, items: Sequence[tuple[str, str]], *, allows_free_text: bool = False
    ) -> None:
        self.title, self.items, self.words, self.index = title, items, allows_free_text, 0
        self.result: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def resolve(self, value: str | None) -> None:
        """Answer it."""
        if not self.result.done():
            self.result.set_result(value)

    def lines(self, columns: int, height: int, signs: Glyphs) -> list[Line]:
        """The question and as many answers as there is room for."""
        first = max(0, min(self.index - height // 2, len(self.items) - height))
        lines: list[Line] = [
            [(part, "bold")] for part in wrap(sanitize_line(self.title, 2000), columns)
        ]
        for n, (_, label) in list(enumerate(self.items))[
            first : first + max(1, height - len(lines))
        ]:
            text = truncate(
                f"{signs.mark if n == self.index else ' '} {n + 1}. {sanitize_line(label)}",
                columns,
                signs.more,
            )
            lines.append([(text, "cyan reverse" if n == self.index else "")])
        return lines


class Panel:
    """State of all that is above the input line, and its lines."""

    def __init__(self, signs: Glyphs) -> None:
        self.conversation: Conversation | None = None
        self.queue: deque[str] = deque()
        self.is_closed = False
        self.choice: Choice | None = None
        self.pager: TranscriptPager | None = None
        self.selected = self.message_target = ""
        self._signs = signs
        self._shown: list[str] = []
        self._live: dict[str, list[StoredEvent]] = {}
        self._came = asyncio.Event()

    def queue_line(self, line: str) -> None:
        """Queue a line."""
        self.queue.append(line)
        self.wake()

    def wake(self) -> None:
        """Wake who waits for a line."""
        self._came.set()

    async def next_line(self) -> str:
        """The next queued line, once there is one. Raises EOFError when the prompt is closed."""
        while not self.queue or self.is_closed:
            if self.is_closed:
                raise EOFError
            self._came.clear()
            await self._came.wait()
        return self.queue.popleft()

    @property
    def key_hint(self) -> str:
        """The keys that matter now."""
        if self.choice:
            return "enter takes, esc leaves it"
        if self.message_target:
            return "enter sends, esc back"
        if self.pager:
            return "m word, w wrap up, x stop, esc back"
        if self.selected:
            return "enter opens, m word, w wrap up, x stop"
        if self.conversation and self.conversation.is_busy:
            return "esc stops, ctrl+s steers" if self.queue else "esc stops"
        return ""

    def apply(self, event: AnyEvent) -> None:
        """Take in an event, after the conversation's tree has."""
        if not event.run or isinstance(event, Delta):
            return
        self._live.setdefault(event.run, []).append(event)
        if isinstance(event, RunFinished):
            del self._live[event.run]

    def open_transcript(self, talk: Conversation, run_id: str) -> None:
        """Open a run's transcript: of one at work as it happens, of an older one as it is recorded."""
        from .transcript_pager import TranscriptPager

        events = self._live.get(run_id)
        self.pager = TranscriptPager(
            talk.tree.runs[run_id],
            events or [event for event in talk.read_events() if event.run == run_id],
        )

    def answer_choice(self, value: str | None) -> None:
        """Answer the question there is, and be done with it: what is typed next is no answer."""
        if self.choice:
            self.choice.resolve(value)
            self.choice = None

    def clear_selection(self) -> None:
        """The run is over: nothing is selected any more; an open transcript stays."""
        self.selected = self.message_target = ""

    def move_selection(self, step: int) -> None:
        """Move the mark: `step` -1 up, 1 down. With nothing marked it begins at the near end."""
        if self.choice:
            self.choice.index = (self.choice.index + step) % len(self.choice.items)
        elif self.pager:
            self.pager.lines_from_end -= step
        elif self._shown:
            near = len(self._shown) - 1 if step < 0 else 0
            at = self._shown.index(self.selected) + step if self.selected in self._shown else near
            self.selected = self._shown[at] if 0 <= at < len(self._shown) else ""

    @property
    def has_selectable_child(self) -> bool:
        """Whether there is a child to select."""
        return bool(self._shown) and self.choice is None

    def lines(self, columns: int, height: int) -> list[Line]:
        """All lines, at most `height` of them, none wider than `columns`."""
        queued = list(self._queued(columns))
        room = max(1, height - len(queued))
        if self.choice:
            return self.choice.lines(columns, room, self._signs) + queued
        if self.pager:
            title, rest = self._title(self.pager.run, columns), max(1, room - 1)
            return [title, *self.pager.lines(columns, rest, self._signs), *queued]
        if not (self.conversation and self.conversation.is_busy and self.conversation.tree.roots):
            self._shown = []
            return queued
        tree = self._tree(self.conversation, columns, room)
        return [*self._pending(self.conversation, columns, room - len(tree)), *tree, *queued]

    def _tree(self, talk: Conversation, columns: int, height: int) -> list[Line]:
        root = talk.tree.roots[-1]
        if root.report:
            self._shown = []
            return []
        look = TreeStyle(
            columns=columns,
            max_runs=max(1, min(MAX_RUNS, (height - 2) // 2)),
            now=time.time(),
            selected=self.selected,
            glyphs=self._signs,
        )
        rows = format_tree_by_run(talk.tree, root, look)[:height]
        self._shown = list(dict.fromkeys(run for run, _ in rows[1:] if run))
        return [line for _, line in rows]

    def _pending(self, talk: Conversation, columns: int, room: int) -> Iterator[Line]:
        if room > 1:
            yield from (
                [(part, "")]
                for part in last_lines(
                    sanitize(talk.writer.pending), columns, min(MAX_PENDING_LINES, room - 1)
                )
            )

    def _title(self, run: RunView, columns: int) -> Line:
        words = f"{sanitize_line(run.agent)}#{run.run_id}  {sanitize_line(run.title)}"
        return [(truncate(words, columns, self._signs.more), "bold reverse")]

    def _queued(self, columns: int) -> Iterator[Line]:
        for n, line in enumerate(self.queue):
            if n == MAX_QUEUED_SHOWN:
                yield [
                    (
                        truncate(
                            f"  and {count_noun(len(self.queue) - n, 'line')} more",
                            columns,
                            self._signs.more,
                        ),
                        "dim",
                    )
                ]
                return
            yield [(truncate(f"  queued: {sanitize_line(line)}", columns, self._signs.more), "dim")]
