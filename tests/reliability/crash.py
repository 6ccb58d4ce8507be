"""A program that is killed: a parent with three children that read, write, edit and run commands.

    python crash.py

Reads one life a line, "HOME WORK BOUGHT POINT DISK" with tabs between: begin, or go on with what is
in HOME, in a process of its own that kills itself at the POINT-th point, or at the DISK-th
operation of its disk (disk.c must be loaded); 0: never. What the model is asked for is written to
BOUGHT. Answers each with a line: exit code, the points passed, the report as JSON; tabs between.

Points are before and after every append to the journal; before a file is renamed to its name and
after it is; at the first output of a command and at its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from mudroom import AssistantMessage, Session
from mudroom._core.events import RunFinished, RunStarted, StoredEvent
from mudroom._core.ports import CommandResult
from mudroom._core.tools import Tool, ToolResult
from mudroom.journals.sqlite.journal import SqliteJournal
from mudroom.journals.sqlite.reader import open_reader
from mudroom.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.tools import builtin_tools

SESSION = "00000000-0000-4000-8000-000000000000"
CHILDREN = "abc"


class Points:
    """Counts the points, and kills the process at one of them."""

    def __init__(self, fatal: int) -> None:
        self.fatal, self.passed = fatal, 0
        self._one = Lock()

    def __call__(self) -> None:
        with self._one:
            self.passed += 1
            if self.passed == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def heard(self, event: str, _: tuple[Any, ...]) -> None:
        """An audit hook: Python tells of a rename before it does it."""
        if event == "os.rename":
            self()


class Watched:
    """Something of the program's, with points around one of its methods."""

    def __init__(self, inner: Any, points: Points) -> None:
        self._inner, self._points = inner, points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Journal(Watched):
    async def append(self, *events: StoredEvent) -> int:
        self._points()
        position = await self._inner.append(*events)
        self._points()
        return position

    async def close(self) -> None:
        await self._inner.close()


class Workspace(Watched):
    def write(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        new = self._inner.write(path, data, mode=mode)
        self._points()
        return new


class Sandbox(Watched):
    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        def seen(chunk: bytes) -> None:
            self._points()
            sink(chunk)

        finished = await self._inner.run(command, timeout=timeout, sink=seen)
        self._points()
        return finished


class Context(Watched):
    """What a tool may touch."""

    @property
    def workspace(self) -> Workspace:
        return Workspace(self._inner.workspace, self._points)

    @property
    def sandbox(self) -> Sandbox:
        return Sandbox(self._inner.sandbox, self._points)


def watched(tool: Tool, points: Points) -> Tool:
    async def run(context: Any, arguments: Any) -> ToolResult:
        return await tool.run(Context(context, points), arguments)

    return msgspec.structs.replace(tool, run=run)


def effect(name: str) -> str:
    """A command with an effect that can be counted."""
    return f"echo {name} | tee -a effects.txt"


def parent(turn: int) -> Answer:
    return [
        [call("task", prompt=f"CHILD {name}") for name in CHILDREN],
        [call("bash", command=effect("parent")), call("read", file_path="a.txt")],
        [
            call("edit", file_path="a.txt", old_string="last", new_string="very last"),
            call("write", file_path="sum.txt", content="3\n"),
        ],
        "all three are done",
    ][turn]


def child(name: str, turn: int) -> Answer:
    file, deep = f"{name}.txt", f"deep/{name}/{name}.txt"
    return [
        [call("write", file_path=file, content=f"one {name}\n")],
        [
            call("edit", file_path=file, old_string="one", new_string="one two"),
            call("read", file_path="given.txt"),
        ],
        [call("bash", command=effect(f"{name}1"))],
        [
            call("edit", file_path=file, old_string="two", new_string="two three"),
            call("todo", todos=[]),
        ],
        [call("write", file_path=deep, content="first\n"), call("read", file_path=file)],
        [call("bash", command=effect(f"{name}2")), call("bash", command=effect(f"{name}3"))],
        [
            call("edit", file_path=deep, old_string="first", new_string="first second"),
            call("glob", pattern="given*"),
        ],
        [
            call("edit", file_path=deep, old_string="second", new_string="second third"),
            call("grep", pattern="given", path="given.txt"),
        ],
        [call("write", file_path=file, content=f"at last {name}\n")],
        f"child {name} is done",
    ][turn]


def script(bought: str) -> Callable[[Request], Answer]:
    """Choose the next step from the messages alone, like a model that repeats its answers."""

    def answer(request: Request) -> Answer:
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        with open(bought, "a", encoding="utf-8") as file:
            file.write(f"{request.prompt} {turn}\n")
        return parent(turn) if request.prompt == "PARENT" else child(request.prompt[-1], turn)

    return answer


async def live(home: str, work: str, bought: str, points: Points) -> str:
    """Run to the end; the report as JSON."""
    path = Path(home, "sessions", f"{SESSION}.db")
    recorded = list(open_reader(path).read()) if path.exists() else []
    journal: Any = Journal(
        SqliteJournal.open(path, session=SESSION, create=not path.exists()), points
    )
    tools = [watched(builtin_tools()[name], points) for name in ("write", "edit", "bash")]
    resume = SESSION if recorded else ""
    session = Session(
        model=ScriptedModel(script(bought)),
        cwd=work,
        home=home,
        journal=journal,
        tools=tools,
        resume=resume,
        id=SESSION,
    )
    async with session:
        if any(isinstance(event, RunStarted) for event in recorded):
            await session.resume_unfinished()
        else:
            await session.run("PARENT")
    ended = [event.report for event in open_reader(path).read() if isinstance(event, RunFinished)]
    return msgspec.json.encode(ended[-1]).decode()


def one(home: str, work: str, bought: str, point: str, disk: str, said: int) -> None:
    """One life; what it says goes to a descriptor."""
    points = Points(int(point))
    sys.addaudithook(points.heard)
    os.environ["DISK_DIE"] = disk
    try:
        report = asyncio.run(live(home, work, bought, points))
        os.write(said, f"0\t{points.passed}\t{report}".encode())
    except BaseException:  # noqa: BLE001  the test must hear it
        os.write(said, f"1\t{points.passed}\t{traceback.format_exc()!r}".encode())
    os._exit(0)


def main() -> None:
    """A life a line. All that is imported is imported once."""
    for line in sys.stdin:
        said, saying = os.pipe()
        os.set_inheritable(saying, False)
        pid = os.fork()
        if pid == 0:
            os.close(said)
            home, work, bought, point, disk = line.rstrip("\n").split("\t")
            one(home, work, bought, point, disk, saying)
        os.close(saying)
        with open(said, encoding="utf-8") as file:
            told = file.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(told or f"{code}\t0\t", flush=True)


if __name__ == "__main__":
    main()
