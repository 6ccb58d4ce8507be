"""A session that writes and edits on a disk that fails or is recorded.

It prints which events were confirmed as saved, and how it ended.

python disk.py HOME WORK      start or resume the session in HOME
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from mudroom import MudroomError, Session
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import RunStarted, StoredEvent

SESSION = "00000000-0000-4000-8000-000000000000"


class AcknowledgingJournal:
    """A journal that writes the number of acknowledged events to a file on the same disk."""

    def __init__(self, inner: SqliteJournal, acks: int) -> None:
        self.inner, self.acks, self.saved = (
            inner,
            acks,
            sum(1 for _ in open_reader(inner.path).read()) if inner.path.exists() else 0,
        )

    async def append(self, *events: StoredEvent) -> int:
        position = await self.inner.append(*events)
        self.saved += len(events)
        os.write(self.acks, f"{self.saved}\n".encode())
        return position

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        return self.inner.read(after, types=types)

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        return self.inner.follow(after)

    async def close(self) -> None:
        await self.inner.close()


def script(request: Request) -> Answer:
    if request.prompt == "CHILD":
        return [[call("write", file_path="child.txt", content="one\n")], "the child is done"][
            request.turn
        ]
    return [
        [call("task", prompt="CHILD"), call("write", file_path="a.txt", content="one\n")],
        [call("edit", file_path="a.txt", old_string="one", new_string="two")],
        "all is done",
    ][request.turn]


async def main(home: str, work: str) -> str:
    path = Path(home, "sessions", f"{SESSION}.db")
    exists = path.exists()
    recorded = list(open_reader(path).read()) if exists else []
    journal = SqliteJournal.open(path, session=SESSION, create=not exists)
    acks = os.open(os.environ["DISK_ACKS"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    resume = SESSION if recorded else ""
    session = Session(
        model=ScriptedModel(script),
        cwd=work,
        home=home,
        journal=AcknowledgingJournal(journal, acks),
        resume=resume,
        id=SESSION,
    )
    async with session:
        if any(isinstance(event, RunStarted) for event in recorded):
            report = await session.resume_unfinished()
            return report.text if report else "nothing was unfinished"
        return (await session.run("PARENT")).text


if __name__ == "__main__":
    try:
        print("ended:", asyncio.run(main(sys.argv[1], sys.argv[2])))
    except MudroomError as error:
        print(f"stopped: {error}")
