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
from ...projections.run_tree import Tree
from ..output.plain_progress import PlainProgress
from ..output.progress import colored
from ..output.scrollback import Paper
from ..output.signals import interrupts
from ..output.text import glyphs, one_line
from .conversation import Talk

PROMPT = "mudroom >> "


class Lines:
    """Reads stdin line by line and writes to stdout; children are told of on stderr.

    Arguments:
        verbose: a line for every call of every run.
    """

    plain, code = True, 0

    def __init__(self, settings: Settings, *, verbose: bool = False) -> None:
        color = colored(sys.stdout, settings.color)
        columns = lambda: shutil.get_terminal_size().columns  # noqa: E731
        self.paper = Paper(
            write=self._write, columns=columns, color=color, signs=glyphs(sys.stdout.encoding)
        )
        self._progress = PlainProgress(sys.stderr, Tree(), verbose=verbose)
        self._talk: Talk | None = None
        self._asking = asyncio.Lock()
        self._typed, self._came, self._ended = deque[str](), asyncio.Event(), False
        self._decode, self._begun = codecs.getincrementaldecoder("utf-8")("replace").decode, ""

    async def __aenter__(self) -> Lines:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def attach(self, talk: Talk) -> None:
        """Show this conversation from now on."""
        self._talk = talk

    def apply(self, event: AnyEvent) -> None:
        """Take in an event."""
        self._progress.on_event(event)

    def take(self, early: str) -> None:
        """Nothing is taken from the terminal beforehand."""

    def draft(self, text: str) -> None:
        """Say what could be typed next: a plain line cannot be begun for the person."""
        self._write(f"It was: {one_line(text)}\n")

    async def line(self) -> str:
        """The next line typed; a \\ at its end takes the next one, too. Raises EOFError at the end."""
        said = await self._asked(PROMPT)
        while said.endswith("\\"):
            said = f"{said[:-1]}\n{await self._asked('')}"
        return said

    async def choose(
        self, title: str, items: Sequence[tuple[str, str]], *, words: bool = False
    ) -> str | None:
        """Ask for a number, or for words. Questions wait for one another."""
        async with self._asking:
            return await self._chosen(title, items, words)

    async def _chosen(
        self, title: str, items: Sequence[tuple[str, str]], words: bool
    ) -> str | None:
        self._write(
            "".join(
                [
                    f"{title}\n",
                    *(f"  {n}. {one_line(label)}\n" for n, (_, label) in enumerate(items, 1)),
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

    def running(self) -> AbstractContextManager[object]:
        """A block in which Ctrl-C stops the run."""
        return interrupts(self._talk.interrupt if self._talk else bool)

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
