"""What the session's process does with the messages and the runs of one worker process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mudroom import Reason, Report, Usage
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter
from mudroom._adapters.workers.remote.assigned_run import AssignedRun
from mudroom._adapters.workers.remote.messages import (
    SENT_BRIEF,
    AppendEvents,
    CallReply,
    CallSession,
    EndAdmission,
    ParentMeterState,
    RequestAdmission,
    RunReply,
    SetWatched,
    ShowEvent,
    StartRun,
    ToProcess,
    ToSession,
    WorkerConfig,
)
from mudroom._adapters.workers.remote.remote_services import (
    RemoteJournal,
    RemoteParentMeter,
    SessionLink,
)
from mudroom._adapters.workers.remote.session_calls import SessionCalls
from mudroom._adapters.workers.remote.tree_transfer import TravellingFiles, TreeTransfers
from mudroom._adapters.workers.remote.worker import RemoteWorker
from mudroom._adapters.workers.remote.worker_handle import WorkerHandle
from mudroom._core.agents import WorkspaceKind, WorkspaceSpec
from mudroom._core.budgets import Budget, Grant, Limit
from mudroom._core.events import RunFinished, RunStarted, StoredEvent, TurnStarted
from mudroom._core.ports import RunHandle
from mudroom._engine.meters.account import Admission, Permit, RequestPlan
from mudroom._engine.meters.meter import Meter
from mudroom._engine.meters.request_gate import RequestGate
from mudroom._engine.recorded_conversations import PastEvents
from mudroom._engine.session_context import SessionServices
from mudroom._peers import FrameDecoder, encode, make_frame
from mudroom._session.briefs import SessionMeter
from mudroom.errors import JournalError
from mudroom.testing.clock import LoopClock
from mudroom.testing.event_builders import run_finished, run_started
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
        self.arrive()

    def list_replies(self) -> dict[int, CallReply]:
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


class ScriptedTransport:
    """The port WorkerTransport for worker processes that a test plays."""

    kind = "process"
    is_far = False
    is_shared = False

    def __init__(self) -> None:
        self.connections: list[ScriptedConnection] = []

    def connect(self) -> ScriptedConnection:
        self.connections.append(ScriptedConnection())
        return self.connections[-1]

    async def close(self) -> None:
        pass

    def list_started(self) -> list[str]:
        sent = [each for connection in self.connections for each in connection.sent]
        return [each.brief.run_id for each in sent if isinstance(each, StartRun)]


class OneSlot:
    """A worker that executes one child at once, in one worker process that a test plays."""

    def __init__(self, services: SessionServices) -> None:
        self.transport = ScriptedTransport()
        self._services = services
        config = replace(make_config(services), max_children=1)
        limiter = AdaptiveRateLimiter(services.clock)
        self.worker = RemoteWorker(services, config, self.transport, 1, lambda _: limiter)

    def start(self, run_id: str) -> RunHandle:
        brief = replace(run_started(run_id).brief, depth=1)
        return self.worker.start(brief, self._services.meters.open(run_id, Budget()))

    def report(self, run_id: str) -> None:
        report = Report[dict[str, Any]](text="done", reason=Reason.GOAL, run_id=run_id, outputs={})
        self.transport.connections[-1].arrive(RunReply(run_id, report))


@asynccontextmanager
async def open_slot(services: SessionServices) -> AsyncGenerator[OneSlot]:
    slot = OneSlot(services)
    yield slot
    await slot.worker.close()


class BrokenPast(PastEvents):
    def walk_below(self, run_id: str) -> Iterator[str]:
        raise ValueError("the record is damaged")


async def test_a_run_whose_past_cannot_be_read_frees_its_slot(tmp_path: Path) -> None:
    past = BrokenPast({"1.1": [run_started("1.1")]})
    services = replace(WorkerStage(tmp_path).services, past_events=past)
    async with open_slot(services) as slot:
        with pytest.raises(ValueError, match="the record is damaged"):
            await slot.start("1.1").report()
        handle = slot.start("1.2")
        await wait_until(slot.transport.list_started)
        slot.report("1.2")
        assert (await handle.report()).text == "done"


async def test_a_run_whose_state_cannot_be_closed_ends_and_frees_its_slot(tmp_path: Path) -> None:
    async with open_slot(WorkerStage(tmp_path).services) as slot:
        first, second = slot.start("1.1"), slot.start("1.2")
        await wait_until(slot.transport.list_started)
        assigned = slot.worker._handles["1.1"].assigned
        assert assigned is not None
        ended = asyncio.get_running_loop().create_future()
        ended.set_result(True)
        assigned._waiting["1.1", "message"] = ended
        slot.report("1.1")
        assert (await first.report()).text == "done"
        await wait_until(lambda: slot.transport.list_started() == ["1.1", "1.2"])
        slot.report("1.2")
        assert (await second.report()).text == "done"


class DirectChannel:
    """Channel whose other end, in this process, has the calls of a session."""

    def __init__(self, stage: WorkerStage) -> None:
        files = TravellingFiles(stage.services, (), TreeTransfers(stage.services, 0))
        self.calls = SessionCalls(stage.services, files, lambda _: True)
        self.link = SessionLink(self.send, self.check_lease)
        self.received_bytes = 0

    def send(self, message: msgspec.Struct) -> None:
        assert isinstance(message, CallSession)
        self._task = asyncio.create_task(self._answer(message))

    async def _answer(self, call: CallSession) -> None:
        reply = await self.calls.execute(call)
        self.received_bytes += len(reply.result)
        self.link.handle_reply(reply)

    def check_lease(self) -> None:
        pass


async def test_only_events_of_the_asked_types_are_sent(tmp_path: Path) -> None:
    stage = WorkerStage(tmp_path)
    started, finished = run_started("1"), run_finished("1")
    await stage.journal.append(started, *[run_started(f"1.{n}") for n in range(200)], finished)
    channel = DirectChannel(stage)
    journal = RemoteJournal(channel.link)
    assert [event async for event in journal.read(types=(RunFinished, TurnStarted))] == [finished]
    assert channel.received_bytes < 2_000
    assert [event async for event in journal.read()][::201] == [started, finished]


AMOUNTS = {Limit.INPUT_TOKENS: 100.0, Limit.TOTAL_TOKENS: 100.0}
PLAN = RequestPlan(AMOUNTS, AMOUNTS, {Limit.TOTAL_TOKENS: 1.0}, 16)
SUMMARY = replace(PLAN, is_summary=True)


def make_run(meter: Meter) -> AssignedRun:
    return AssignedRun(run_started("1.1.1").brief, meter, {}, print)


@pytest.mark.parametrize("steps", range(6))
async def test_a_permit_that_comes_as_the_process_is_lost_counts_no_turn(steps: int) -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    other, meter = root.allocate(Budget()), root.allocate(Budget())
    permit = await gate.admit(other, PLAN)
    assert isinstance(permit, Permit)
    run = make_run(meter)
    waiting = asyncio.create_task(run.admit(gate, RequestAdmission(1, "1.1.1", PLAN, is_own=True)))
    for _ in range(3):
        await asyncio.sleep(0)
    other.charge(Usage(100, 300))
    permit.end()
    other.release()
    for _ in range(steps):
        await asyncio.sleep(0)
    run.refund()
    with suppress(asyncio.CancelledError):
        await waiting
    assert (meter.turns, root.accounts[Limit.TOTAL_TOKENS].is_busy) == (0, False)


async def test_a_request_that_ends_as_it_arrives_holds_no_tokens() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    meter = root.allocate(Budget())
    run = make_run(meter)
    admitting = run.admit(gate, RequestAdmission(1, "1.1.1", PLAN, is_own=True))
    run.end_request(1)
    with suppress(asyncio.CancelledError):
        await admitting
    assert (meter.turns, root.accounts[Limit.TOTAL_TOKENS].is_busy) == (0, False)


async def test_a_request_that_is_cancelled_as_its_permit_is_on_its_way_counts_no_turn() -> None:
    root = Meter(Budget(total_tokens=1_000))
    meter = root.allocate(Budget())
    run = make_run(meter)
    await run.admit(RequestGate(), RequestAdmission(1, "1.1.1", PLAN, is_own=True))
    assert meter.turns == 1
    run.end_request(1, is_unsent=True)
    assert (meter.turns, root.accounts[Limit.TOTAL_TOKENS].is_busy) == (0, False)
    run.refund()
    assert meter.turns == 0


async def test_a_request_that_was_sent_keeps_its_turn() -> None:
    meter = Meter(Budget(total_tokens=1_000)).allocate(Budget())
    run = make_run(meter)
    await run.admit(RequestGate(), RequestAdmission(1, "1.1.1", PLAN, is_own=True))
    run.end_request(1)
    assert meter.turns == 1


def end_unsent(run: AssignedRun) -> None:
    run.end_request(1, is_unsent=True)


@pytest.mark.parametrize("end", [end_unsent, AssignedRun.refund])
async def test_a_summary_that_was_not_sent_leaves_it_to_another_run(
    end: Callable[[AssignedRun], None],
) -> None:
    gate = RequestGate()
    session = SessionMeter(Budget(turns=1), LoopClock())
    runs = [make_run(Meter(Budget(), session)) for _ in range(2)]
    session.add_child_turns(1)
    admitted = await runs[0].admit(gate, RequestAdmission(1, "1.1.1", SUMMARY, is_own=True))
    assert admitted.refusal is None
    end(runs[0])
    admitted = await runs[1].admit(gate, RequestAdmission(2, "1.1.1", SUMMARY, is_own=True))
    assert admitted.refusal is None


class KeepingChannel:
    """Keeps what a worker process sends."""

    def __init__(self) -> None:
        self.sent: list[msgspec.Struct] = []

    def send(self, message: msgspec.Struct) -> None:
        self.sent.append(message)

    def check_lease(self) -> None:
        pass


@pytest.mark.parametrize("has_reply", [False, True])
async def test_a_worker_process_says_that_a_cancelled_request_was_not_sent(has_reply: bool) -> None:
    channel = KeepingChannel()
    link = SessionLink(channel.send, channel.check_lease)
    meter = RemoteParentMeter(link, ParentMeterState("1.1.1"))
    waiting = asyncio.create_task(meter.admit(PLAN, is_own=True))
    await asyncio.sleep(0)
    if has_reply:
        link.handle_reply(CallReply(1, encode(Admission())))
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    meter.end_request(2)
    assert channel.sent[1:] == [
        EndAdmission(1, "1.1.1", is_unsent=True),
        EndAdmission(2, "1.1.1", is_unsent=False),
    ]
