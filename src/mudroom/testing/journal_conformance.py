"""Conformance suite for journals. An adapter's tests run each of `CHECKS` against it:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_journal(check, tmp_path):
        await check(lambda: open_my_journal(tmp_path))

Each check opens a new, empty journal, and closes it. `count_appends_until_failure` is for tests
that make a journal fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Any, get_args

from msgspec import structs

from .._core.events import (
    Delta,
    NoteInjected,
    RunFinished,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from .._core.messages import AssistantMessage, ToolCallBlock
from .._core.ports import Journal
from .._core.tools import ToolResult
from ..errors import JournalError
from ._checks import collect_checks
from .sample_events import every_event

OpenJournal = Callable[[], Awaitable[Journal]]
Check = Callable[[OpenJournal], Awaitable[None]]

_PATIENCE = 10.0  # seconds that a follower may take to see an event


async def read_all(journal: Journal, after: int = 0) -> list[StoredEvent]:
    """Read all recorded events after a position."""
    return [event async for event in journal.read(after)]


async def check_every_type_is_read_as_appended(open_journal: OpenJournal) -> None:
    """Check that every stored event type keeps all its fields."""
    events = every_event()
    assert {type(event) for event in events} == set(get_args(StoredEvent))
    journal = await open_journal()
    for event in events:
        await journal.append(event)
    await journal.append(*events)
    assert await read_all(journal) == [*events, *events]
    await journal.close()


async def check_events_are_readable_when_append_returns(open_journal: OpenJournal) -> None:
    """Check that an event can be read as soon as its append has returned."""
    journal = await open_journal()
    assert await read_all(journal) == []
    for n in range(5):
        await journal.append(_note(n))
        assert await _read_times(journal) == list(range(n + 1))
    await journal.append()
    assert len(await read_all(journal)) == 5
    await journal.close()


async def check_positions_count_from_one(open_journal: OpenJournal) -> None:
    """Check that append returns the position of its last event, and a read starts after any."""
    journal = await open_journal()
    assert await journal.append() == 0
    assert await journal.append(_note(1)) == 1
    assert await journal.append(_note(2), _note(3)) == 3
    results = await asyncio.gather(*(journal.append(_note(n)) for n in range(4, 10)))
    assert results == list(range(4, 10))
    for after in (0, 1, 5, 9, 20):
        assert await _read_times(journal, after) == list(range(after + 1, 10))
    await journal.close()


async def check_types_filter_a_read(open_journal: OpenJournal) -> None:
    """Check that a read of some types gives only these, in order."""
    journal = await open_journal()
    await journal.append(*every_event(), *every_event())
    types = (NoteInjected, RunFinished)
    expected = [event for event in await read_all(journal, 2) if type(event) in types]
    assert [event async for event in journal.read(2, types=types)] == expected
    assert {type(event) for event in expected} == set(types)
    await journal.close()


async def check_order_of_calls_is_kept(open_journal: OpenJournal) -> None:
    """Check that appends by many tasks are stored in the order of the calls.

    The events of one append stay together.
    """
    journal = await open_journal()
    called: list[tuple[str, float]] = []

    async def produce(name: str) -> None:
        for n in range(10):
            events = [_note(10 * n + part, run=name) for part in range(3)]
            called.extend((event.run, event.at) for event in events)
            await journal.append(*events)

    async with asyncio.TaskGroup() as group:
        for producer in range(50):
            group.create_task(produce(str(producer)))
    events = await read_all(journal)
    assert [(event.run, event.at) for event in events] == called
    for _, together in groupby(events, key=lambda event: event.run):
        assert len(list(together)) % 3 == 0
    await journal.close()


async def check_reading_beside_a_writer_has_no_gaps(open_journal: OpenJournal) -> None:
    """Check that a read begun before an append gives the first events, without gaps."""
    journal = await open_journal()
    await journal.append(*(_note(n) for n in range(100)))
    reader = journal.read()
    times = [(await anext(reader)).at for _ in range(10)]
    await journal.append(*(_note(n) for n in range(100, 200)))
    times += [event.at async for event in reader]
    assert times == list(range(len(times)))
    assert len(times) >= 100
    assert await _read_times(journal) == list(range(200))
    await journal.close()


async def check_followers_see_each_new_event(open_journal: OpenJournal) -> None:
    """Check that followers get recorded and new events once, in order, until the end."""
    journal = await open_journal()
    await journal.append(*(_note(n) for n in range(1, 4)))
    seen: dict[int, list[float]] = {0: [], 2: []}
    changed = asyncio.Event()

    async def follow(after: int) -> None:
        async for event in journal.follow(after):
            seen[after].append(event.at)
            changed.set()

    async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as group:
        for after in seen:
            group.create_task(follow(after))
        for n in range(4, 40):
            await journal.append(_note(n))
            while any(times[-1:] != [n] for times in seen.values()):
                changed.clear()
                await changed.wait()
        await journal.append(_note(40))
        await journal.close()
    for after, times in seen.items():
        assert times == list(range(after + 1, 41))


async def check_any_text_is_kept(open_journal: OpenJournal) -> None:
    """Check that every character is kept, except lone surrogates, which become U+FFFD."""
    texts = {
        "": "",
        "\0\x01\x1f\x7f\x80\u2028\ufeff\uffff": "\0\x01\x1f\x7f\x80\u2028\ufeff\uffff",
        "中文 عربي 🦀 e\u0301": "中文 عربي 🦀 e\u0301",
        "\r\n\t\"\\' ${x} \x1b[31m": "\r\n\t\"\\' ${x} \x1b[31m",
        "cut \ud83d": "cut \ufffd",
        "\ude00\ud83d": "\ufffd\ufffd",
        "joined \ud83e\udd80": "joined 🦀",
    }
    journal = await open_journal()
    for text in texts:
        await journal.append(_note(1, text=text))
    stored = [event.text for event in await read_all(journal) if isinstance(event, NoteInjected)]
    assert stored == list(texts.values())
    await journal.close()


async def check_any_arguments_are_kept(open_journal: OpenJournal) -> None:
    """Check that unusual values in arguments and details are kept, or stored as their `repr`."""
    number = {"n": 2**70, "f": 1e-300}
    arguments: dict[str, Any] = {"\udc80": ["\ud800", number], "empty": {}, "none": None}
    stored_arguments: dict[str, Any] = {"\ufffd": ["\ufffd", number], "empty": {}, "none": None}
    result = ToolResult("\ud800", detail={"thing": Ellipsis, "\udfff": {1}})
    stored_result = ToolResult("\ufffd", detail={"thing": "Ellipsis", "\ufffd": [1]})
    started = _sample(ToolCallStarted)
    finished = _sample(ToolCallFinished)
    journal = await open_journal()
    await journal.append(_replace(started, call=ToolCallBlock("c", "bash", arguments)))
    await journal.append(_replace(finished, result=result))
    assert await read_all(journal) == [
        _replace(started, call=ToolCallBlock("c", "bash", stored_arguments)),
        _replace(finished, result=stored_result),
    ]
    await journal.close()


async def check_ten_megabytes_are_kept(open_journal: OpenJournal) -> None:
    """Check that a text of 10 MB is stored like any other."""
    events = [_note(1, text="0123456789" * 1_000_000), _note(2)]
    journal = await open_journal()
    await journal.append(*events)
    assert await read_all(journal) == events
    await journal.close()


async def check_later_changes_of_a_value_are_not_stored(open_journal: OpenJournal) -> None:
    """Check that an event is stored as it was when append was called."""
    arguments = {"path": "a"}
    answer = AssistantMessage((ToolCallBlock("c", "read", arguments),))
    journal = await open_journal()
    finished = _replace(_sample(TurnFinished), message=answer)
    waiting = asyncio.ensure_future(journal.append(finished))
    await asyncio.sleep(0)
    arguments["path"] = "b"
    await waiting
    [event] = await read_all(journal)
    stored = AssistantMessage((ToolCallBlock("c", "read", {"path": "a"}),))
    assert event == _replace(_sample(TurnFinished), message=stored)
    await journal.close()


async def check_deltas_are_refused(open_journal: OpenJournal) -> None:
    """Check that an append with a Delta stores nothing, and the journal stays usable."""
    journal = await open_journal()
    delta: Any = Delta(at=1, kind="text", text="…")
    await _expect_refusal(journal, _note(1), delta)
    await journal.append(_note(2))
    assert await read_all(journal) == [_note(2)]
    await journal.close()


async def check_close_finishes_pending_appends(open_journal: OpenJournal) -> None:
    """Check that close waits for pending appends, can be repeated, and refuses later appends."""
    journal = await open_journal()
    waiting = [asyncio.ensure_future(journal.append(_note(n))) for n in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(journal.close(), journal.close())
    await journal.close()
    assert await asyncio.gather(*waiting) == list(range(1, 21))
    await _expect_refusal(journal, _note(20))
    assert await _read_times(journal) == list(range(20))


async def check_an_unused_journal_closes(open_journal: OpenJournal) -> None:
    """Check that a journal without events can be closed, and is empty."""
    journal = await open_journal()
    await journal.close()
    await journal.close()
    assert await read_all(journal) == []


async def check_a_cancelled_append_is_stored(open_journal: OpenJournal) -> None:
    """Check that an append whose caller is cancelled is stored, and other appends too."""
    journal = await open_journal()
    waiting = [asyncio.ensure_future(journal.append(_note(n))) for n in range(10)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await journal.append(_note(10))
    assert await _read_times(journal) == list(range(11))
    await journal.close()


CHECKS: tuple[Check, ...] = collect_checks(globals())


async def count_appends_until_failure(
    journal: Journal, *, size: int = 1000, at_most: int = 10_000
) -> int:
    """Append until the journal fails, and check that every later append also fails.

    Arguments:
        journal: must fail before `at_most` appends of `size` characters each.

    Returns the number of appends that succeeded. A later reader must find exactly their events.
    """
    stored = 0
    try:
        while stored < at_most:
            await journal.append(_note(stored, text="x" * size))
            stored += 1
    except JournalError as error:
        assert error.remedy
    assert stored < at_most, "the journal never failed"
    late = [journal.append(_note(-1)) for _ in range(20)]
    results = await asyncio.gather(*late, return_exceptions=True)
    assert all(isinstance(result, JournalError) for result in results)
    await journal.close()
    await _expect_refusal(journal, _note(-1))
    return stored


async def _read_times(journal: Journal, after: int = 0) -> list[float]:
    return [event.at for event in await read_all(journal, after)]


async def _expect_refusal(journal: Journal, *events: StoredEvent) -> None:
    try:
        await journal.append(*events)
    except JournalError:
        return
    raise AssertionError("the journal stored events that it must refuse")


def _note(at: float, *, run: str = "1", text: str = "a note") -> NoteInjected:
    return NoteInjected(at=at, run=run, text=text)


def _sample(event_type: type[StoredEvent]) -> StoredEvent:
    return next(event for event in every_event() if type(event) is event_type)


def _replace(event: StoredEvent, **changes: object) -> StoredEvent:
    return structs.replace(event, **changes)
