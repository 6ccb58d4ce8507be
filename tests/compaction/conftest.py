"""Stage for compaction: a session with a small context window that records to memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import Compaction, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, Script, ScriptedModel, call
from mudroom._core.events import Compacted, Event, ResultsCleared, StoredEvent
from mudroom._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    ToolCallBlock,
    ToolResultBlock,
)
from mudroom._engine.compaction.summary import SUMMARY_PROMPT

FILE_LENGTH = 8_000
"""Characters of each file that the tests read: about 2,000 tokens."""


class Stage:
    """A folder with files, and sessions whose model has a small context window.

    Attributes:
        folder: the workspace; it has the files "0.txt", "1.txt", ...
        model: the model of the last session, with its requests.
        journal: the journal of the last session.
    """

    def __init__(self, base: Path) -> None:
        self.folder = base / "work"
        self.home = base / "home"
        self.folder.mkdir()
        self.model = ScriptedModel([])
        self.journal = MemoryJournal()
        self.session_id = ""

    def write_files(self, count: int, length: int = FILE_LENGTH) -> None:
        """Write the files "0.txt", "1.txt", ...; each has its number in all lines."""
        for number in range(count):
            line = f"line of file {number} {'x' * 40}\n"
            (self.folder / f"{number}.txt").write_text(line * (length // len(line)))

    @asynccontextmanager
    async def open(
        self, script: Script, *, kept: int | None = None, **options: Any
    ) -> AsyncGenerator[Session]:
        """Open a session; the option `resume` continues the recorded one.

        Arguments:
            kept: number of recorded events, as if the process was killed after them.
        """
        self.model = ScriptedModel(script)
        recorded = self.events[:kept] if "resume" in options else []
        self.journal = MemoryJournal()
        await self.journal.append(*recorded)
        defaults: dict[str, Any] = {
            "home": str(self.home),
            "environ": {},
            "sandbox": "off",
            "compaction": Compaction(context_window=32_000),
            "journal": self.journal,
        }
        async with Session(
            model=self.model, cwd=str(self.folder), **(defaults | options)
        ) as session:
            self.session_id = session.id
            yield session

    @property
    def events(self) -> list[StoredEvent]:
        """The recorded events."""
        return self.journal.events

    def select(self, *kinds: type[Event]) -> list[Any]:
        """Return the recorded events of some kinds."""
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def clearings(self) -> list[ResultsCleared]:
        """The recorded clearings."""
        return self.select(ResultsCleared)

    @property
    def compactions(self) -> list[Compacted]:
        """The recorded compactions."""
        return self.select(Compacted)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a stage with an empty folder."""
    return Stage(tmp_path)


def is_summary(request: Request) -> bool:
    """Return whether a request asks for notes."""
    return SUMMARY_PROMPT in join_request(request)


def list_message_texts(message: Message) -> list[str]:
    """Return the texts of the blocks of a message, results too."""
    return [
        block.text for block in message.content if not isinstance(block, ToolCallBlock | ImageBlock)
    ]


def join_request(request: Request) -> str:
    """Return all texts of a request."""
    return "\n".join(text for message in request.messages for text in list_message_texts(message))


def make_reader(
    count: int, summarise: Callable[[Request], Answer] = lambda request: "the notes"
) -> Callable[[Request], Answer]:
    """Return a script that reads one file a turn, `count` files, and then answers "done"."""
    read = [0]

    def answer(request: Request) -> Answer:
        if is_summary(request):
            return summarise(request)
        if read[0] >= count:
            return "done"
        read[0] += 1
        return [call("read", file_path=f"{read[0] - 1}.txt")]

    return answer


def make_talker(
    count: int, summarise: Callable[[Request], Answer] = lambda request: "the notes"
) -> Callable[[Request], Answer]:
    """Return a script that writes 5,000 characters and reads a file, `count` times.

    It keeps no state: it finds the number of the turn in the request.
    """

    def answer(request: Request) -> Answer:
        if is_summary(request):
            return summarise(request)
        number = find_thought(request)
        if number >= count:
            return "done"
        text = f"thought {number + 1} {'y' * 5_000}"
        return [text, call("read", file_path=f"{number % 40}.txt")]

    return answer


def find_thought(request: Request) -> int:
    """Return the number of the last thought of `make_talker` in a request."""
    texts = [text for message in request.messages for text in list_message_texts(message)]
    return max((int(text.split()[1]) for text in texts if text.startswith("thought ")), default=0)


def is_valid(messages: tuple[Message, ...]) -> bool:
    """Return whether each call has its result in the next message.

    The last two messages may both be of the user: a summary request repeats the waiting results.
    """
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if open_calls:
                return False
            open_calls = [block.id for block in message.tool_calls]
            continue
        results = [block.call_id for block in message.content if isinstance(block, ToolResultBlock)]
        if results != open_calls:
            return False
        open_calls = []
    return not open_calls
