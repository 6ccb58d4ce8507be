"""What the session's process does with the messages of one worker process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter
from mudroom._adapters.workers.remote.assigned_run import AssignedRun
from mudroom._adapters.workers.remote.messages import (
    SENT_BRIEF,
    AppendEvents,
    CallReply,
    SetWatched,
    ShowEvent,
    StartRun,
    ToProcess,
    ToSession,
    WorkerConfig,
)
from mudroom._adapters.workers.remote.tree_transfer import TravellingFiles, TreeTransfers
from mudroom._adapters.workers.remote.worker_handle import WorkerHandle
from mudroom._core.agents import WorkspaceKind, WorkspaceSpec
from mudroom._core.budgets import Budget, Grant
from mudroom._core.events import RunStarted, StoredEvent
from mudroom._engine.meters.meter import Meter
from mudroom._peers import FrameDecoder, encode, make_frame
from mudroom.errors import JournalError
from mudroom.testing.event_builders import run_started
from mudroom.testing.worker_stage import WorkerStage

from ..waiting import wait_until
from .test_conformance import make_config


class ScriptedConnection:
    """The port WorkerConnection for a worker process that a test plays.

    Attributes:
        sent: messages of the session's process.
    """

    pid = 1
    host = ""
    node = ""
    loss = ""
    answer_limits = None
    arrivals = 0
    is_draining = False
    other_runs = 0

    def __init__(self) -> None:
        self.sent: list[msgspec.Struct] = []
        self._decoder = FrameDecoder[ToProcess](ToProcess)
        self._arriving: asyncio.Queue[bytes] = asyncio.Queue()

    def arrive(self, *messages: ToSession) -> None:
        """Let these messages of the worker process arrive together; none ends the connection."""
        self._arriving.put_nowait(make_frame(list(map(encode, messages))) if messages else b"")

    def read_activity(self) -> None:
        """Return None: the process does not exist."""

    def place_on(self, machine: str) -> None:
        """Do nothing: it is started."""

    def drain(self) -> None:
        """Do nothing: nobody else uses it."""

    def kill(self, reason: str) -> None:
        """Do nothing: it always answers."""

    def note_runs(self, count: int) -> None:
        """Do nothing: nobody else uses it."""

    async def open(self) -> None:
        """Do nothing: it is started."""

    def send(self, data: bytes) -> None:
        """Keep messages, without the config of the session."""
        messages = self._decoder.decode(data)
        self.sent += [each for each in messages if not isinstance(each, WorkerConfig)]

    async def receive(self) -> bytes:
        """Return the messages that arrived together."""
        return await self._arriving.get()

    async def read_lease(self) -> float | None:
        """Return None: there is no lease."""
        return None

    async def wait_until_stopped(self) -> None:
        """Do nothing: it has stopped."""

    async def close(self) -> None:
        """End the connection."""
        self.arrive()

    def list_replies(self) -> dict[int, CallReply]:
        """Return the replies by the id of their message."""
        return {reply.id: reply for reply in self.sent if isinstance(reply, CallReply)}


@asynccontextmanager
async def open_handle(
    stage: WorkerStage,
) -> AsyncGenerator[tuple[WorkerHandle, ScriptedConnection]]:
    services, connection = stage.services, ScriptedConnection()
    config = make_config(services)
    files = TravellingFiles(services, (), TreeTransfers(services, 0))
    handle = WorkerHandle(
        1, connection, config, services, lambda _: AdaptiveRateLimiter(services.clock), files
    )
    await handle.open()
    yield handle, connection
    await handle.close()


class CountingJournal(MemoryJournal):
    """Journal that counts its appends and refuses events of one run."""

    def __init__(self, refused: str = "") -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._refused = refused

    async def append(self, *events: StoredEvent) -> int:
        if any(event.run == self._refused for event in events):
            raise JournalError("an event nests too deeply to be recorded")
        self.sizes.append(len(events))
        return await super().append(*events)


def make_message(number: int, *runs: str) -> AppendEvents:
    return AppendEvents(number, tuple(map(run_started, runs)), 0)


def read_position(reply: CallReply) -> Any:
    return msgspec.msgpack.decode(reply.result)


async def test_events_that_arrive_together_are_stored_together(tmp_path: Path) -> None:
    journal = CountingJournal()
    stage = WorkerStage(tmp_path, journal=journal)
    async with open_handle(stage) as (_, connection):
        connection.arrive(make_message(1, "1.1.1"), make_message(2, "1.1.2", "1.1.3"))
        await wait_until(lambda: len(connection.list_replies()) == 2)
    replies = connection.list_replies()
    assert journal.sizes == [3]
    assert [read_position(replies[number]) for number in (1, 2)] == [1, 3]
    assert [event.run for event in stage.events] == ["1.1.1", "1.1.2", "1.1.3"]


async def test_a_watcher_that_fails_leaves_no_message_without_a_reply(tmp_path: Path) -> None:
    stage = WorkerStage(tmp_path)

    def fail(event: object) -> None:
        raise ValueError("a watcher failed")

    stage.services.watchers.append(fail)
    async with open_handle(stage) as (handle, connection):
        connection.arrive(*(make_message(number, f"1.1.{number}") for number in (1, 2, 3)))
        await wait_until(lambda: len(connection.list_replies()) == 3)
        await wait_until(lambda: not handle._storing._served)


async def test_a_message_that_cannot_be_handled_ends_the_process(tmp_path: Path) -> None:
    stage = WorkerStage(tmp_path)

    def fail(event: object) -> None:
        raise ValueError("a watcher failed")

    stage.services.watchers.append(fail)
    async with open_handle(stage) as (handle, connection):
        connection.arrive(ShowEvent(run_started("1.1.1")))
        await wait_until(lambda: handle.is_lost)


async def test_an_event_that_cannot_be_stored_stops_no_other_run(tmp_path: Path) -> None:
    journal = CountingJournal(refused="1.1.2")
    stage = WorkerStage(tmp_path, journal=journal)
    async with open_handle(stage) as (_, connection):
        messages = [make_message(number, f"1.1.{number}") for number in (1, 2, 3)]
        connection.arrive(*messages)
        await wait_until(lambda: len(connection.list_replies()) == 3)
    replies = connection.list_replies()
    assert [read_position(replies[number]) for number in (1, 3)] == [1, 2]
    assert replies[2].error is not None
    assert "nests too deeply" in replies[2].error.message
    stored = [event async for event in journal.read(types=(RunStarted,))]
    assert [event.run for event in stored] == ["1.1.1", "1.1.3"]


async def test_a_worker_process_learns_whether_its_session_has_watchers(tmp_path: Path) -> None:
    stage = WorkerStage(tmp_path)
    watchers = stage.services.watchers
    watchers.clear()
    async with open_handle(stage) as (handle, connection):
        watchers.on_change = handle.tell_watched
        watchers.append(stage.events.append)
        watchers.append(print)
        watchers.remove(print)
        watchers.remove(stage.events.append)
    assert connection.sent == [SetWatched(False), SetWatched(True), SetWatched(False)]


async def test_a_session_that_is_watched_from_the_start_says_nothing(tmp_path: Path) -> None:
    async with open_handle(WorkerStage(tmp_path)) as (_, connection):
        assert connection.sent == []


async def test_the_start_of_a_run_is_stored_with_the_brief_that_was_sent(tmp_path: Path) -> None:
    stage = WorkerStage(tmp_path)
    brief, budget = run_started("1.1.1").brief, Budget()
    run = AssignedRun(brief, Meter(budget), {}, print)
    async with open_handle(stage) as (handle, connection):
        await handle.send_run(run, Grant("1.1.1", budget))
        started = RunStarted(at=1.0, run="1.1.1", brief=SENT_BRIEF)
        connection.arrive(AppendEvents(1, (started,), 0))
        await wait_until(connection.list_replies)
        handle.forget(run)
    (stored,) = [event async for event in stage.journal.read()]
    assert isinstance(stored, RunStarted) and stored.brief == brief
    (recorded,) = run.recorded["1.1.1"]
    assert isinstance(recorded, RunStarted) and recorded.brief is brief


async def test_a_run_that_no_process_began_has_the_brief_of_the_process_that_begins_it(
    tmp_path: Path,
) -> None:
    stage = WorkerStage(tmp_path)
    tree = WorkspaceSpec(WorkspaceKind.COPY, base="tree", tree="tree")
    brief = replace(run_started("1.1.1").brief, workspace=tree)
    run = AssignedRun(brief, Meter(Budget()), {}, print)
    grant = Grant("1.1.1", Budget())
    async with open_handle(stage) as (far, connection):
        far._config = replace(far._config, has_own_files=True)
        await far.send_run(run, grant)
        far.forget(run)
        assert run.sent_brief.workspace.root
    async with open_handle(stage) as (near, connection):
        await near.send_run(run, grant)
        near._stream.flush()
        near.forget(run)
        assert connection.sent[-1] == StartRun(brief, grant, run.make_parent_meter_state(), {})
        assert run.sent_brief == brief


async def test_the_start_of_an_unknown_run_is_an_error_and_not_stored(tmp_path: Path) -> None:
    stage = WorkerStage(tmp_path)
    async with open_handle(stage) as (_, connection):
        started = RunStarted(at=1.0, run="1.1.1", brief=SENT_BRIEF)
        connection.arrive(AppendEvents(1, (started,), 0))
        await wait_until(connection.list_replies)
    assert connection.list_replies()[1].error is not None
    assert [event async for event in stage.journal.read()] == []
