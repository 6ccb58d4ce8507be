"""The plain face: lines in, lines out, no cursor that moves; for screen readers and terminals that only print."""

from __future__ import annotations

import asyncio
import codecs
import shutil
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager

from ..._core.events import AnyEvent
from ...config import Settings
from ...projections.run_tree import RunTree
from ..output.plain_progress import PlainProgress
from ..output.progress import should_color
from ..output.scrollback import Scrollback
from ..output.signals import handle_signals
from ..output.text import choose_glyphs, sanitize_line
from .conversation import Conversation

PROMPT = "mudroom >> "


class PlainUI:
    """Reads stdin line by line and writes to stdout; children are told of on stderr.

    Arguments:
        verbose: a line for every call of every run.
    """

    prints_child_lines, exit_code = True, 0

    def __init__(self, settings: Settings, *, verbose: bool = False) -> None:
        color = should_color(sys.stdout, settings.color)
        columns = lambda: shutil.get_terminal_size().columns  # noqa: E731
        self.scrollback = Scrollback(
            write=self._write,
            columns=columns,
            color=color,
            glyphs=choose_glyphs(sys.stdout.encoding),
        )
        self._progress = PlainProgress(sys.stderr, RunTree(), verbose=verbose)
        self._talk: Conversation | None = None
        self._asking = asyncio.Lock()
        self._typed, self._came, self._ended = deque[str](), asyncio.Event(), False
        self._decode, self._begun = codecs.getincrementaldecoder("utf-8")("replace").decode, ""

    async def __aenter__(self) -> PlainUI:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def attach(self, talk: Conversation) -> None:
        """Show this conversation from now on."""
        self._talk = talk

    def apply(self, event: AnyEvent) -> None:
        """Take in an event."""
        self._progress.on_event(event)

    def add_early_input(self, early: str) -> None:
        """Nothing is taken from the terminal beforehand."""

    def prefill(self, text: str) -> None:
        """Say what could be typed next: a plain line cannot be begun for the person."""
        self._write(f"It was: {sanitize_line(text)}\n")

    async def read_line(self) -> str:
        """The next line typed; a \\ at its end takes the next one, too. Raises EOFError at the end."""
        said = await self._asked(PROMPT)
        while said.endswith("\\"):
            said = f"{said[:-1]}\n{await self._asked('')}"
        return said

    async def choose(
        self, title: str, items: Sequence[tuple[str, str]], *, free_text: bool = False
    ) -> str | None:
        """Ask for a number, or for words. Questions wait for one another."""
        async with self._asking:
            return await self._chosen(title, items, free_text)

    async def _chosen(
        self, title: str, items: Sequence[tuple[str, str]], words: bool
    ) -> str | None:
        self._write(
            "".join(
                [
                    f"{title}\n",
                    *(f"  {n}. {sanitize_line(label)}\n" for n, (_, label) in enumerate(items, 1)),
                ]
            )
        )
        try:
            while said := (await self._asked("number, or nothing: ")).strip():
                if said.isdecimal() and 0 < int(said) <= len(items):
                    return items[int(said) - 1][0]
                if words:
                    return said
                self._write(
                    f"That is no number from 1 to {len(items)}. Enter alone chooses none.\n"
                )
        except EOFError:
            pass
        return None

    def during_run(self) -> AbstractContextManager[object]:
        """A block in which Ctrl-C stops the run."""
        return handle_signals(self._talk.interrupt if self._talk else bool)

    async def _asked(self, prompt: str) -> str:
        self._write(prompt)
        while not self._typed:
            if self._ended:
                raise EOFError
            self._came.clear()
            await self._came.wait()
        return self._typed.popleft()

    def _read(self) -> None:
        import os

        data = os.read(sys.stdin.fileno(), 1 << 16)
        *lines, self._begun = (self._begun + self._decode(data)).split("\n")
        self._typed.extend(lines)
        if not data:
            self._ended = True
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self._came.set()

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:  # nobody reads it any more
            self._ended = True
            self._came.set()
