"""What every journal must do. An adapter's tests run each of `CHECKS` against a journal of its own:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_journal(check, tmp_path):
        await check(lambda: MyJournal(tmp_path))

A check opens one new, empty journal, and closes it. `refuses_after` is for adapters that can be made to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby, islice
from typing import Any, get_args

from msgspec import structs

from .._core.events import (
    Delta,
    NoteInjected,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from .._core.messages import AssistantMessage, ToolCallBlock
from .._core.ports import Journal
from .._core.tools import ToolResult
from ..errors import JournalError
from .sample_events import every_event

OpenJournal = Callable[[], Journal]
Check = Callable[[OpenJournal], Awaitable[None]]


async def every_kind_comes_back(open_: OpenJournal) -> None:
    """Each stored kind of event is read as it was appended, with all its fields."""
    events, journal = every_event(), open_()
    assert {type(event) for event in events} == set(get_args(StoredEvent))
    for event in events:
        await journal.append(event)
    await journal.append(*events)
    assert list(journal.read()) == [*events, *events]
    await journal.close()


async def is_there_on_return(open_: OpenJournal) -> None:
    """What `append` has returned for is read at once."""
    journal = open_()
    assert list(journal.read()) == []
    for n in range(5):
        await journal.append(_told(n))
        assert [event.at for event in journal.read()] == list(range(n + 1))
    await journal.append()
    assert sum(1 for _ in journal.read()) == 5
    await journal.close()


async def keeps_the_order_of_the_calls(open_: OpenJournal) -> None:
    """Appends of many tasks come out in the order they were called in; the events of one stay together."""
    journal, called = open_(), list[tuple[str, float]]()

    async def produce(name: str) -> None:
        for n in range(10):
            events = [_told(10 * n + part, run=name) for part in range(3)]
            called.extend((event.run, event.at) for event in events)
            await journal.append(*events)

    async with asyncio.TaskGroup() as group:
        for producer in range(50):
            group.create_task(produce(str(producer)))
    assert [(event.run, event.at) for event in journal.read()] == called
    assert all(
        len(list(same)) % 3 == 0 for _, same in groupby(journal.read(), key=lambda event: event.run)
    )
    await journal.close()


async def is_read_while_written(open_: OpenJournal) -> None:
    """A reader sees a beginning of the record, without gaps, while a writer goes on."""
    journal = open_()
    await journal.append(*(_told(n) for n in range(100)))
    reader = journal.read()
    first = [event.at for event in islice(reader, 10)]
    await journal.append(*(_told(n) for n in range(100, 200)))
    seen = first + [event.at for event in reader]
    assert seen == list(range(len(seen))) and len(seen) >= 100
    assert [event.at for event in journal.read()] == list(range(200))
    await journal.close()


async def keeps_any_text(open_: OpenJournal) -> None:
    """Every character comes back; only lone surrogates, which no file can hold, become U+FFFD."""
    texts = {
        "": "",
        "\0\x01\x1f\x7f\x80\u2028\ufeff\uffff": "\0\x01\x1f\x7f\x80\u2028\ufeff\uffff",
        "中文 عربي 🦀 e\u0301": "中文 عربي 🦀 e\u0301",
        "\r\n\t\"\\' ${x} \x1b[31m": "\r\n\t\"\\' ${x} \x1b[31m",
        "cut \ud83d": "cut \ufffd",
        "\ude00\ud83d": "\ufffd\ufffd",
        "joined \ud83e\udd80": "joined 🦀",
    }
    journal = open_()
    for text in texts:
        await journal.append(_told(1, text=text))
    assert [event.text for event in journal.read() if isinstance(event, NoteInjected)] == list(
        texts.values()
    )
    await journal.close()


async def keeps_any_arguments(open_: OpenJournal) -> None:
    """Odd values in a model's arguments and a tool's detail are recorded, at worst as their `repr`."""
    arguments: dict[str, Any] = {
        "\udc80": ["\ud800", {"n": 2**70, "f": 1e-300}],
        "empty": {},
        "none": None,
    }
    started, finished = _sample(ToolCallStarted), _sample(ToolCallFinished)
    journal = open_()
    await journal.append(_replaced(started, call=ToolCallBlock("c", "bash", arguments)))
    await journal.append(
        _replaced(finished, result=ToolResult("\ud800", detail={"thing": Ellipsis, "\udfff": {1}}))
    )
    call, result = (event for event in journal.read())
    assert call == _replaced(
        started,
        call=ToolCallBlock(
            "c",
            "bash",
            {"\ufffd": ["\ufffd", {"n": 2**70, "f": 1e-300}], "empty": {}, "none": None},
        ),
    )
    assert result == _replaced(
        finished, result=ToolResult("\ufffd", detail={"thing": "Ellipsis", "\ufffd": [1]})
    )
    await journal.close()


async def keeps_ten_megabytes(open_: OpenJournal) -> None:
    """A text of 10 MB is one event like any other."""
    text, journal = "0123456789" * 1_000_000, open_()
    await journal.append(_told(1, text=text), _told(2))
    first, second = journal.read()
    assert isinstance(first, NoteInjected) and first.text == text and second == _told(2)
    await journal.close()


async def keeps_what_was_appended(open_: OpenJournal) -> None:
    """The record does not change when somebody changes a value that was appended."""
    arguments, journal = {"path": "a"}, open_()
    answer = AssistantMessage((ToolCallBlock("c", "read", arguments),))
    waiting = asyncio.ensure_future(
        journal.append(_replaced(_sample(TurnFinished), message=answer))
    )
    await asyncio.sleep(0)
    arguments["path"] = "b"
    await waiting
    [event] = journal.read()
    assert event == _replaced(
        _sample(TurnFinished),
        message=AssistantMessage((ToolCallBlock("c", "read", {"path": "a"}),)),
    )
    await journal.close()


async def refuses_deltas(open_: OpenJournal) -> None:
    """A delta is refused, nothing of the same append is kept, and the journal goes on."""
    journal, delta = open_(), Delta(at=1, kind="text", text="…")
    await _must_refuse(journal, _told(1), delta)  # pyright: ignore[reportArgumentType]
    await journal.append(_told(2))
    assert list(journal.read()) == [_told(2)]
    await journal.close()


async def closes_once_and_for_all(open_: OpenJournal) -> None:
    """Closing waits for what is under way, may be repeated, and ends appending."""
    journal = open_()
    waiting = [asyncio.ensure_future(journal.append(_told(n))) for n in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(journal.close(), journal.close())
    await journal.close()
    assert await asyncio.gather(*waiting) == [None] * 20
    await _must_refuse(journal, _told(20))
    assert [event.at for event in journal.read()] == list(range(20))


async def closes_unused(open_: OpenJournal) -> None:
    """A journal nobody wrote to closes too, and is empty."""
    journal = open_()
    await journal.close()
    await journal.close()
    assert list(journal.read()) == []


async def outlives_a_cancelled_caller(open_: OpenJournal) -> None:
    """An append whose caller is cancelled while it waits is recorded all the same, and harms no other."""
    journal = open_()
    waiting = [asyncio.ensure_future(journal.append(_told(n))) for n in range(10)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await journal.append(_told(10))
    assert [event.at for event in journal.read()] == list(range(11))
    await journal.close()


CHECKS: tuple[Check, ...] = (
    every_kind_comes_back,
    is_there_on_return,
    keeps_the_order_of_the_calls,
    is_read_while_written,
    keeps_any_text,
    keeps_any_arguments,
    keeps_ten_megabytes,
    keeps_what_was_appended,
    refuses_deltas,
    closes_once_and_for_all,
    closes_unused,
    outlives_a_cancelled_caller,
)


async def count_appends_until_failure(
    journal: Journal, *, size: int = 1000, at_most: int = 10_000
) -> int:
    """Append until the journal fails, and check that nothing is called saved from then on.

    Arguments:
        journal: one that fails before `at_most` appends of `size` characters each.

    Returns how many appends succeeded; all of them, and none that failed, must be found by whoever reads the journal next.
    """
    saved = 0
    try:
        while saved < at_most:
            await journal.append(_told(saved, text="x" * size))
            saved += 1
    except JournalError as error:
        assert error.remedy
    assert saved < at_most, "the journal never failed"
    results = await asyncio.gather(
        *(journal.append(_told(-1)) for _ in range(20)), return_exceptions=True
    )
    assert all(isinstance(result, JournalError) for result in results)
    await journal.close()
    await _must_refuse(journal, _told(-1))
    return saved


async def _must_refuse(journal: Journal, *events: StoredEvent) -> None:
    try:
        await journal.append(*events)
    except JournalError:
        return
    raise AssertionError("the journal took what it must refuse")


def _told(at: float, *, run: str = "1", text: str = "a word") -> NoteInjected:
    return NoteInjected(at=at, run=run, text=text)


def _sample(kind: type[StoredEvent]) -> StoredEvent:
    return next(event for event in every_event() if type(event) is kind)


def _replaced(event: StoredEvent, **changes: object) -> StoredEvent:
    return structs.replace(event, **changes)
