"""RemoteWorker: children in other processes on this machine, and processes that are lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.workers.far_place import get_worker

from mudroom import (
    AnyEvent,
    Budget,
    Integrations,
    Reason,
    Session,
    TextBlock,
    ToolCallBlock,
    UsageError,
)
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import (
    Answer,
    Request,
    ScriptedConversation,
    ScriptedModel,
    call,
)
from mudroom._adapters.workers.process import ProcessConnection, ProcessTransport
from mudroom._adapters.workers.remote.worker import MAX_STARTS, RemoteWorker
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.events import (
    Delta,
    MessageSent,
    RunFinished,
    StoredEvent,
    ToolCallFinished,
    TurnFinished,
)
from mudroom._core.messages import NO_USAGE, Message
from mudroom._core.ports import Hooks, RequestConfig, ToolHookDecision, WorkerConnection
from mudroom._core.runs import Brief
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from ..waiting import is_alive, wait_until
from ..worker_kinds import open_session


def make_family(child: Callable[[Request], Answer], tasks: int = 1) -> ScriptedModel:
    def answer(request: Request) -> Answer:
        if request.prompt != "PARENT":
            return child(request)
        if not request.turn:
            return [call("task", prompt=f"CHILD {number}") for number in range(tasks)]
        return " | ".join(result.text.splitlines()[0] for result in request.results)

    return ScriptedModel(answer)


async def test_a_child_runs_in_another_process_and_its_report_comes_back(tmp_path: Path) -> None:
    model = make_family(
        lambda request: (
            request.results[0].text if request.turn else call("bash", command="echo $PPID")
        )
    )
    async with open_session(tmp_path, model) as session:
        report = await session.run("PARENT")
        (pid,) = get_worker(session).pids
        assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert report.reason is Reason.GOAL
    assert str(pid) in report.text
    assert report.usage.total_tokens > 0


async def test_changes_by_commands_in_another_process_are_in_the_report(tmp_path: Path) -> None:
    model = make_family(
        lambda request: "done" if request.turn else call("bash", command="echo > made.txt")
    )
    async with open_session(tmp_path, model) as session:
        report = await session.run("PARENT")
    assert report.observed_changes == report.files_changed == ("made.txt",)


async def test_a_watcher_that_comes_later_gets_the_streamed_text_of_children(
    tmp_path: Path,
) -> None:
    seen: list[AnyEvent] = []
    async with open_session(tmp_path, make_family(lambda _: "done")) as session:
        await session.task("CHILD 0")
        stop_watching = session.watch(seen.append)
        watched = await session.task("CHILD 1")
        stop_watching()
        await session.task("CHILD 2")
    assert {event.run for event in seen} == {watched.run_id}
    assert any(isinstance(event, Delta) for event in seen)


async def test_a_killed_worker_process_costs_no_step_and_repeats_no_effect(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def child(request: Request) -> Answer:
        if request.turn < 3:
            return call("bash", command=f"echo {request.turn} >> {log}")
        return log.read_text().replace("\n", " ")

    model = make_family(child)
    async with open_session(tmp_path, model) as session:
        has_killed = False

        def kill_once(event: AnyEvent) -> None:
            nonlocal has_killed
            is_second = isinstance(event, ToolCallFinished) and event.run == "1.1.1"
            if is_second and event.turn == 2 and not has_killed:
                has_killed = True
                os.kill(get_worker(session).pids[0], signal.SIGKILL)

        session.watch(kill_once)
        report = await session.run("PARENT")
    assert has_killed and report.reason is Reason.GOAL
    assert report.text.split() == ["0", "1", "2"]
    turns = [request.turn for request in model.requests if request.prompt != "PARENT"]
    assert turns in ([0, 1, 2, 3], [0, 1, 2, 2, 3])


def count_messages(request: Request) -> Answer:
    """Run three commands, then say how often the message was read."""
    if request.turn < 3:
        return call("bash", command=f"echo {request.turn}")
    texts = [
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    return f"read {sum('look at b.txt' in text for text in texts)} time"


async def test_what_a_lost_process_has_sent_is_stored_before_its_run_starts_again(
    tmp_path: Path,
) -> None:
    class SlowJournal(MemoryJournal):
        async def append(self, *events: StoredEvent) -> int:
            if any(isinstance(event, RunFinished) and event.run == "1.1.1" for event in events):
                os.kill(get_worker(session).pids[0], signal.SIGKILL)
                await asyncio.sleep(0.5)
            return await super().append(*events)

    journal = SlowJournal()
    model = make_family(lambda _: "done")
    async with open_session(tmp_path, model, journal=journal) as session:
        report = await session.run("PARENT")
        events = [event async for event in journal.read()]
    assert report.text == "done"
    ends = [event for event in events if isinstance(event, RunFinished) and event.run == "1.1.1"]
    assert len(ends) == 1


async def test_a_durable_message_to_a_worker_process_is_in_the_journal(tmp_path: Path) -> None:
    model = make_family(count_messages)
    stored: list[bool] = []
    tasks: list[asyncio.Task[None]] = []
    journal = MemoryJournal()
    async with open_session(tmp_path, model, journal=journal) as session:

        async def send() -> None:
            assert await session.runs.send_durably("1.1.1", "look at b.txt")
            events = [event async for event in journal.read()]
            stored.append(any(isinstance(event, MessageSent) for event in events))

        def start(event: AnyEvent) -> None:
            if isinstance(event, ToolCallFinished) and event.run == "1.1.1" and not tasks:
                tasks.append(asyncio.create_task(send()))

        session.watch(start)
        await session.run("PARENT")
        await asyncio.gather(*tasks)
        assert await session.runs.send_durably("1.1.1", "too late") is False
    assert stored == [True]


async def test_a_message_survives_the_death_of_its_worker_process(tmp_path: Path) -> None:
    model = make_family(count_messages)
    async with open_session(tmp_path, model) as session:
        has_sent = False

        def send_and_kill(event: AnyEvent) -> None:
            nonlocal has_sent
            if isinstance(event, ToolCallFinished) and event.run == "1.1.1" and not has_sent:
                has_sent = session.runs.send("1.1.1", "look at b.txt")
                os.kill(get_worker(session).pids[0], signal.SIGKILL)

        session.watch(send_and_kill)
        report = await session.run("PARENT")
    assert has_sent and report.text == "read 1 time"


async def test_hooks_of_the_session_decide_in_worker_processes(tmp_path: Path) -> None:
    class NoWrites(Hooks):
        async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
            if brief.parent and call.name == "write":
                return ToolHookDecision(denial="Do not write.")
            return None

    model = make_family(
        lambda request: (
            request.results[0].text
            if request.turn
            else call("write", file_path="a.txt", content="x")
        )
    )
    async with open_session(
        tmp_path, model, integrations=Integrations(hooks=NoWrites())
    ) as session:
        report = await session.run("PARENT")
    assert "Do not write." in report.text and not (tmp_path / "a.txt").exists()


def test_a_worker_process_collects_garbage_less_often_than_python() -> None:
    program = (
        "import asyncio, gc\n"
        "from mudroom._session.worker_setup.process_services import serve\n"
        "from mudroom.ports import Arrivals\n"
        "before, link = gc.get_threshold(), Arrivals()\n"
        "link.send = print\n"
        "link.end()\n"
        "asyncio.run(serve(link))\n"
        "print(*before, *gc.get_threshold())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    before, _, _, young, _, _ = map(int, ended.stdout.split())
    assert young > 10 * before


async def test_objects_of_the_caller_that_cannot_cross_are_refused(tmp_path: Path) -> None:
    workspace = SharedWorkspace(str(tmp_path))
    with pytest.raises(UsageError, match="worker processes cannot use"):
        async with open_session(tmp_path, ScriptedModel([]), cwd=workspace):
            pass


@pytest.mark.parametrize(
    "worker",
    ["cluster", "process:x", "local:2", "process:0", "process:65", "process:100000"],
)
async def test_an_unknown_worker_is_refused(tmp_path: Path, worker: str) -> None:
    with pytest.raises(UsageError, match=r"unknown worker.*N from 1 to 64"):
        async with open_session(tmp_path, ScriptedModel([]), worker=worker):
            pass


async def test_named_children_in_other_processes_write_to_each_other(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            if request.turn == 0:
                return [
                    call("task", prompt="ANN", name="ann"),
                    call("task", prompt="BEN", name="ben", background=True),
                ]
            return "I wait."
        if request.prompt == "BEN" and request.turn == 0:
            return [call("send_message", to="ann", message="are you there?")]
        return f"{request.prompt} read {str(request.messages[-1]).count('are you there?')}"

    async with open_session(tmp_path, ScriptedModel(answer), worker="process:2") as session:
        report = await session.run("PARENT")
        (ann, ben) = sorted(
            session.runs.teammates, key=lambda mate: mate.name
        )  # either may be first
        journal = session._require_open().resources.journal
        events = [event async for event in journal.read()]
    assert report.ok and report.unread_messages == {}
    assert (ann.state, ben.state, len(ben.briefs)) == ("idle", "idle", 1)
    texts = [event.report.text for event in events if isinstance(event, RunFinished)]
    assert "ANN read 1" in texts and "BEN read 0" in texts
    assert not find_violations(events)
    assert await replay(events) == events


class BlockedConnection(ProcessConnection):
    def __init__(self) -> None:
        super().__init__(())
        self.is_opening = False
        self.is_closed = False

    async def open(self) -> None:
        self.is_opening = True
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        self.is_closed = True


class BlockedTransport(ProcessTransport):
    def __init__(self) -> None:
        super().__init__(())
        self.connections: list[BlockedConnection] = []

    def connect(self) -> BlockedConnection:
        self.connections.append(BlockedConnection())
        return self.connections[-1]


def block_starts(session: Session) -> tuple[RemoteWorker, BlockedTransport]:
    worker = get_worker(session)
    worker._transport = transport = BlockedTransport()
    worker._pool.processes = [worker._make_process(1)]
    return worker, transport


async def test_a_child_that_waits_for_a_worker_process_is_cancelled_at_once(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        return request.results[0].text if request.turn else call("task", prompt="CHILD")

    async with open_session(tmp_path, ScriptedModel(answer)) as session:
        _, transport = block_starts(session)
        running = asyncio.create_task(session.run("PARENT"))
        await wait_until(lambda: transport.connections[0].is_opening)
        assert session.runs.cancel("1.1.1")
        report = await asyncio.wait_for(running, 60)
        assert not transport.connections[0].is_closed
    assert "CANCELLED" in report.text and report.reason is Reason.GOAL


async def test_a_lost_run_is_charged_with_its_children(tmp_path: Path) -> None:
    """The limit counts the child and the one below it, so no third one may start."""

    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            results.extend(result.text for result in request.results)
            return "done" if request.turn == 2 else call("task", prompt="CHILD")
        if request.prompt == "BELOW":
            return "done"
        if request.prompt == "CHILD" and request.turn:
            os.kill(get_worker(session).pids[-1], signal.SIGKILL)
            await asyncio.sleep(60)
        return call("task", prompt="BELOW")

    results: list[str] = []
    budget = Budget(depth=2, children=2)
    session = open_session(tmp_path, ScriptedModel(answer), prompt_budget=budget)
    async with session:
        await session.run("PARENT")
    assert "LOST" in results[0]
    assert "the budget of 2 children is used up" in results[1]


async def test_a_lost_run_says_why_its_last_process_ended_and_keeps_its_usage(
    tmp_path: Path,
) -> None:
    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return request.results[0].text if request.turn else call("task", prompt="CHILD")
        if not request.turn:
            return call("bash", command="true")
        kills.append(request.turn)
        connection = get_worker(session)._pool.processes[-1]._connection
        connection.kill(f"kill {len(kills)} of the test")
        await asyncio.sleep(60)
        return "never"

    kills: list[int] = []
    journal = MemoryJournal()
    session = open_session(tmp_path, ScriptedModel(answer), journal=journal)
    async with session:
        report = await session.run("PARENT")
    lost = next(event.report for event in journal.events if isinstance(event, RunFinished))
    cause = f"the last one: kill {MAX_STARTS} of the test"
    assert lost.reason is Reason.LOST
    assert lost.error == f"could not be executed in {MAX_STARTS} worker processes; {cause}"
    assert lost.error in report.text
    assert lost.turns == 1 and lost.usage.total_tokens > 0


async def test_a_cancel_reaches_a_run_that_has_lost_its_process(tmp_path: Path) -> None:
    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return request.results[0].text if request.turn else call("task", prompt="CHILD")
        starts.append(request.turn)
        os.kill(get_worker(session).pids[-1], signal.SIGKILL)
        session.runs.cancel("1.1.1")
        await asyncio.sleep(60)
        return "never"

    starts: list[int] = []
    journal = MemoryJournal()
    session = open_session(tmp_path, ScriptedModel(answer), journal=journal)
    async with session:
        report = await session.run("PARENT")
    assert "CANCELLED" in report.text
    assert len(starts) == 1
    assert find_violations(journal.events) == []


class EndingJournal(MemoryJournal):
    """Journal that ends a worker process when it has the end of a child."""

    session: Session

    async def append(self, *events: StoredEvent) -> int:
        position = await super().append(*events)
        if any(isinstance(event, RunFinished) and event.run == "1.1.1" for event in events):
            with suppress(ProcessLookupError):
                os.kill(get_worker(self.session).pids[-1], signal.SIGKILL)
        return position


async def test_a_run_that_had_ended_when_its_last_process_was_lost_has_one_end(
    tmp_path: Path,
) -> None:
    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return request.results[0].text if request.turn else call("task", prompt="CHILD")
        starts.append(request.turn)
        if len(starts) < MAX_STARTS:
            os.kill(get_worker(session).pids[-1], signal.SIGKILL)
            await asyncio.sleep(60)
        return "The child is done."

    starts: list[int] = []
    journal = EndingJournal()
    session = open_session(tmp_path, ScriptedModel(answer), journal=journal)
    journal.session = session
    async with session:
        report = await session.run("PARENT")
        meter = session._require_open().meter
        spent = meter.usage + meter.descendant_usage
    answers = [event.message for event in journal.events if isinstance(event, TurnFinished)]
    assert report.text.startswith("The child is done.")
    assert len(starts) == MAX_STARTS
    assert spent == sum((answer.usage for answer in answers), NO_USAGE)
    assert find_violations(journal.events) == []


async def test_a_lost_run_ends_its_calls_and_the_runs_below_it(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return request.results[0].text if request.turn else call("task", prompt="CHILD")
        if request.prompt == "CHILD":
            return call("task", prompt="BELOW")
        return call("bash", command=f"echo {request.turn} >> log; kill -9 $PPID")

    journal = MemoryJournal()
    model = ScriptedModel(answer)
    async with open_session(
        tmp_path, model, journal=journal, prompt_budget=Budget(depth=2)
    ) as session:
        report = await session.run("PARENT")
    ends = [event for event in journal.events if isinstance(event, RunFinished)]
    assert "its worker was lost" in report.text
    assert report.unknown_changes == "the worker processes of a child ended"
    assert ends[1].report.error == f"could not be executed in {MAX_STARTS} worker processes"
    assert [(end.run, str(end.report.reason)) for end in ends] == [
        ("1.1.1.1.1", "LOST"),
        ("1.1.1", "LOST"),
        ("1", "GOAL"),
    ]
    assert find_violations(journal.events) == []
    # The result of the call and the end of the run, of both runs: recorded at one time.
    below = [event for event in journal.events if event.run.startswith("1.1.1")]
    assert len({event.at for event in below[-4:]}) == 1


async def test_a_cancelled_start_of_all_worker_processes_ends_them(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel([])) as session:
        worker, transport = block_starts(session)
        opening = asyncio.create_task(worker.open())
        await wait_until(lambda: transport.connections[0].is_opening)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert transport.connections[0].is_closed


async def test_runs_do_not_wait_for_a_lost_process_that_does_not_end() -> None:
    program = "import os, sys, time; os.close(int(sys.argv[1])); time.sleep(600)"
    connection: WorkerConnection = ProcessConnection((sys.executable, "-c", program))
    await connection.open()
    assert await connection.receive() == b""
    await asyncio.wait_for(connection.wait_until_stopped(), 60)


async def test_a_process_that_was_lost_and_replaced_ends_before_its_session(
    tmp_path: Path,
) -> None:
    async with open_session(tmp_path, ScriptedModel(lambda _: "done")) as session:
        await session.task("first")
        worker = get_worker(session)
        (lost,) = worker._pool.processes
        assert lost.pid
        os.kill(lost.pid, signal.SIGSTOP)  # it ends when it is killed
        connection = lost._connection
        assert isinstance(connection, ProcessConnection) and connection._link
        connection._link.data_received(b"\x00\x00\x00\x01\xc1")  # no message
        await wait_until(lambda: lost.is_lost)
        await session.task("second")
        assert worker.pids != (lost.pid,)
    assert not is_alive(lost.pid)


def answer(request: Request) -> Answer:
    if request.prompt == "PARENT":
        return request.results[0].text if request.turn else call("task", prompt="CHILD")
    return "child done" if request.turn else call("bash", command="echo 1 >> log")


class PickyModel(ScriptedModel):
    starts = 0

    def start_conversation(self, config: RequestConfig) -> ScriptedConversation:
        self.starts += 1
        if self.starts > 1:
            raise ValueError("this model has no temperature")
        return super().start_conversation(config)


class PickyConversation(ScriptedConversation):
    def append(self, message: Message) -> None:
        raise ValueError("this model takes no images")


class DeafModel(PickyModel):
    def start_conversation(self, config: RequestConfig) -> ScriptedConversation:
        self.starts += 1
        return (
            PickyConversation(self, config)
            if self.starts > 1
            else ScriptedConversation(self, config)
        )


@pytest.mark.parametrize("worker", ["local", "process:1"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [(PickyModel, "this model has no temperature"), (DeafModel, "this model takes no images")],
)
@pytest.mark.timeout(60)
async def test_the_parent_reads_the_error_of_a_model_that_refuses_a_conversation(
    kind: type[PickyModel], text: str, worker: str, tmp_path: Path
) -> None:
    async with open_session(tmp_path, kind(answer), worker) as session:
        report = await session.run("PARENT")
    assert report.reason is Reason.GOAL
    assert f"ValueError: {text}" in report.text


@pytest.mark.timeout(60)
async def test_a_run_goes_on_elsewhere_when_its_process_sends_what_is_no_message(
    tmp_path: Path,
) -> None:
    async with open_session(tmp_path, ScriptedModel(answer)) as session:
        worker = get_worker(session)
        broken: list[int | None] = []

        def watch(event: AnyEvent) -> None:
            if isinstance(event, ToolCallFinished) and event.run == "1.1.1":
                process = worker._pool.processes[0]
                broken.append(process.pid)
                connection = process._connection
                assert isinstance(connection, ProcessConnection) and connection._link
                connection._link.data_received(b"\x00\x00\x00\x01\xc1")

        session.watch(watch)
        report = await session.run("PARENT")
        assert worker.pids != tuple(broken)
    assert report.text.startswith("child done")
    assert len(broken) == 1
    assert (tmp_path / "log").read_text() == "1\n"


def answer_as_family(request: Request) -> Answer:
    if request.prompt == "PARENT":
        tasks = [call("task", prompt=f"CHILD {n}") for n in range(3)]
        return tasks if request.turn == 0 else "All are done."
    return "the same report"


async def test_children_in_worker_processes_share_one_replayed_record(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    async with Session(
        model=ScriptedModel(answer_as_family), cwd=str(tmp_path), home=home, sandbox="off"
    ) as session:
        assert (await session.run("PARENT")).ok
    async with Session(
        model=f"replay:{session.id}",
        cwd=str(tmp_path),
        home=home,
        sandbox="off",
        worker="process:2",
    ) as replayed:
        report = await replayed.run("PARENT")
    assert (report.text, report.error) == ("All are done.", "")
