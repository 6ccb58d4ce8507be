"""Sessions in a store of the caller: created, resumed, forked, also after many tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pytest
from msgspec.structs import replace

from mudroom import Agent, Budget, Reason, Session, Usage, UsageError
from mudroom._adapters.journals.sessions import read_events
from mudroom._core.ports import SessionStore
from mudroom._projections.open_events import OpenEvents
from mudroom.errors import UnknownName
from mudroom.events import RunFinished, StoredEvent
from mudroom.testing import Answer, MemoryJournal, MemoryStore, Request, ScriptedModel, call
from mudroom.testing.event_builders import run_finished, run_started
from mudroom_postgres.store import PostgresStore

from .conftest import IsolatedOptions


class StoreOptions(TypedDict, total=False):
    store: SessionStore
    journal: str | MemoryJournal
    resume: str
    fork: bool


def open_session(folder: Path, *answers: str, **options: Unpack[StoreOptions]) -> Session:
    return Session(
        model=ScriptedModel(list(answers)),
        cwd=str(folder),
        home=str(folder / "home"),
        sandbox="off",
        **options,
    )


@pytest.fixture(params=["memory", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStore:
    """Open an empty store of each kind that several sessions can share."""
    if request.param == "memory":
        return MemoryStore()
    return PostgresStore(request.getfixturevalue("postgres_url"))


class CountingJournal(MemoryJournal):
    """A journal that collects the events it reads."""

    read_events: list[StoredEvent]

    async def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        async for event in super().read(after, types=types):
            self.read_events.append(event)
            yield event


class CountingStore(MemoryStore):
    """A store that collects the events that its opened journals read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_events: list[StoredEvent] = []

    async def open(self, session: str, *, read_only: bool = False) -> MemoryJournal:
        journal = await super().open(session, read_only=read_only)
        counting = CountingJournal.of_record(journal._record, read_only=read_only)
        assert isinstance(counting, CountingJournal)
        counting.read_events = self.read_events
        return counting


class BusyStore(MemoryStore):
    """A store where another writer adds a run just before each writer opens a session."""

    async def open(self, session: str, *, read_only: bool = False) -> MemoryJournal:
        if not read_only:
            other = await super().open(session)
            await other.append(run_started("2"), run_finished("2"))
            await other.close()
        return await super().open(session, read_only=read_only)


@pytest.mark.parametrize("fork", [False, True])
async def test_a_resume_reads_each_event_once_and_a_prompt_reads_none(
    fork: bool, tmp_path: Path
) -> None:
    store = CountingStore()
    async with open_session(tmp_path, *"abcdef", store=store) as session:
        for prompt in "abcdef":
            await session.run(prompt)
    recorded = await read_events(store, session.id)
    store.read_events.clear()
    shown: list[StoredEvent] = []
    again = open_session(tmp_path, *"gh", store=store, resume=session.id, fork=fork)
    again.watch_history(shown.append)
    async with again:
        assert store.read_events == recorded
        assert [event.at for event in shown] == [event.at for event in recorded]
        await again.run("g")
        await again.run("h")
        assert store.read_events == recorded
        assert again.id == session.id or fork


async def test_a_resume_reads_the_events_of_a_writer_that_just_ended(tmp_path: Path) -> None:
    store = BusyStore()
    async with open_session(tmp_path, "one", store=store) as session:
        await session.run("first")
    async with open_session(tmp_path, "two", store=store, resume=session.id) as again:
        assert (await again.run("second")).run_id == "3"


async def test_a_session_is_resumed_from_the_store_of_the_caller(
    store: SessionStore, tmp_path: Path
) -> None:
    async with open_session(tmp_path, "one", store=store) as session:
        await session.run("first")
        assert await store.find_writer(session.id)
    await store.rename(session.id, "my work")
    async with open_session(tmp_path, "two", store=store, resume="my work") as again:
        assert again.id == session.id
        assert (await again.run("second")).text == "two"
    assert [info.id for info in await store.list()] == [session.id]
    assert not (tmp_path / "home" / "sessions").exists()


async def test_a_session_is_forked_in_the_store_of_the_caller(
    store: SessionStore, tmp_path: Path
) -> None:
    async with open_session(tmp_path, "one", store=store) as session:
        await session.run("first")
    async with open_session(tmp_path, "two", store=store, resume=session.id, fork=True) as fork:
        await fork.run("second")
    assert {info.id for info in await store.list()} == {session.id, fork.id}
    original = await read_events(store, session.id)
    async with open_session(tmp_path, "three", store=store, resume=fork.id) as again:
        assert again.id == fork.id
        assert (await again.run("third")).run_id == "3"
    async with open_session(tmp_path, "four", store=store, resume=fork.id, fork=True) as second:
        assert (await second.run("fourth")).run_id == "4"
    assert len({session.id, fork.id, second.id}) == 3
    assert await read_events(store, session.id) == original


async def test_the_journal_of_a_fork_is_resumed_with_its_own_id(tmp_path: Path) -> None:
    store, journal = MemoryStore(), MemoryJournal()
    async with open_session(tmp_path, "one", store=store) as session:
        await session.run("first")
    async with open_session(
        tmp_path, "two", store=store, journal=journal, resume=session.id, fork=True
    ) as fork:
        await fork.run("second")
    copy = MemoryJournal()
    await copy.append(*journal.events)
    async with open_session(tmp_path, "three", journal=copy, resume=fork.id) as again:
        assert again.id == fork.id
        await again.run("third")


