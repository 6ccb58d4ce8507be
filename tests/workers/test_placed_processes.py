"""Worker processes whose machine can be chosen: a lost one is replaced where its files are."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import Reason, Report
from mudroom.models.scripted import Answer, Request, call

from .far_place import Place, PlacedTransport, kill_at_first_result, make_family


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def lose_process(
    place: Place, transport: PlacedTransport, gone: tuple[str, ...] = ()
) -> Report:
    """Return the report of a family whose child loses its worker process between two changes.

    Arguments:
        gone: machines that are lost with the process.
    """

    def lose_machines() -> None:
        transport.gone = gone

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
