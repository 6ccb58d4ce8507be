"""Stage: a session with a scripted model; files, tools, worker and journal are real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typing_extensions import TypeIs

from mudroom import AnyEvent, Report, Session
from mudroom._adapters.models.scripted import Answer, Request, Script, ScriptedModel
from mudroom._core.events import (
    Event,
    NoteInjected,
    RunFinished,
    RunStarted,
    RunWaiting,
    StoredEvent,
    ToolCallFinished,
)
from mudroom._core.messages import Message, TextBlock, ToolResultBlock
from mudroom._core.tools import ToolResult
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from ..waiting import wait_until

_Event = TypeVar("_Event", bound=Event)

Step = Callable[[Request], Answer | Awaitable[Answer]]
"""Returns the answer to a request."""

Lines = Sequence[Answer | Step]
"""Answers of one conversation in order; the last one repeats. A callable receives the request."""


class Stage:
    """A session with a scripted model.

    Attributes:
        folder: the workspace.
        model: the model, with its requests.
        events: all events so far, deltas included.
    """

    def __init__(self, base: Path) -> None:
        self.folder = base / "work"
        self.home = base / "home"
        self.folder.mkdir()
        (self.folder / "notes.txt").write_text("one\ntwo\nthree\n")
        self.model = ScriptedModel([])
        self.events: list[AnyEvent] = []
        self.session = Session()

    @asynccontextmanager
    async def open(
        self, script: Script | Mapping[str, Lines], name: str = "scripted:model", **options: Any
    ) -> AsyncGenerator[Session]:
        """Open a session.

        Arguments:
            script: of the model; or the answers of each conversation by the first word of its
                prompt.
        """
        answers = _make_script(script) if _is_by_prompt(script) else script
        self.model = ScriptedModel(answers, name)
        defaults: dict[str, Any] = {
            "journal": "memory",
            "home": str(self.home),
            "environ": {},
            "sandbox": "off",
        }
        options = defaults | options
        async with Session(model=self.model, cwd=str(self.folder), **options) as self.session:
            self.session.watch(self.events.append)
            yield self.session

    async def run(
        self, script: Script | Mapping[str, Lines], prompt: str = "PARENT", **options: Any
    ) -> Report:
        """Run one prompt in a session of its own."""
        async with self.open(script, **options) as session:
            return await session.run(prompt)

    async def run_checked(
        self, script: Script | Mapping[str, Lines], prompt: str = "PARENT", **options: Any
    ) -> Report:
        """Run one prompt in a session of its own, and check the record."""
        async with self.open(script, **options) as session:
            report = await session.run(prompt)
            await self.check_record()
        return report

    async def check_record(self, *, timed: bool = True) -> list[StoredEvent]:
        """Check the promises of the record, and that its replay is equal. Return its events."""
        journal = self.session._require_open().resources.journal  # pyright: ignore[reportPrivateUsage]
        events = [event async for event in journal.read()]
        assert not find_violations(events, timed=timed)
        assert await replay(events) == events
        return events

    async def wait_until(self, is_true: Callable[[], object]) -> None:
        """Wait until a condition is true."""
        await wait_until(is_true)

    @asynccontextmanager
    async def open_waiting(
        self, script: Mapping[str, Lines], **options: Any
    ) -> AsyncGenerator[tuple[Session, asyncio.Task[Report]]]:
        """Open a session, start a prompt, and wait until it waits for its background work."""
        async with self.open(script, **options) as session:
            running = asyncio.create_task(session.run("PARENT"))
            await self.wait_until(lambda: self.select(RunWaiting))
            yield session, running

    def select(self, kind: type[_Event]) -> list[_Event]:
        """Return the events of a kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def list_requests(self, prompt: str) -> list[Request]:
        """Return the requests of the conversations whose prompt begins with this word, in order."""
        return [request for request in self.model.requests if _get_first_word(request) == prompt]

    @property
    def runs(self) -> list[str]:
        """Ids of the started runs, in order."""
        return [event.run for event in self.events if isinstance(event, RunStarted)]

    @property
    def reports(self) -> dict[str, Report]:
        """Reports by run id."""
        return {event.run: event.report for event in self.events if isinstance(event, RunFinished)}

    @property
    def results(self) -> list[ToolResult]:
        """Results of the root run's tool calls, in the order of their ends."""
        return [
            event.result
            for event in self.events
            if isinstance(event, ToolCallFinished) and "." not in event.run
        ]

    def list_notes(self, run: str = "1") -> list[str]:
        """Return the notes that a run received, messages included."""
        return [
            event.text
            for event in self.events
            if isinstance(event, NoteInjected) and event.run == run
        ]


class Gate:
    """Answers of a child that works until the gate is opened, and of a parent that opens it."""

    def __init__(self, words: str = "done") -> None:
        self.is_open = asyncio.Event()
        self._words = words

    async def child(self, request: Request) -> Answer:
        await self.is_open.wait()
        return self._words

    def open(self, request: Request) -> Answer:
        self.is_open.set()
        return "I wait."


def _get_first_word(request: Request) -> str:
    return request.prompt.split()[0]


def block_texts(message: Message) -> list[str]:
    """Return the texts of a message's text blocks and tool results."""
    return [
        block.text for block in message.content if isinstance(block, TextBlock | ToolResultBlock)
    ]


def _is_by_prompt(script: Script | Mapping[str, Lines]) -> TypeIs[Mapping[str, Lines]]:
    return isinstance(script, Mapping)


def _make_script(lines: Mapping[str, Lines]) -> Script:
    def answer(request: Request) -> Answer | Awaitable[Answer]:
        answers = lines[_get_first_word(request)]
        line = answers[min(request.turn, len(answers) - 1)]
        return line(request) if callable(line) else line

    return answer


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a stage with an empty session."""
    return Stage(tmp_path)
