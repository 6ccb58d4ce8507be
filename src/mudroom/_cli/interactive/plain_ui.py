"""Plain user interface: lines in, lines out, no cursor movement.

For screen readers, and terminals that cannot move the cursor.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from ..._core.events import AnyEvent
from ..._projections.safe_text import sanitize_line
from ..._session.config import Settings
from ..output.plain_progress import PlainProgress
from ..output.progress import should_color
from ..output.scrollback import Scrollback
from ..output.signals import handle_signals
from ..output.standard_output import draw
from ..output.text import Line, choose_glyphs
from ..output.theme import use_theme
from .conversation import Conversation
from .questions.choice import match_answer

PROMPT = "mudroom >> "


class PlainUI:
    """Reads stdin line by line and writes to stdout; child runs are reported on stderr."""

    prints_child_lines = True

    def __init__(self, settings: Settings, *, verbose: bool = False) -> None:
        self.scrollback = Scrollback(
            write=self._write,
            columns=lambda: shutil.get_terminal_size().columns,
            color=should_color(sys.stdout, settings.color),
            glyphs=choose_glyphs(sys.stdout.encoding),
        )
        self.exit_code = 0
        self._is_verbose = verbose
        self._progress: PlainProgress | None = None
        self._conversation: Conversation | None = None
        self._choice_lock = asyncio.Lock()
        self._lines: deque[str] = deque()
        self._is_closed = False
        # Futures of readers waiting for a line. The last one gets it: a question comes before a
        # waiting prompt.
        self._readers: list[asyncio.Future[str]] = []
        self._has_signals = False
        # A read may end in the middle of a character.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._incomplete_line = ""

    async def __aenter__(self) -> PlainUI:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def attach(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._progress = PlainProgress(sys.stderr, conversation.tree, verbose=self._is_verbose)

    def apply(self, event: AnyEvent) -> None:
        """Print the progress line for an event that the conversation has already applied."""
        if self._progress:
            self._progress.print_line(event)

    def add_early_input(self, text: str) -> None:
        """Do nothing: early input is still in stdin."""

    def prefill(self, text: str) -> None:
        """Print the text, because a plain line cannot be prefilled."""
        self._write(f"The prompt was: {sanitize_line(text)}\n")

    async def read_line(self) -> str:
        """Read a line, joined with the next as long as it ends in a backslash.

        Raises EOFError at the end of input.
        """
        if self._conversation:
            await self._conversation.wait_until_ready()
        with self._stop_work_on_interrupt():
            line = await self._ask(PROMPT)
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{await self._ask('')}"
        return line

    def begin_line(self, line: str, *, is_shown: bool) -> str:
        """Return the line, which the terminal has already shown."""
        return line

    def return_lines(self, lines: Sequence[str]) -> None:
        self._lines.extendleft(reversed(lines))

    async def choose(
        self,
        title: str,
        items: Sequence[tuple[str, str]],
        *,
        free_text: bool = False,
        body: Sequence[Line] = (),
        is_searchable: bool = False,
    ) -> str | None:
        """Ask for an item's number, or for text. Questions wait for one another."""
        async with self._choice_lock:
            self.scrollback.write_lines([(title, "")])
            self.scrollback.write_lines(*body)
            for n, (_, label) in enumerate(items, 1):
                self._write(f"  {n}. {sanitize_line(label)}\n")
            try:
                return await self._read_choice(items, free_text)
            except EOFError:
                return None

    async def _read_choice(self, items: Sequence[tuple[str, str]], free_text: bool) -> str | None:
        while line := (await self._ask("number, or Enter to cancel: ")).strip():
            answer = match_answer(items, line)
            if answer is not None or free_text:
                return line if answer is None else answer
            self._write(f"Enter a number from 1 to {len(items)}, or press Enter to cancel.\n")
        return None

    @contextmanager
    def during_run(self) -> Generator[None]:
        """Inside the block, let Ctrl-C stop the run, and SIGTERM and SIGHUP pause it."""
        conversation = self._conversation
        pause = conversation.driver.pause if conversation else bool
        self._has_signals = True
        try:
            with handle_signals(self._stop_work, pause) as signals:
                yield
        finally:
            self._has_signals = False
        if signals and signals[0] != signal.SIGINT:
            self.exit_code = 128 + signals[0]

    @contextmanager
    def _stop_work_on_interrupt(self) -> Generator[None]:
        """Let Ctrl-C stop any background work; the next one exits."""
        conversation = self._conversation
        if self._has_signals or conversation is None or not conversation.background_work:
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: self._stop_work() or self._close())
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _stop_work(self) -> bool:
        """Stop the run, or its remaining background work."""
        conversation = self._conversation
        if conversation is None:
            return False
        return conversation.stop_all() if conversation.is_idle else conversation.interrupt()

    def use_theme(self, name: str) -> bool:
        use_theme(name, os.environ)
        return self.scrollback.color

    def toggle_vi_keys(self) -> bool | None:
        """Return None, because the terminal edits the lines."""

    async def _ask(self, prompt: str) -> str:
        """Ask for the next line. Raises EOFError at the end of input."""
        self._write(prompt)
        if self._lines:
            return self._lines.popleft()
        if self._is_closed:
            raise EOFError
        reader: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        try:
            return await reader
        finally:
            self._readers.remove(reader)

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 1 << 16)
        *lines, self._incomplete_line = (self._incomplete_line + self._decode(data)).split("\n")
        self._lines.extend(lines)
        while self._lines and (readers := [each for each in self._readers if not each.done()]):
            readers[-1].set_result(self._lines.popleft())
        if not data:
            self._close()
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def _close(self) -> None:
        self._is_closed = True
        for reader in self._readers:
            if not reader.done():
                reader.set_exception(EOFError())

    def _write(self, text: str) -> None:
        try:
            draw(sys.stdout, text)  # callers sanitize others' text
            sys.stdout.flush()
        except OSError:  # stdout was closed.
            self._close()
