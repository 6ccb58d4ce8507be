"""The drawn prompt: an input line at the bottom, above it the children at work, above that the scrollback."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory

from ..._core.events import AnyEvent
from ...config import Settings
from ..output.live_tree import PERIOD, SHARE
from ..output.progress import colored
from ..output.scrollback import Paper
from ..output.text import clean, glyphs, one_line
from .completion import Words
from .input_history import history_file
from .key_actions import NEXT_MODE, Deeds
from .key_bindings import bindings
from .layout import MENU, application, fragments, newlines
from .mentions import mention_before
from .panel import Choice, Panel

if TYPE_CHECKING:
    from .conversation import Talk

PROMPT, SHORT, ROOM = "mudroom >> ", ">> ", 40
"""The prompt, and the one for terminals of fewer columns than ROOM."""


class Desk:
    """The face for a terminal that can be drawn on.

    Arguments:
        cwd: the folder whose history is used. terminal: input and output, for tests.
    """

    plain = False

    def __init__(self, settings: Settings, cwd: str, **terminal: Any) -> None:
        self.code = 0
        self._talk: Talk | None = None
        color, signs = colored(sys.stdout, settings.color), glyphs(sys.stdout.encoding)
        self.buffer = Buffer(
            multiline=True,
            history=FileHistory(history_file(settings.home, cwd)),
            completer=ThreadedCompleter(Words(lambda: self._talk)),
            complete_while_typing=Condition(self._completes),
            tempfile_suffix=".md",
        )
        self.paper = Paper(
            write=self._write, columns=lambda: self._size()[0], color=color, signs=signs
        )
        self._signs, self._panel, self._group = signs, Panel(signs), asyncio.TaskGroup()
        self._deeds = Deeds(
            self.buffer,
            self._panel,
            self.paper,
            close=self._close,
            fresh=self._fresh,
            spawn=lambda work: self._group.create_task(work),
        )
        self._app, self._renderer = application(
            buffer=self.buffer,
            gap=self._gap,
            panel=self._above,
            prompt=lambda: [("class:prompt", self._words())],
            status=self._status,
            keys=bindings(
                self._deeds, edit=self._edit, suspend=lambda: self._app.suspend_to_background()
            ),
            color=color,
            **terminal,
        )
        self._app.ttimeoutlen, self._app.timeoutlen = 0.05, 0.25
        self._app.before_render += self._clocked
        self._app.after_render += self._clocked
        self._began = self._spent = 0.0
        self._out: list[str] = []
        self._wrote, self._working = asyncio.Event(), asyncio.Event()
        self._away = False
        self._drawn: tuple[float, tuple[int, int], StyleAndTextTuples] = (0.0, (0, 0), [])
        self._asking = asyncio.Lock()

    async def __aenter__(self) -> Desk:
        self._flush()
        await self._group.__aenter__()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._close, 128 + number)
        self._tasks = [
            self._group.create_task(work()) for work in (self._serve, self._print, self._redraw)
        ]
        await asyncio.sleep(0)  # the prompt is there before the session is opened
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close(self.code)
        serving, *others = self._tasks
        if self._app.is_running:
            self._app.exit()
        await serving
        for task in others:
            task.cancel()
        await self._group.__aexit__(None, None, None)
        self._flush()
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)

    def attach(self, talk: Talk) -> None:
        """Show this conversation from now on."""
        self._talk = self._panel.talk = talk
        self._app.invalidate()

    def apply(self, event: AnyEvent) -> None:
        """Take in an event, after the conversation has."""
        self._panel.apply(event)

    async def line(self) -> str:
        """The next line typed. Raises EOFError when there will be none."""
        line = await self._panel.next()
        self._fresh()
        if line == NEXT_MODE:
            return line
        words = clean(line).split("\n")
        room = " " * len(self._words())
        self.paper.lines(
            *(
                [(room if n else self._words(), "bold cyan"), (part, "bold")]
                for n, part in enumerate(words)
            )
        )
        return self._deeds.pasted.expanded(line)

    def take(self, early: str) -> None:
        """Queue the lines that were typed before, and put what was begun into the input line."""
        *lines, begun = early.split("\n")
        for line in filter(str.strip, lines):
            self._panel.put(line)
        self.draft(begun)

    def draft(self, text: str) -> None:
        """Put words into the input line."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    async def choose(
        self, title: str, items: Sequence[tuple[str, str]], *, words: bool = False
    ) -> str | None:
        """Ask which of (value, label) it shall be, or for words; None for none. Questions wait for one another."""
        async with self._asking:
            if self._panel.closed:
                return None
            self._panel.choice = choice = Choice(title, items, words=words)
            self._fresh()
            try:
                return await choice.answer
            finally:
                self._panel.choice = None
                self._fresh()

    @contextmanager
    def running(self) -> Generator[None]:
        """A block around a run."""
        self._working.set()
        try:
            yield
        finally:
            self._working.clear()
            self._panel.settle()
            self._fresh()

    def _fresh(self) -> None:
        self._drawn = (0.0, (0, 0), [])
        self._turn_page()
        self._app.invalidate()

    def _turn_page(self) -> None:
        """An open transcript has the terminal's other screen, so that closing it leaves this one as it was; a question has not."""
        renderer = self._renderer
        other = self._panel.opened is not None and self._panel.choice is None
        if other != renderer.full_screen and self._app.is_running:
            renderer.erase()
            renderer.full_screen = other
            self._wrote.set()

    def _close(self, code: int = 0) -> None:
        """Leave: stop what is under way, let the conversation read to its end."""
        if self._panel.closed:
            return
        self.code, self._panel.closed = code, True
        if self._talk:
            self._talk.interrupt()
        self._panel.answer(None)
        self._panel.stir()

    def _edit(self) -> None:
        """The line in the person's editor; what is written meanwhile waits."""
        self._away = True

        def back(_: object) -> None:
            self._away = False
            self._wrote.set()

        self.buffer.open_in_editor().add_done_callback(back)

    async def _serve(self) -> None:
        try:
            await self._app.run_async(handle_sigint=False)
        except EOFError:  # the terminal is gone
            pass
        self._close(self.code)

    async def _redraw(self) -> None:
        """While a run is under way, draw it often enough to follow, seldom enough to cost little."""
        while True:
            await self._working.wait()
            await asyncio.sleep(max(PERIOD, self._spent / SHARE))
            self._app.invalidate()

    def _clocked(self, _: object) -> None:
        """Before and after each drawing: what it took."""
        now = time.thread_time()
        self._began, self._spent = now, now - self._began

    async def _print(self) -> None:
        while True:
            await self._wrote.wait()
            self._wrote.clear()
            if not (self._away or self._renderer.full_screen):
                self._flush()
            await asyncio.sleep(PERIOD / 2)

    def _write(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._wrote.set()

    def _flush(self) -> None:
        """Put what was written above the prompt: the prompt is taken away, and drawn again below it."""
        text, self._out = "".join(self._out), []
        if not text:
            return
        app = self._app
        if not app.is_running:
            app.output.write_raw(text)
            app.output.flush()
            return
        self._renderer.erase()
        self._renderer.gap = 0
        app.output.write_raw(text.replace("\n", "\r\n"))
        self._renderer.reset()
        app.render_counter += 1  # texts are asked for once a drawing
        self._renderer.render(app, app.layout)

    def _size(self) -> tuple[int, int]:
        size = self._app.output.get_size()
        return size.columns, size.rows

    def _completes(self) -> bool:
        before = self.buffer.document.text_before_cursor
        return (before.startswith("/") and " " not in before) or mention_before(before) is not None

    def _words(self) -> str:
        panel = self._panel
        if panel.addressee and self._talk:
            return f"to {one_line(self._talk.tree.runs[panel.addressee].agent, 20)} >> "
        return PROMPT if self._size()[0] >= ROOM else SHORT

    def _gap(self) -> int:
        """As many free rows as there is room for, and as the next width may take."""
        taken = newlines(self._above()) + 3
        used = (
            taken + 2 + self.buffer.text.count("\n") + (MENU if self.buffer.complete_state else 0)
        )
        return max(0, min(self._renderer.gap, taken, self._size()[1] - used))

    def _above(self) -> StyleAndTextTuples:
        size, now = self._size(), time.monotonic()
        at, drawn, text = self._drawn
        if self._renderer.settling:
            return [("", "\n" * newlines(text))] if text else []
        if drawn != size or now - at >= PERIOD / 2:
            columns, height = size
            lines = self._panel.lines(
                max(1, columns - 1), max(1, height - 4 - self.buffer.text.count("\n"))
            )
            text = fragments(lines)
            self._drawn = now, size, text
        return text

    def _status(self) -> StyleAndTextTuples:
        if self._renderer.settling or not self._talk:
            return []
        columns = self._size()[0] - 1
        head, tail = self._talk.status.line(columns, self._signs, hint=self._panel.hint)
        return [("", head), ("", tail)]
