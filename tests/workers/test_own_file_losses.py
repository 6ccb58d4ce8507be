"""Children that lose a machine which does not see the session's folder: which of them go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mudroom import AnyEvent, Reason, Report, Session, ToolCallBlock, UsageError
from mudroom._adapters.workers.process import ProcessConnection
from mudroom._adapters.workers.remote import tree_transfer
from mudroom._adapters.workers.remote.tree_transfer import FilesNotReadyError, TravellingFiles
from mudroom._adapters.workers.remote.worker import RemoteWorker
from mudroom._core.events import RunFinished, RunStarted, StoredEvent, ToolCallFinished
from mudroom._core.ports import WorkerConnection
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations

from ..waiting import wait_until
from ..workspaces.git_projects import write_files
from .far_place import (
    FarTransport,
    ListedTransport,
    Place,
    PlacedTransport,
    ScatteredTransport,
    StuckConnection,
    get_worker,
    hide_files,
    join_results,
    kill,
    kill_at_first_result,
    make_family,
)


async def read_and_change(place: Place, transport: type[FarTransport]) -> Report:
    """Return the report of a family whose child reads two files; the second one changes between."""

    def child(request: Request) -> Answer:
        if request.turn < 2:
            return call("read", path=("a.txt", "b.txt")[request.turn])
        return join_results(request)

    def change() -> None:
        write_files(place.project, {"b.txt": "later\n"})

    model = make_family("reader", child)
    return await kill_at_first_result(place, model, change, transport=transport)


def make_conflict(place: Place, *calls: ToolCallBlock) -> ScriptedModel:
    """Return a model whose child changes a file that the user changes, too.

    Arguments:
        calls: calls of the child when it gets its work back.
    """

    def child(request: Request) -> Answer:
        if not request.turn:
            write_files(place.project, {"a.txt": "by the user\n"})
            return call("bash", command="echo by the child > a.txt")
        number = request.turn - 2
        return calls[number] if 0 <= number < len(calls) else "done"

    return make_family("writer", child)


@pytest.mark.parametrize("transport", [FarTransport, ScatteredTransport])
async def test_a_reading_child_goes_on_with_its_snapshot_after_a_kill(
    place: Place, transport: type[FarTransport]
) -> None:
    report = await read_and_change(place, transport)
    assert report.reason is Reason.GOAL
    assert "two" in report.text and "later" not in report.text
    node = "node 2" if transport is ScatteredTransport else "node"
    assert len(list(place.folder.glob(f"{node}/nodes/*/*/snapshots/*/snapshot.json"))) == 1


async def test_an_isolated_child_goes_on_with_its_files_after_a_kill(place: Place) -> None:
    def child(request: Request) -> Answer:
        if request.turn < 2:
            return call("bash", command=f"echo {request.turn} >> log.txt")
        return "done"

    report = await kill_at_first_result(place, make_family("writer", child))
    assert report.reason is Reason.GOAL
    assert (place.project / "log.txt").read_text() == "0\n1\n"


async def test_a_child_goes_on_with_its_files_after_a_conflict_and_a_kill(place: Place) -> None:
    model = make_conflict(
        place,
        call("bash", command="echo both > a.txt"),
        call("bash", command="echo more >> a.txt"),
    )
    report = await kill_at_first_result(place, model, run="1.1.1~2")
    assert report.reason is Reason.GOAL
    assert (place.project / "a.txt").read_text() == "both\nmore\n"
    assert find_violations([event async for event in place.journal.read()]) == []


async def test_a_child_that_has_changed_nothing_starts_again_elsewhere(place: Place) -> None:
    def child(request: Request) -> Answer:
        if not request.turn:
            return call("read", path="a.txt")
        if request.turn == 1:
            return call("bash", command="cat b.txt >> a.txt")
        return "done"

    model = make_family("writer", child)
    report = await kill_at_first_result(place, model, transport=ScatteredTransport)
    assert report.reason is Reason.GOAL
    assert (place.project / "a.txt").read_text() == "changed\ntwo\n"


async def test_a_child_that_has_read_a_conflict_starts_again_elsewhere(place: Place) -> None:
    model = make_conflict(
        place,
        call("read", path="a.txt"),
        call("bash", command="grep -c '<<<<<<<' a.txt > seen.txt; echo both > a.txt"),
    )
    report = await kill_at_first_result(place, model, run="1.1.1~2", transport=ScatteredTransport)
    assert report.reason is Reason.GOAL
    assert (place.project / "a.txt").read_text() == "both\n"
    assert (place.project / "seen.txt").read_text() == "1\n"


@pytest.mark.parametrize("run", ["1.1.1", "1.1.1~2"])
async def test_a_child_whose_changes_are_elsewhere_is_lost(run: str, place: Place) -> None:
    def child(request: Request) -> Answer:
        if request.turn in (0, 2):
            write_files(place.project, {"log.txt": "by the user\n"})
            return call("bash", command=f"echo {request.turn} >> log.txt")
        return "done"

    model = make_family("writer", child)
    report = await kill_at_first_result(place, model, run=run, transport=ScatteredTransport)
    lost = (await place.find_reports())[run]
    assert lost.reason is Reason.LOST
    assert "changed files on another machine, and they are not here" in lost.error
    started = {each.run: each for each in await place.list_events(RunStarted)}[run]
    spec = started.brief.workspace
    assert f"it began on node 1 with the tree {spec.tree}" in lost.error
    assert lost.error in report.text
    assert (place.project / "log.txt").read_text() == "by the user\n"
    assert find_violations([event async for event in place.journal.read()]) == []


async def kill_second_child(
    place: Place,
    transport: type[ListedTransport],
    act: Callable[[Session], None],
) -> Report:
    """Run two children and kill the worker process of the second one after its first result.

    Arguments:
        act: called when the run waits for another worker process.
    """
    may_end = place.folder / "may-end"
    killed: list[str] = []

    def child(request: Request) -> Answer:
        if request.prompt == "CHILD 0":
            return "done"
        if not request.turn:
            wait = f"until [ -e {may_end} ]; do sleep 0.01; done"
            return call("bash", command=f"{wait}; echo > one")
        return "done" if request.turn > 1 else call("bash", command="mv one two")

    async with place.open(make_family("writer", child, 2), worker="process:2") as session:
        machines = ["node 1", "node 2", "node 2"]
        worker = hide_files(session, place.folder, partial(transport, machines=machines))

        def watch(event: AnyEvent) -> None:
            if isinstance(event, RunFinished) and event.run == "1.1.1":
                may_end.touch()
            if isinstance(event, ToolCallFinished) and event.run == "1.1.2" and not killed:
                killed.append(event.call_id)
                kill(worker._pool.processes[1])

        session.watch(watch)
        running = asyncio.create_task(session.run("PARENT"))
        await wait_until(lambda: bool(worker._pool._starts) or running.done())
        act(session)
        report = await running
    assert killed
    return report


async def test_a_child_goes_to_the_process_that_replaces_that_of_its_machine(place: Place) -> None:
    report = await kill_second_child(place, ListedTransport, lambda _: None)
    assert (place.project / "two").exists(), report.text


class StuckTransport(ListedTransport):
    def connect(self) -> ProcessConnection:
        connection = super().connect()
        return StuckConnection(self._command) if self._count > 2 else connection


async def test_a_child_that_has_changed_nothing_starts_no_processes_to_find_its_machine(
    place: Place,
) -> None:
    started: list[int] = []
    sessions: list[Session] = []

    def child(request: Request) -> Answer:
        started.append(len(get_worker(sessions[0]).pids))
        return "done" if request.turn else call("read", path="a.txt")

    report = await kill_at_first_result(
        place,
        make_family("writer", child),
        transport=ScatteredTransport,
        sessions=sessions,
        worker="process:3",
    )
    assert report.reason is Reason.GOAL
    assert set(started) == {1}


async def test_a_child_that_waits_for_its_machine_can_be_cancelled(place: Place) -> None:
    cancels: list[bool] = []
    await kill_second_child(
        place, StuckTransport, lambda session: cancels.append(session.runs.cancel("1.1.2"))
    )
    report = (await place.find_reports())["1.1.2"]
    assert cancels == [True]
    assert report.reason is Reason.CANCELLED and report.unknown_changes
    assert find_violations([event async for event in place.journal.read()]) == []


async def test_a_child_with_work_of_its_own_children_elsewhere_is_lost(place: Place) -> None:
    def child(request: Request) -> Answer:
        if request.prompt == "GRANDCHILD":
            return "done" if request.turn else call("write", path="deep.txt", content="deep\n")
        if not request.turn:
            return call("task", agent="writer", prompt="GRANDCHILD")
        return "done"

    model = make_family("lead", child)
    report = await kill_at_first_result(place, model, transport=ScatteredTransport)
    reports = await place.find_reports()
    assert {run: each.reason for run, each in reports.items()} == {
        "1": Reason.GOAL,
        "1.1.1": Reason.LOST,
        "1.1.1.1.1": Reason.GOAL,
    }
    assert "they are not here" in report.text
    assert not (place.project / "deep.txt").exists()
    assert find_violations([event async for event in place.journal.read()]) == []


async def test_a_process_that_is_killed_while_it_sends_work_sends_it_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = tree_transfer._add_piece
    workers: list[RemoteWorker] = []
    sent: list[int] = []

    def kill_first(path: Path, offset: int, data: bytes, max_bytes: int) -> None:
        sent.append(len(data))
        if len(sent) == 2:
            kill(workers[0]._pool.processes[0])
        add(path, offset, data, max_bytes)

    monkeypatch.setattr(tree_transfer, "_add_piece", kill_first)

    def child(request: Request) -> Answer:
        if not request.turn:
            return call("bash", command="head -c 600000 /dev/urandom > big.bin; echo x >> log.txt")
        return "done"

    async with place.open(make_family("writer", child)) as session:
        workers.append(hide_files(session, place.folder))
        report = await session.run("PARENT")
    assert report.reason is Reason.GOAL
    assert max(sent) <= tree_transfer.PIECE_BYTES and len(sent) >= 5
    assert (place.project / "big.bin").stat().st_size == 600_000
    assert (place.project / "log.txt").read_text() == "x\n"
    assert find_violations([event async for event in place.journal.read()]) == []


class CancellingJournal(MemoryJournal):
    session: Session
    cancels: tuple[bool, ...] = ()

    async def append(self, *events: StoredEvent) -> int:
        if any(isinstance(event, RunFinished) and event.run == "1.1.1" for event in events):
            self.cancels += (self.session.runs.cancel("1.1.1"),)
            await asyncio.sleep(0)
        return await super().append(*events)


async def test_a_cancel_does_not_stop_the_record_of_an_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise FilesNotReadyError("no files")

    def child(request: Request) -> Answer:
        return call("read", path=("a.txt", "b.txt")[request.turn % 2])

    place.journal = journal = CancellingJournal()

    def change() -> None:
        journal.session = sessions[0]
        monkeypatch.setattr(TravellingFiles, "prepare", refuse)

    sessions: list[Session] = []
    report = await kill_at_first_result(
        place, make_family("reader", child), change, sessions=sessions
    )
    assert journal.cancels == (False,)
    assert (await place.find_reports())["1.1.1"].reason is Reason.ERROR
    assert "ERROR" in report.text and "CANCELLED" not in report.text


async def lose_process(
    place: Place,
    transport: PlacedTransport,
    gone: tuple[str, ...] = (),
    astray: tuple[str, ...] = (),
) -> Report:
    """Return the report of a family whose child loses its worker process between two changes.

    Arguments:
        gone: machines that are lost with the process. astray: see PlacedTransport.
    """

    def lose_machines() -> None:
        transport.gone = gone
        transport.astray = astray

    def child(request: Request) -> Answer:
        if request.turn < 2:
            return call("bash", command=f"echo {request.turn} >> log.txt")
        return "done"

    model = make_family("writer", child)
    return await kill_at_first_result(place, model, lose_machines, transport=lambda _: transport)


async def test_a_child_goes_on_in_a_new_process_on_the_machine_that_has_its_files(
    place: Place,
) -> None:
    transport = PlacedTransport(place.folder)
    report = await lose_process(place, transport)
    assert report.reason is Reason.GOAL
    assert (place.project / "log.txt").read_text() == "0\n1\n"
    assert transport.started == ["node 1", "node 1"]


@pytest.mark.parametrize("kind", ["gone", "astray"])
async def test_a_child_is_lost_if_no_process_starts_where_its_files_are(
    place: Place, kind: str
) -> None:
    transport = PlacedTransport(place.folder)
    report = await lose_process(place, transport, **{kind: ("node 1",)})
    assert "it began on node 1" in report.text
    assert transport.started[:2] == ["node 1", "node 2"]
    assert not (place.project / "log.txt").exists()


async def test_a_process_that_starts_on_another_machine_is_not_kept(place: Place) -> None:
    transport = PlacedTransport(place.folder)
    async with place.open(make_family("writer", lambda _: "done")) as session:
        pool = hide_files(session, place.folder, lambda _: transport)._pool
        await pool.open()
        transport.astray = ("node 3",)
        for _ in range(3):
            process = await pool.choose(machine="node 3")
            assert process is pool.processes[0]
        assert len(pool.processes) == 1
        assert transport.started == ["node 1", "node 2", "node 2", "node 2"]


async def test_a_process_of_this_machine_starts_on_no_other_one() -> None:
    connection: WorkerConnection = ProcessConnection((sys.executable, "-c", ""))
    connection.place_on("node 1")
    with pytest.raises(UsageError, match="worker processes of this session are on"):
        await connection.open()
    assert connection.pid is None
