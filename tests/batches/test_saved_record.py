"""A restart with a saved record reads only the later events, and does the same as without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from mudroom import Reason
from mudroom._adapters.journals.sessions import open_store
from mudroom._batches.control import BatchFolder
from mudroom._batches.input_file import InputFile
from mudroom._batches.results import ResultFormat
from mudroom._batches.saved_record import Continued, SavedRecord
from mudroom._cli.actions.batch.run import save_until
from mudroom._cli.main import run

from .conftest import BatchStage

MANY = 1_000_000
"""Ended lines after which a record is always saved."""


def find_saved(stage: BatchStage) -> SavedRecord:
    """Return the saved record of the only batch."""
    home = str(stage.folder.parent / "home")
    store = open_store(home)
    (info,) = asyncio.run(store.list())
    return SavedRecord(BatchFolder(home, info.id).path, store, info.id)


def save(stage: BatchStage) -> None:
    asyncio.run(find_saved(stage).save_if_due(MANY))


def read(
    stage: BatchStage, again: tuple[Reason, ...] = (), kind: ResultFormat = "native"
) -> Continued | None:
    """Return what the next process would read of the saved record."""
    wanted = InputFile(stage.folder / "in.jsonl").check(with_keys=True).keys
    return asyncio.run(find_saved(stage).read(wanted, again, get_output(stage), kind))


def get_output(stage: BatchStage) -> Path:
    return stage.folder / "in.results.jsonl"


LINES = [{"id": "a", "prompt": "hi"}, {"id": "b", "prompt": "what?"}, {"id": "c", "prompt": "hi"}]
RESULTS = {"a": "GOAL", "b": "ERROR", "c": "GOAL"}


@pytest.fixture
def saved(stage: BatchStage) -> BatchStage:
    """A batch that has ended, with a saved record."""
    stage.write(*LINES)
    assert stage.run() == 1
    save(stage)
    return stage


def test_the_command_saves_a_record_and_the_next_start_uses_it(
    stage: BatchStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom._batches.saved_record._MIN_LINES", 3)
    stage.write(*LINES[:2])
    assert stage.run() == 1
    assert not list((stage.folder.parent / "home" / "batches").glob("*/record"))
    stage.write(*LINES)
    assert stage.run() == 1
    assert list((stage.folder.parent / "home" / "batches").glob("*/record"))
    continued = read(stage)
    assert continued
    assert continued.saved == 3
    # The function that reads the whole journal is missing in the next start.
    monkeypatch.delattr("mudroom._cli.actions.batch.run.read_record")
    assert stage.run() == 1
    assert "3 of 3 done" in stage.err


async def test_a_stop_waits_for_the_end_of_a_save() -> None:
    begins, may_end, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def save() -> None:
        begins.set()
        await may_end.wait()

    saving = asyncio.create_task(save_until(stopped, save, seconds=0.0))
    await begins.wait()
    stopped.set()
    done, _ = await asyncio.wait((saving,), timeout=0.01)
    assert not done
    may_end.set()
    await saving


def test_a_restart_without_work_leaves_the_output_as_it_is(saved: BatchStage) -> None:
    continued = read(saved)
    assert continued
    assert (continued.saved, len(continued.record.finished), continued.missing) == (3, 3, [])
    assert not continued.record.open_runs
    before = get_output(saved).stat()
    assert saved.run() == 1
    assert "3 of 3 done" in saved.err
    after = get_output(saved).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_new_lines_run_after_the_saved_ones(saved: BatchStage) -> None:
    saved.write({"id": "new", "prompt": "hi"}, *LINES)
    assert read(saved)
    assert saved.run() == 1
    assert saved.read_reasons() == {"new": "GOAL", **RESULTS}
    continued = read(saved)
    assert continued
    assert (continued.saved, len(continued.record.finished)) == (3, 4)
    save(saved)
    continued = read(saved)
    assert continued
    assert continued.saved == 4


@pytest.mark.parametrize("size", [0, -1, -40])
def test_results_that_the_output_lacks_are_written(saved: BatchStage, size: int) -> None:
    """The output has lost its end, as when the process was killed before it wrote a line."""
    saved.write({"id": "new", "prompt": "hi"}, *LINES)
    assert saved.run() == 1
    whole = get_output(saved).read_bytes()
    start = whole.index(b'{"custom_id":"new"')
    end = len(whole) + size if size else start
    get_output(saved).write_bytes(whole[:end])
    continued = read(saved)
    assert continued
    assert continued.missing == [whole[start:]]
    assert saved.run() == 1
    assert get_output(saved).read_bytes() == whole


def damage_json(text: bytes) -> bytes:
    return text.replace(b'"reason"', b'"reason', 1)


def remove_first(text: bytes) -> bytes:
    return text.partition(b"\n")[2]


def repeat_first(text: bytes) -> bytes:
    return text + text.partition(b"\n")[0] + b"\n"


def add_other(text: bytes) -> bytes:
    return text + b'{"custom_id":"x","run":"77"}\n'


def remove_all(text: bytes) -> bytes:
    return b""


def remove_run(text: bytes) -> bytes:
    return text.replace(b'"run":"1"', b'"run":""')


@pytest.mark.parametrize(
    "change", [damage_json, remove_first, repeat_first, add_other, remove_run, remove_all]
)
def test_a_damaged_output_is_written_again(
    saved: BatchStage, change: Callable[[bytes], bytes]
) -> None:
    whole = get_output(saved).read_bytes()
    get_output(saved).write_bytes(change(whole))
    assert read(saved) is None
    assert saved.run() == 1
    assert get_output(saved).read_bytes() == whole


def test_a_record_that_does_not_fit_is_not_used(saved: BatchStage) -> None:
    assert read(saved, again=(Reason.TIMEOUT,))
    assert read(saved, again=(Reason.ERROR,)) is None
    assert read(saved, kind="openai") is None
    saved.write(*LINES[:2])
    assert read(saved) is None, "a result is left out"
    assert saved.run() == 1
    assert saved.read_reasons() == {"a": "GOAL", "b": "ERROR"}


def test_the_format_of_openai_is_continued(stage: BatchStage) -> None:
    stage.write(*LINES)
    assert stage.run("--format", "openai") == 1
    save(stage)
    assert read(stage) is None
    assert read(stage, kind="openai")


def test_a_line_with_several_results_is_read_from_the_whole_journal(saved: BatchStage) -> None:
    assert saved.run("--retry", "ERROR") == 1
    assert read(saved) is None
    save(saved)
    assert read(saved) is None
    assert saved.run() == 1
    assert saved.read()[-1]["run"] == "4", "the last result counts"


def lengthen(data: bytes) -> bytes:
    body = data[4:] + bytes(8)
    return crc32(body).to_bytes(4, "big") + body


def name_other_version(data: bytes) -> bytes:
    body = data[4:].replace(b'"version":2', b'"version":1', 1)
    return crc32(body).to_bytes(4, "big") + body


def cut(data: bytes) -> bytes:
    return data[:-1]


@pytest.mark.parametrize("damage", [remove_all, cut, lengthen, name_other_version])
def test_a_damaged_record_is_not_used(saved: BatchStage, damage: Callable[[bytes], bytes]) -> None:
    (path,) = (saved.folder.parent / "home" / "batches").glob("*/record")
    path.write_bytes(damage(path.read_bytes()))
    assert read(saved) is None
    assert saved.run() == 1
    assert saved.read_reasons() == RESULTS
    save(saved)
    assert read(saved)


def test_a_record_of_another_journal_is_not_used(saved: BatchStage) -> None:
    (record,) = (saved.folder.parent / "home" / "batches").glob("*/record")
    data = record.read_bytes()
    assert run(["delete", "--yes", record.parent.name]) == 0
    assert not record.parent.exists(), "the files of the batch are deleted with its session"
    get_output(saved).unlink()
    assert saved.run() == 1
    (status,) = (saved.folder.parent / "home" / "batches").glob("*/status.json")
    status.with_name("record").write_bytes(data)
    assert read(saved) is None


def test_costs_and_numbers_of_earlier_processes_stay(saved: BatchStage) -> None:
    """The session continues with the amounts of the saved record."""
    (path,) = (saved.folder.parent / "home" / "batches").glob("*/status.json")
    tokens = json.loads(path.read_bytes())["tokens"]
    assert saved.run() == 1
    assert json.loads(path.read_bytes())["tokens"] == tokens > 0
    saved.write(*LINES, {"id": "d", "prompt": "hi"})
    assert saved.run() == 1
    assert saved.read()[-1]["run"] == "4", "numbers of runs are not used again"


def test_a_record_that_another_process_has_continued_is_not_used(saved: BatchStage) -> None:
    continued = read(saved)
    assert continued
    whole = get_output(saved).read_bytes()
    results = continued.open_results(get_output(saved))
    assert results
    results.close()
    assert get_output(saved).read_bytes() == whole
    continued.events.count += 1  # the session has read one more event when it opened
    assert continued.open_results(get_output(saved)) is None
