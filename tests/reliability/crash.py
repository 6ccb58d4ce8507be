"""A program that is killed: a parent with three children that read, write, edit and run commands; it dies at the point it is told.

    python crash.py HOME WORK POINT [WITHIN]     begin, or go on with what is in HOME; POINT 0 never dies

Points are counted before and after every append to the journal. With WITHIN (microseconds) it dies that long after the
append of the point began. Prints the number of points passed, and the final text when it gets there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from mudroom import Assistant, Session
from mudroom._core.events import RunFinished, RunStarted, Stored
from mudroom.journals.sqlite import SqliteJournal, read_only
from mudroom.models.scripted import Request, ScriptedModel, call

SESSION = "00000000-0000-4000-8000-000000000000"


class Dying:
    """A journal that kills its process before, within or after an append."""

    def __init__(self, inner: SqliteJournal, point: int, within: int) -> None:
        self.inner, self.point, self.within, self.passed = inner, point, within, 0

    async def append(self, *events: Stored) -> None:
        if self.within and self.passed + 1 == self.point:
            threading.Thread(target=self._soon, daemon=True).start()
        else:
            self._pass()
        await self.inner.append(*events)
        self._pass()

    def _pass(self) -> None:
        self.passed += 1
        if self.passed == self.point and not self.within:
            os.kill(os.getpid(), signal.SIGKILL)

    def _soon(self) -> None:
        time.sleep(self.within / 1e6)
        os.kill(os.getpid(), signal.SIGKILL)

    def read(self) -> Iterator[Stored]:
        return self.inner.read()

    async def close(self) -> None:
        await self.inner.close()


def answer(request: Request) -> object:
    """The script: what to do next follows from the messages alone, as with a model that answers the same again."""
    first = request.messages[0].content[0]
    prompt = getattr(first, "text", "")
    turn = sum(isinstance(message, Assistant) for message in request.messages)
    with open(os.environ["BOUGHT"], "a", encoding="utf-8") as bought:
        bought.write(f"{prompt} {turn}\n")
    if prompt == "PARENT":
        return [
            [call("task", prompt="CHILD a"), call("task", prompt="CHILD b"), call("task", prompt="CHILD c")],
            [call("bash", command="echo parent >> effects.txt"), call("read", file_path="a.txt")],
            "all three are done",
        ][turn]
    name = prompt[-1]
    return [
        [call("write", file_path=f"{name}.txt", content=f"one {name}\n")],
        [call("edit", file_path=f"{name}.txt", old_string="one", new_string="one two"), call("read", file_path="given.txt")],
        [call("bash", command=f"echo {name} >> effects.txt")],
        [call("edit", file_path=f"{name}.txt", old_string="two", new_string="two three"), call("todo", todos=[])],
        f"child {name} is done",
    ][turn]


async def main(home: str, work: str, point: int, within: int) -> None:
    path = Path(home, "sessions", f"{SESSION}.db")
    recorded = list(read_only(path).read()) if path.exists() else []
    journal = Dying(SqliteJournal.open(path, session=SESSION, create=not path.exists()), point, within)
    model = ScriptedModel(answer)  # pyright: ignore[reportArgumentType]
    session = Session(model=model, cwd=work, home=home, journal=journal, resume=SESSION if recorded else "")
    session.id = SESSION
    async with session:
        if any(isinstance(event, RunStarted) for event in recorded):
            await session.finish()
        else:
            await session.run("PARENT")
    print(journal.passed, [event.report.text for event in read_only(path).read() if isinstance(event, RunFinished)][-1])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0))
