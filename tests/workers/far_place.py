"""A project whose worker processes do not see it, and sessions with children there.

bubblewrap hides the folder and the state folder from the worker processes, so nothing but messages
connects them with the files of the session.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mudroom import Agent, AnyEvent, Budget, Mode, Report, Session, UsageError, WorkspaceKind
from mudroom._adapters.workers.process import ProcessConnection, ProcessTransport
from mudroom._adapters.workers.remote.worker import RemoteWorker
from mudroom._adapters.workers.remote.worker_handle import WorkerHandle
from mudroom._core.events import RunFinished, StoredEvent, ToolCallFinished
from mudroom._session.worker_setup.transports import RUN_PROGRAM, make_command
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call

from ..waiting import wait_until
from ..workspaces.git_projects import make_repository, write_files

READER = Agent(name="reader", description="Reads.", tools=("read", "grep", "glob"))
WRITER = Agent(name="writer", description="Writes.", workspace=WorkspaceKind.ISOLATED)
COPIER = Agent(name="copier", description="Tries.", workspace=WorkspaceKind.COPY)
SHARER = Agent(name="sharer", description="Writes in the folder.")
PLANNER = Agent(name="planner", description="Plans.", mode=Mode.PLAN)
LEAD = Agent(
    name="lead",
    description="Leads.",
    tools=("read", "write", "bash", "task"),
    workspace=WorkspaceKind.ISOLATED,
)
AGENTS = [LEAD, READER, WRITER, COPIER, SHARER, PLANNER]


class FarConnection(ProcessConnection):
    """Connection to a process that does not see the folders of the session.

    Arguments:
        machine: name of its machine. Like that of a cluster, it is known after the start.
    """

    def __init__(self, command: Sequence[str], machine: str) -> None:
        super().__init__(command)
        self._node = machine

    @property
    def host(self) -> str:
        return "" if self.pid is None else self._node

    def place_on(self, machine: str) -> None:
        """Do nothing: its transport has chosen the machine."""


class FarTransport(ProcessTransport):
    """Starts worker processes that have a state folder of their own."""

    is_far = True
    variables: tuple[tuple[str, str], ...] = ()

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        super().__init__(make_command(RUN_PROGRAM))

    def _make_command(self, node: str) -> list[str]:
        """Return the command of a process whose state folder has this name."""
        hidden = [str(self._folder / "project"), str(self._folder / "home")]
        masks = [part for path in hidden for part in ("--tmpfs", path)]
        return [
            *("bwrap", "--dev-bind", "/", "/", *masks),
            *("--setenv", "MUDROOM_HOME", str(self._folder / node)),
            *(part for name, text in self.variables for part in ("--setenv", name, text)),
            *("--die-with-parent", *self._command),
        ]

    def _choose_machine(self) -> str:
        """Return the machine of the next process, which is also the name of its state folder."""
        return "node"

    def connect(self) -> ProcessConnection:
        self._count += 1
        machine = self._choose_machine()
        return FarConnection(self._make_command(machine), machine)


class MixedTransport(FarTransport):
    """Starts worker processes of which every second one sees the folders of the session."""

    def connect(self) -> ProcessConnection:
        far = super().connect()
        return far if self._count % 2 else ProcessConnection(self._command)


class ScatteredTransport(FarTransport):
    """Starts each worker process on a machine of its own: `node 1`, `node 2` and so on."""

    def _choose_machine(self) -> str:
        return f"node {self._count}"


class ListedTransport(FarTransport):
    """Starts worker processes on given machines; all processes after these on the last one."""

    def __init__(self, folder: Path, machines: Sequence[str]) -> None:
        super().__init__(folder)
        self._machines = machines

    def _choose_machine(self) -> str:
        return self._machines[min(self._count, len(self._machines)) - 1]


class PlacedConnection(FarConnection):
    """Connection to a process whose machine can be chosen."""

    def __init__(self, transport: PlacedTransport) -> None:
        super().__init__((), "node 2")
        self._transport = transport

    def place_on(self, machine: str) -> None:
        self._node = machine

    async def open(self) -> None:
        if self._node in self._transport.astray:
            self._node = "node 2"
        if self._node in self._transport.gone:
            raise UsageError(f"no node with the name {self._node}")
        self._command = self._transport._make_command(self._node)
        self._transport.started.append(self._node)
        await super().open()


class PlacedTransport(FarTransport):
    """Starts the first process on `node 1`, later ones on `node 2` unless they are placed.

    Attributes:
        gone: machines on which none can start.
        astray: machines in whose place processes start on `node 2`.
    """

    gone: tuple[str, ...] = ()
    astray: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.started: list[str] = []

    def connect(self) -> ProcessConnection:
        self._count += 1
        connection = PlacedConnection(self)
        if self._count == 1:
            connection.place_on("node 1")
        return connection


class StuckConnection(ProcessConnection):
    """Connection to a process that never gets ready. Its machine is not known."""

    @property
    def host(self) -> str:
        return ""

    async def open(self) -> None:
        await asyncio.Event().wait()


class Place:
    """A project, and a session whose children work where the project is not seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = make_repository(
            folder / "project", {".gitignore": "secret.txt\n", "a.txt": "one\n", "b.txt": "two\n"}
        )
        (folder / "home").mkdir()
        write_files(self.project, {"a.txt": "changed\n", "secret.txt": "do not send\n"})
        self.journal = MemoryJournal()

    def open(self, model: ScriptedModel, **options: Any) -> Session:
        defaults: dict[str, Any] = {
            "cwd": str(self.project),
            "home": str(self.folder / "home"),
            "journal": self.journal,
            "sandbox": "off",
            "worker": "process:1",
            "agents": AGENTS,
        }
        return Session(model=model, **(defaults | options))

    async def run(
        self, model: ScriptedModel, watch: Callable[[AnyEvent], None] | None = None, **options: Any
    ) -> Report:
        """Run the parent; its children have worker processes that do not see the project."""
        async with self.open(model, **options) as session:
            hide_files(session, self.folder)
            if watch:
                session.watch(watch)
            return await session.run("PARENT")

    async def list_events(self, kind: type[StoredEvent]) -> list[Any]:
        return [event async for event in self.journal.read() if isinstance(event, kind)]

    async def find_reports(self) -> dict[str, Report]:
        return {event.run: event.report for event in await self.list_events(RunFinished)}