async def test_a_memory_journal_without_a_store_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="MemoryStore"):
        async with open_session(tmp_path, journal="memory", resume="any"):
            pass


async def test_a_replay_model_reads_its_session_from_the_store_of_the_caller(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    async with open_session(tmp_path, "one", store=store) as session:
        await session.run("first")
    await store.rename(session.id, "my work")
    home = str(tmp_path / "home")
    for text in (session.id, "my work"):
        async with Session(
            model=f"replay:{text}", cwd=str(tmp_path), home=home, store=store, sandbox="off"
        ) as replayed:
            assert (await replayed.run("first")).text == "one"
    with pytest.raises(UnknownName, match="nothing"):
        async with Session(model="replay:nothing", cwd=str(tmp_path), home=home, store=store):
            pass


async def record_tasks(
    tasks: int, isolated: IsolatedOptions, *, open_tasks: int = 0
) -> tuple[str, list[StoredEvent]]:
    """Record a session with a prompt and tasks, of which the last ones have no end."""
    journal = MemoryJournal()
    model = ScriptedModel(lambda request: f"did {request.prompt}")
    async with Session(model=model, journal=journal, **isolated) as session:
        await session.run("a prompt")
        await session.map([f"task {number}" for number in range(tasks)])
    events = [event async for event in journal.read()]
    last = [str(1 + tasks - number) for number in range(open_tasks)]
    kept = [each for each in events if not (isinstance(each, RunFinished) and each.run in last)]
    return session.id, kept[:-1]


def count_kept(events: list[StoredEvent]) -> int:
    recorded = OpenEvents(lambda model, usage: 0.0, drops_tasks=True)
    recorded.extend(events)
    assert recorded.count == len(events)
    return len(recorded.events) + len(recorded.heads) + len(recorded.starts)


async def test_events_of_ended_tasks_are_not_kept(isolated: IsolatedOptions) -> None:
    _, few = await record_tasks(20, isolated, open_tasks=3)
    _, many = await record_tasks(200, isolated, open_tasks=3)
    assert len(many) > 700
    assert count_kept(many) == count_kept(few)


async def test_costs_of_ended_tasks_are_those_of_their_reports(isolated: IsolatedOptions) -> None:
    _, events = await record_tasks(3, isolated)
    asked: list[str] = []

    def compute_price(model: str, usage: Usage) -> float:
        asked.append(model)
        return 0.5

    reports = {"2": 0.25, "3": 0.00001, "4": None}  # a report with few digits, and one without
    recorded = OpenEvents(compute_price, drops_tasks=True)
    for event in events:
        if isinstance(event, RunFinished) and event.run in reports:
            event = replace(event, report=replace(event.report, usd=reports[event.run]))
        recorded.apply(event)
    assert len(asked) == 2
    assert recorded.amounts.usd == 0.25 + 0.5 + 0.5
    assert recorded.amounts.is_price_known


@pytest.mark.parametrize("open_tasks", [0, 2])
async def test_a_resumed_session_counts_what_ended_tasks_spent(
    isolated: IsolatedOptions, open_tasks: int
) -> None:
    session_id, events = await record_tasks(9, isolated, open_tasks=open_tasks)
    journal = MemoryJournal()
    await journal.append(*events)
    model = ScriptedModel(lambda request: f"did {request.prompt}")
    options: dict[str, Any] = {"model": model, "journal": journal, "resume": session_id, **isolated}
    async with Session(budget=Budget(turns=11), **options) as session:
        assert len(session.unfinished_runs) == open_tasks
        for run_id in session.unfinished_runs:
            report = await session.resume_task(run_id)
            assert (report.run_id, report.ok) == (run_id, True)
        assert session.unfinished_runs == ()
        assert not model.requests, "no answer is bought twice"
        eleventh = await session.task("one more")
        assert (eleventh.run_id, eleventh.reason) == ("11", Reason.GOAL)
        assert (await session.task("too many")).reason is Reason.MAX_TURNS
        assert len(model.requests) <= 2


async def test_a_session_with_ended_tasks_can_be_continued_and_forked(
    isolated: IsolatedOptions,
) -> None:
    session_id, events = await record_tasks(3, isolated)
    journal = MemoryJournal()
    await journal.append(*events)
    texts: list[tuple[str, ...]] = []

    def answer(request: Request) -> str:
        texts.append(tuple(str(message) for message in request.messages))
        return "done"

    async with Session(
        model=ScriptedModel(answer), journal=journal, resume=session_id, **isolated
    ) as session:
        report = await session.run("go on")
    assert report.run_id == "5"
    assert "a prompt" in texts[-1][0]


async def test_named_children_of_an_ended_task_are_kept(isolated: IsolatedOptions) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt == "LEAD" and not request.turn:
            return [call("task", prompt="CHILD", name="ann")]
        return "done"

    journal = MemoryJournal()
    lead = Agent(name="lead", budget=Budget(depth=1))
    model = ScriptedModel(answer)
    async with Session(model=model, journal=journal, agents=[lead], **isolated) as session:
        report = await session.task("LEAD", agent=lead)
        assert report.calls == {"task": 1}
    events = [event async for event in journal.read()]
    recorded = OpenEvents(lambda model, usage: 0.0, drops_tasks=True)
    recorded.extend(events)
    assert recorded.events == events
