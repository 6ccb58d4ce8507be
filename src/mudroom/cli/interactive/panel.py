"""What is drawn above the input line: the children at work, one child's transcript, a question with its answers, the queue."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..._core.events import AnyEvent, Delta, RunFinished, Stored
from ...projections.run_tree import RunView
from ...projections.safe_text import clean
from ..output.live_tree import MOST, PENDING
from ..output.text import Glyphs, Line, broken, cut, ending, one_line, plural
from ..output.tree_lines import Look, placed

if TYPE_CHECKING:
    from .conversation import Talk
    from .transcript_pager import Opened

QUEUED = 3
"""Queued lines shown; the others are counted."""


class Choice:
    """A question with a list of answers, one of them marked; `answer` gets the value of the one taken, None for none.

    Arguments:
        words: whether a line typed instead is the answer.
    """

    def __init__(
        self, title: str, items: Sequence[tuple[str, str]], *, words: bool = False
    ) -> None:
        self.title, self.items, self.words, self.at = title, items, words, 0
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def give(self, value: str | None) -> None:
        """Answer it."""
        if not self.answer.done():
            self.answer.set_result(value)

    def lines(self, columns: int, height: int, signs: Glyphs) -> list[Line]:
        """The question and as many answers as there is room for."""
        first = max(0, min(self.at - height // 2, len(self.items) - height))
        lines: list[Line] = [
            [(part, "bold")] for part in broken(one_line(self.title, 2000), columns)
        ]
        for n, (_, label) in list(enumerate(self.items))[
            first : first + max(1, height - len(lines))
        ]:
            text = cut(
                f"{signs.mark if n == self.at else ' '} {n + 1}. {one_line(label)}",
                columns,
                signs.more,
            )
            lines.append([(text, "cyan reverse" if n == self.at else "")])
        return lines


class Panel:
    """State of all that is above the input line, and its lines."""

    def __init__(self, signs: Glyphs) -> None:
        self.talk: Talk | None = None
        self.queue: deque[str] = deque()
        self.closed = False
        self.choice: Choice | None = None
        self.opened: Opened | None = None
        self.selected = self.addressee = ""
        self._signs = signs
        self._shown: list[str] = []
        self._live: dict[str, list[Stored]] = {}
        self._came = asyncio.Event()

    def put(self, line: str) -> None:
        """Queue a line."""
        self.queue.append(line)
        self.stir()

    def stir(self) -> None:
        """Wake who waits for a line."""
        self._came.set()

    async def next(self) -> str:
        """The next queued line, once there is one. Raises EOFError when the prompt is closed."""
        while not self.queue or self.closed:
            if self.closed:
                raise EOFError
            self._came.clear()
            await self._came.wait()
        return self.queue.popleft()

    @property
    def hint(self) -> str:
        """The keys that matter now."""
        if self.choice:
            return "enter takes, esc leaves it"
        if self.addressee:
            return "enter sends, esc back"
        if self.opened:
            return "m word, w wrap up, x stop, esc back"
        if self.selected:
            return "enter opens, m word, w wrap up, x stop"
        if self.talk and self.talk.busy:
            return "esc stops, ctrl+s steers" if self.queue else "esc stops"
        return ""

    def apply(self, event: AnyEvent) -> None:
        """Take in an event, after the conversation's tree has."""
        if not event.run or isinstance(event, Delta):
            return
        self._live.setdefault(event.run, []).append(event)
        if isinstance(event, RunFinished):
            del self._live[event.run]

    def open(self, talk: Talk, run_id: str) -> None:
        """Open a run's transcript: of one at work as it happens, of an older one as it is recorded."""
        from .transcript_pager import Opened

        events = self._live.get(run_id)
        self.opened = Opened(
            talk.tree.runs[run_id],
            events or [event for event in talk.events() if event.run == run_id],
        )

    def answer(self, value: str | None) -> None:
        """Answer the question there is, and be done with it: what is typed next is no answer."""
        if self.choice:
            self.choice.give(value)
            self.choice = None

    def settle(self) -> None:
        """The run is over: nothing is selected any more; an open transcript stays."""
        self.selected = self.addressee = ""

    def move(self, step: int) -> None:
        """Move the mark: `step` -1 up, 1 down. With nothing marked it begins at the near end."""
        if self.choice:
            self.choice.at = (self.choice.at + step) % len(self.choice.items)
        elif self.opened:
            self.opened.back -= step
        elif self._shown:
            near = len(self._shown) - 1 if step < 0 else 0
            at = self._shown.index(self.selected) + step if self.selected in self._shown else near
            self.selected = self._shown[at] if 0 <= at < len(self._shown) else ""

    @property
    def selectable(self) -> bool:
        """Whether there is a child to select."""
        return bool(self._shown) and self.choice is None

    def lines(self, columns: int, height: int) -> list[Line]:
        """All lines, at most `height` of them, none wider than `columns`."""
        queued = list(self._queued(columns))
        room = max(1, height - len(queued))
        if self.choice:
            return self.choice.lines(columns, room, self._signs) + queued
        if self.opened:
            title, rest = self._title(self.opened.run, columns), max(1, room - 1)
            return [title, *self.opened.lines(columns, rest, self._signs), *queued]
        if not (self.talk and self.talk.busy and self.talk.tree.roots):
            self._shown = []
            return queued
        tree = self._tree(self.talk, columns, room)
        return [*self._pending(self.talk, columns, room - len(tree)), *tree, *queued]

    def _tree(self, talk: Talk, columns: int, height: int) -> list[Line]:
        root = talk.tree.roots[-1]
        if root.report:
            self._shown = []
            return []
        look = Look(
            columns=columns,
            limit=max(1, min(MOST, (height - 2) // 2)),
            now=time.time(),
            selected=self.selected,
            signs=self._signs,
        )
        rows = placed(talk.tree, root, look)[:height]
        self._shown = list(dict.fromkeys(run for run, _ in rows[1:] if run))
        return [line for _, line in rows]

    def _pending(self, talk: Talk, columns: int, room: int) -> Iterator[Line]:
        if room > 1:
            yield from (
                [(part, "")]
                for part in ending(clean(talk.writer.pending), columns, min(PENDING, room - 1))
            )

    def _title(self, run: RunView, columns: int) -> Line:
        words = f"{one_line(run.agent)}#{run.run_id}  {one_line(run.title)}"
        return [(cut(words, columns, self._signs.more), "bold reverse")]

    def _queued(self, columns: int) -> Iterator[Line]:
        for n, line in enumerate(self.queue):
            if n == QUEUED:
                yield [
                    (
                        cut(
                            f"  and {plural(len(self.queue) - n, 'line')} more",
                            columns,
                            self._signs.more,
                        ),
                        "dim",
                    )
                ]
                return
            yield [(cut(f"  queued: {one_line(line)}", columns, self._signs.more), "dim")]
