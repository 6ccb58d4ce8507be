"""A session whose model follows a script; files, tools, worker and journal are real, and all that happens is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from mudroom import AnyEvent, Report, Session
from mudroom._core.events import NoteInjected, RunFinished, RunStarted, ToolCallFinished
from mudroom._core.tools import ToolResult
from mudroom.models.scripted import Request, Script, ScriptedModel

Lines = Sequence[Any]
"""One conversation's answers, in order; the last one is given again and again. One that can be called is given the request."""


class Stage:
    """Where a story is played.

    `folder` is the workspace; `model` has the requests; `events` is all that happened, deltas too.
    """

    def __init__(self, base: Path) -> None:
        self.folder, self._home = base / "work", base / "home"
        self.folder.mkdir()
        (self.folder / "notes.txt").write_text("one\ntwo\nthree\n")
        self.model = ScriptedModel([])
        self.events: list[AnyEvent] = []
        self.session = Session()

    @asynccontextmanager
    async def open(
        self, script: Script | dict[str, Lines], name: str = "scripted:model", **settings: Any
    ) -> AsyncGenerator[Session]:
        """A session. `script`: a scripted model's, or the lines of each conversation by the first word of its prompt."""
        self.model = ScriptedModel(
            _cast(cast(dict[str, Lines], script)) if isinstance(script, dict) else script, name
        )
        given = (
            dict[str, Any](journal="memory", home=str(self._home), environ={}, sandbox="off")
            | settings
        )
        async with Session(model=self.model, cwd=str(self.folder), **given) as self.session:
            self.session.watch(self.events.append)
            yield self.session

    async def run(
        self, script: Script | dict[str, Lines], prompt: str = "PARENT", **settings: Any
    ) -> Report:
        """Play one prompt from beginning to end."""
        async with self.open(script, **settings) as session:
            return await session.run(prompt)

    async def until(self, true: Callable[[], object]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(10):
            while not true():  # noqa: ASYNC110  what is waited for may be another process
                await asyncio.sleep(0.002)

    def asked(self, prompt: str) -> list[Request]:
        """The requests of the conversations that began with this word, in order."""
        return [request for request in self.model.requests if _first_word(request) == prompt]

    @property
    def runs(self) -> list[str]:
        """Ids of the runs that began, in order."""
        return [event.run for event in self.events if isinstance(event, RunStarted)]

    @property
    def reports(self) -> dict[str, Report]:
        """Reports by run id."""
        return {event.run: event.report for event in self.events if isinstance(event, RunFinished)}

    @property
    def results(self) -> list[ToolResult]:
        """What the root run's calls gave, in the order they ended."""
        return [
            event.result
            for event in self.events
            if isinstance(event, ToolCallFinished) and "." not in event.run
        ]

    def told(self, run: str = "1") -> list[str]:
        """The words a run was told beside prompt and results."""
        return [
            event.text
            for event in self.events
            if isinstance(event, NoteInjected) and event.run == run
        ]


def _first_word(request: Request) -> str:
    return request.prompt.split()[0]


def _cast(lines: Mapping[str, Lines]) -> Script:
    def answer(request: Request) -> Any:
        mine = lines[_first_word(request)]
        line: Any = mine[min(request.turn, len(mine) - 1)]
        return line(request) if callable(line) else line

    return answer


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A stage of its own."""
    return Stage(tmp_path)
