"""A conversation's input lines: turns of its driver, and what follows the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from ...driving import SessionDriver, Turn
from .ui import UI


class NextStep(Struct, frozen=True, kw_only=True):
    """What follows a conversation: exit with a code, or `resume` a session, "" for a new one."""

    exit_code: int | None = None
    resume: str = ""
    is_cleared: bool = False


Work = Callable[[Turn[Any]], Coroutine[Any, Any, NextStep | None]]


class InputLines:
    """Lines running or waiting. The first that has a next step ends the conversation."""

    def __init__(self, driver: SessionDriver[Any]) -> None:
        self._driver = driver
        self._open: set[Turn[NextStep | None]] = set()
        self._left: list[str] = []
        self._ending: asyncio.Future[NextStep] = asyncio.get_running_loop().create_future()
        self._has_changed = asyncio.Event()

    def begin(
        self, work: Work, *, line: str | None = None, at_once: bool = False
    ) -> Turn[NextStep | None]:
        """Begin a line's work, after the lines before it or `at_once`; return its turn."""
        start = self._driver.start if at_once else self._driver.submit
        turn = start(lambda turn: self._follow(turn, work), key=line)
        self._open.add(turn)
        turn.task.add_done_callback(lambda _: self._close(turn))
        return turn

    async def _follow(self, turn: Turn[Any], work: Work) -> NextStep | None:
        step = await work(turn)
        if step:
            self._end(step)
        return step

    def _close(self, turn: Turn[NextStep | None]) -> None:
        self._open.discard(turn)
        self._has_changed.set()
        if turn.task.cancelled() or self._ending.done():
            return
        if error := turn.task.exception():
            self._ending.set_exception(error)

    def _end(self, step: NextStep) -> None:
        if not self._ending.done():
            self._ending.set_result(step)
            # Right away, before the next line begins in this conversation.
            self._left = self.take_back()

    @property
    def is_empty(self) -> bool:
        return self._driver.current is None and not self._driver.waiting

    @property
    def queued(self) -> tuple[str, ...]:
        return tuple(turn.key for turn in self._driver.waiting if turn.key)

    def take_back(self, *, only_first: bool = False) -> list[str]:
        turns = [turn for turn in self._driver.waiting if turn.key][: 1 if only_first else None]
        return [turn.key for turn in turns if turn.stop() and turn.key]

    async def run(self, ui: UI, take: Callable[[str], object]) -> NextStep:
        reading = asyncio.create_task(self._read(ui, take))
        try:
            await asyncio.wait({reading, self._ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            await asyncio.wait({reading})
        if not (reading.cancelled() or self._ending.done()):
            reading.result()  # raises
        step = self._ending.result()
        if step.exit_code is None:
            ui.return_lines(self._left)
        if (current := self._driver.current) and self._driver.interrupt():
            await asyncio.wait({current.task})
        return step

    async def _read(self, ui: UI, take: Callable[[str], object]) -> None:
        try:
            while True:
                line = await ui.read_line()
                if self._ending.done():
                    self._left.append(line)
                else:
                    take(line)
        except EOFError:
            await self._driver.drain()
            self._end(NextStep(exit_code=0))

    def note_change(self) -> None:
        """Note that the prompt is now waiting for its children."""
        self._has_changed.set()

    async def wait_until_ready(self, is_waiting: Callable[[], bool]) -> None:
        """Wait until all lines are done, or the last one is only waiting for its children.

        `is_waiting` returns whether the model has read all messages and is waiting.
        """
        while self._ending.done() or not self._is_ready(is_waiting):
            self._has_changed.clear()
            await self._has_changed.wait()

    def _is_ready(self, is_waiting: Callable[[], bool]) -> bool:
        return not self._open or (
            len(self._open) == 1 and not self._driver.waiting and is_waiting()
        )