def get_worker(session: Session) -> RemoteWorker:
    worker = session._require_open().resources.worker
    assert isinstance(worker, RemoteWorker)
    return worker


def hide_files(
    session: Session, folder: Path, transport: Callable[[Path], FarTransport] = FarTransport
) -> RemoteWorker:
    worker = get_worker(session)
    worker._transport = transport(folder)
    worker._config = replace(worker._config, is_far=True)
    worker._pool.processes = [
        worker._make_process(number + 1) for number in range(len(worker._pool.processes))
    ]
    return worker


def make_family(agent: str, child: Callable[[Request], Answer], count: int = 1) -> ScriptedModel:
    """Return a model whose parent starts children with an agent and reports their results."""

    def answer(request: Request) -> Answer:
        if request.prompt != "PARENT":
            return child(request)
        if not request.turn:
            return [call("task", agent=agent, prompt=f"CHILD {number}") for number in range(count)]
        return "\n".join(result.text for result in request.results)

    return ScriptedModel(answer)


def join_results(request: Request) -> str:
    return " | ".join(result.text for result in request.results)


def kill(process: WorkerHandle) -> None:
    """Kill the Python program of a worker process; bubblewrap ends with it."""
    assert process.pid
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]) if children else process.pid, signal.SIGKILL)


async def kill_at_first_result(
    place: Place,
    model: ScriptedModel,
    change: Callable[[], None] | None = None,
    *,
    run: str = "1.1.1",
    transport: Callable[[Path], FarTransport] = FarTransport,
    sessions: list[Session] | None = None,
    worker: str = "process:1",
) -> Report:
    """Run the parent and kill the worker process after the first result of a run.

    Arguments:
        change: called after the kill. sessions: gets the session.
    """
    killed: list[int] = []
    async with place.open(model, budget=Budget(depth=2), worker=worker) as session:
        if sessions is not None:
            sessions.append(session)
        processes = hide_files(session, place.folder, transport)._pool.processes

        def watch(event: AnyEvent) -> None:
            if isinstance(event, ToolCallFinished) and event.run == run and not killed:
                killed.append(1)
                kill(processes[0])
                if change:
                    change()

        session.watch(watch)
        running = asyncio.create_task(session.run("PARENT"))
        await wait_until(lambda: bool(killed) or running.done())
        report = await running
    assert killed
    return report
