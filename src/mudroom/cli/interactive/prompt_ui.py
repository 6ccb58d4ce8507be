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
from ..output.live_tree import DRAW_PERIOD, MAX_CPU_SHARE
from ..output.progress import should_color
from ..output.scrollback import Scrollback
from ..output.text import choose_glyphs, sanitize, sanitize_line
from .completion import PromptCompleter
from .input_history import create_history_file
from .key_actions import NEXT_MODE_COMMAND, KeyActions
from .key_bindings import make_key_bindings
from .layout import MENU_ROWS, count_newlines, make_application, to_fragments
from .mentions import mention_before
from .panel import Choice, Panel

if TYPE_CHECKING:
    from .conversation import Conversation

PROMPT, SHORT_PROMPT, MIN_PROMPT_COLUMNS = "mudroom >> ", ">> ", 40
"""The prompt, and the one for terminals of fewer columns than ROOM."""


class PromptUI:
    """The face for a terminal that can be drawn on.

    Arguments:
        cwd: the folder whose history is used. terminal: input and output, for tests.
    """

    prints_child_lines = False

    def __init__(self, settings: Settings, cwd: str, **terminal: Any) -> None:
        self.exit_code = 0
        self._talk: Conversation | None = None
        color, signs = should_color(sys.stdout, settings.color), choose_glyphs(sys.stdout.encoding)
        self.buffer = Buffer(
            multiline=True,
            history=FileHistory(create_history_file(settings.home, cwd)),
            completer=ThreadedCompleter(PromptCompleter(lambda: self._talk)),
            complete_while_typing=Condition(self._completes),
            tempfile_suffix=".md",
        )
        self.scrollback = Scrollback(
            write=self._write, columns=lambda: self._size()[0], color=color, glyphs=signs
        )
        self._signs, self._panel, self._group = signs, Panel(signs), asyncio.TaskGroup()
        self._deeds = KeyActions(
            self.buffer,
            self._panel,
            self.scrollback,
            close=self._close,
            redraw=self._fresh,
            start_task=lambda work: self._group.create_task(work),
        )
        self._app, self._renderer = make_application(
            buffer=self.buffer,
            gap=self._gap,
            panel=self._above,
            prompt=lambda: [("class:prompt", self._words())],
            status=self._status,
            keys=make_key_bindings(
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

    async def __aenter__(self) -> PromptUI:
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
        self._close(self.exit_code)
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

    def attach(self, talk: Conversation) -> None:
        """Show this conversation from now on."""
        self._talk = self._panel.conversation = talk
        self._app.invalidate()

    def apply(self, event: AnyEvent) -> None:
        """Take in an event, after the conversation has."""
        self._panel.apply(event)

    async def read_line(self) -> str:
        """The next line typed. Raises EOFError when there will be none."""
        line = await self._panel.next_line()
        self._fresh()
        if line == NEXT_MODE_COMMAND:
            return line
        words = sanitize(line).split("\n")
        room = " " * len(self._words())
        self.scrollback.write_lines(
            *(
                [(room if n else self._words(), "bold cyan"), (part, "bold")]
                for n, part in enumerate(words)
            )
        )
        return self._deeds.pastes.expand(line)

    def add_early_input(self, early: str) -> None:
        """Queue the lines that were typed before, and put what was begun into the input line."""
        *lines, begun = early.split("\n")
        for line in filter(str.strip, lines):
            self._panel.queue_line(line)
        self.prefill(begun)

    def prefill(self, text: str) -> None:
        """Put words into the input line."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    async def choose(
        self, title: str, items: Sequence[tuple[str, str]], *, free_text: bool = False
    ) -> str | None:
        """Ask which of (value, label) it shall be, or for words; None for none. Questions wait for one another."""
        async with self._asking:
            if self._panel.is_closed:
                return None
            self._panel.choice = choice = Choice(title, items, allows_free_text=free_text)
            self._fresh()
            try:
                return await choice.result
            finally:
                self._panel.choice = None
                self._fresh()

    @contextmanager
    def during_run(self) -> Generator[None]:
        """A block around a run."""
        self._working.set()
        try:
            yield
        finally:
            self._working.clear()
            self._panel.clear_selection()
            self._fresh()

    def _fresh(self) -> None:
        self._drawn = (0.0, (0, 0), [])
        self._turn_page()
        self._app.invalidate()

    def _turn_page(self) -> None:
        """An open transcript has the terminal's other screen, so that closing it leaves this one as it was; a question has not."""
        renderer = self._renderer
        other = self._panel.pager is not None and self._panel.choice is None
        if other != renderer.full_screen and self._app.is_running:
            renderer.erase()
            renderer.full_screen = other
            self._wrote.set()

    def _close(self, code: int = 0) -> None:
        """Leave: stop what is under way, let the conversation read to its end."""
        if self._panel.is_closed:
            return
        self.exit_code, self._panel.is_closed = code, True
        if self._talk:
            self._talk.interrupt()
        self._panel.answer_choice(None)
        self._panel.wake()

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
        self._close(self.exit_code)

    async def _redraw(self) -> None:
        """While a run is under way, draw it often enough to follow, seldom enough to cost little."""
        while True:
            await self._working.wait()
            await asyncio.sleep(max(DRAW_PERIOD, self._spent / MAX_CPU_SHARE))
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
            await asyncio.sleep(DRAW_PERIOD / 2)

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
        self._renderer.reserved_rows = 0
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
        if panel.message_target and self._talk:
            return f"to {sanitize_line(self._talk.tree.runs[panel.message_target].agent, 20)} >> "
        return PROMPT if self._size()[0] >= MIN_PROMPT_COLUMNS else SHORT_PROMPT

    def _gap(self) -> int:
        """As many free rows as there is room for, and as the next width may take."""
        taken = count_newlines(self._above()) + 3
        used = (
            taken
            + 2
            + self.buffer.text.count("\n")
            + (MENU_ROWS if self.buffer.complete_state else 0)
        )
        return max(0, min(self._renderer.reserved_rows, taken, self._size()[1] - used))

    def _above(self) -> StyleAndTextTuples:
        size, now = self._size(), time.monotonic()
        at, drawn, text = self._drawn
        if self._renderer.is_settling:
            return [("", "\n" * count_newlines(text))] if text else []
        if drawn != size or now - at >= DRAW_PERIOD / 2:
            columns, height = size
            lines = self._panel.lines(
                max(1, columns - 1), max(1, height - 4 - self.buffer.text.count("\n"))
            )
            text = to_fragments(lines)
            self._drawn = now, size, text
        return text

    def _status(self) -> StyleAndTextTuples:
        if self._renderer.is_settling or not self._talk:
            return []
        columns = self._size()[0] - 1
        head, tail = self._talk.status.format_line(columns, self._signs, hint=self._panel.key_hint)
        return [("", head), ("", tail)]
