"""Changes that other processes ask a batch for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec.structs import replace

from mudroom._batches.control import BatchFolder
from mudroom._batches.status import BatchStatus

STATUS = BatchStatus(
    session="s",
    output="out.jsonl",
    total=1,
    done=0,
    running=1,
    reasons={},
    parallel=8,
    state="running",
    waits_for="",
    requests=0,
    tokens=0,
    usd=0.0,
    usd_limit=None,
    lines_per_second=0.0,
    requests_per_second=0.0,
    seconds_left=None,
    seconds=1.0,
    change=0,
)


def test_a_change_includes_an_earlier_one_that_the_batch_has_not_carried_out(
    tmp_path: Path,
) -> None:
    folder = BatchFolder(str(tmp_path), "s")
    folder.write_status(STATUS)
    folder.ask_for_change(parallel=200)
    change = folder.ask_for_change(is_paused=True)
    assert folder.read_change() == change
    assert (change.number, change.parallel, change.is_paused) == (2, 200, True)
    assert folder.ask_for_change(is_paused=False).parallel == 200


def test_a_change_that_was_carried_out_is_not_repeated(tmp_path: Path) -> None:
    folder = BatchFolder(str(tmp_path), "s")
    folder.write_status(replace(STATUS, change=folder.ask_for_change(parallel=200).number))
    change = folder.ask_for_change(is_paused=True)
    assert (change.parallel, change.is_paused) == (None, True)


def test_changes_asked_for_at_the_same_time_have_numbers_of_their_own(tmp_path: Path) -> None:
    folder = BatchFolder(str(tmp_path), "s")
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(folder.ask_for_change, parallel=count) for count in range(1, 41)]
    assert sorted(each.result().number for each in asked) == list(range(1, 41))
