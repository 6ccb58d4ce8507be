"""Worker processes whose machine can be chosen: a lost one is replaced where its files are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mudroom import Reason, Report, UsageError
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._adapters.workers.process import ProcessConnection
from mudroom._core.ports import WorkerConnection

from .far_place import Place, PlacedTransport, hide_files, kill_at_first_result, make_family


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


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


async def test_a_child_is_lost_if_no_process_can_start_where_its_files_are(place: Place) -> None:
    transport = PlacedTransport(place.folder)
    report = await lose_process(place, transport, ("node 1",))
    assert "it began on node 1" in report.text
    assert transport.started == ["node 1", "node 2"]
    assert not (place.project / "log.txt").exists()


async def test_a_child_is_lost_if_the_process_for_it_starts_on_another_machine(
    place: Place,
) -> None:
    transport = PlacedTransport(place.folder)
    report = await lose_process(place, transport, astray=("node 1",))
    assert "it began on node 1" in report.text
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
