"""`Session.runs.cancel()` without an id stops everything that the caller of the session started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.session.conftest import IsolatedOptions

from mudroom import Reason, Session
from mudroom.events import RunStarted
from mudroom.scope import PromptConfig
from mudroom.testing import Request, ScriptedModel

from ..worker_kinds import WORKERS

SECONDS = 60


class EndlessModel:
    """A model that answers only prompts that begin with "quick".

    Attributes:
        requests: number of all requests.
        changed: set with each request.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.changed = asyncio.Event()
        self.model = ScriptedModel(self._answer)

    async def _answer(self, request: Request) -> str:
        self.requests += 1
        self.changed.set()
        if not request.prompt.startswith("quick"):
            await asyncio.Event().wait()
        return "done"

    async def wait_for(self, requests: int) -> None:
        """Wait until the model has this many requests."""
        async with asyncio.timeout(SECONDS):
            while self.requests < requests:
                self.changed.clear()
                await self.changed.wait()


async def run_prompt(session: Session) -> list[Reason]:
    return [(await session.run("PROMPT")).reason]


async def run_stream(session: Session) -> list[Reason]:
    async with session.stream("PROMPT") as stream:
        async for _ in stream:
            pass
    return [stream.report.reason]


async def run_task(session: Session) -> list[Reason]:
    return [(await session.task("TASK")).reason]


async def run_map(session: Session) -> list[Reason]:
    return [report.reason for report in await session.map(["A"] * 5, parallel=2)]


async def run_scope(session: Session) -> list[Reason]:
    output = await session.scope("scope", PromptConfig(system_prompt="Wait."))
    return [output.terminate_reason]


Start = Callable[[Session], Awaitable[list[Reason]]]


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("start", [run_prompt, run_stream, run_task, run_scope])
async def test_cancel_without_an_id_stops_a_run_of_each_kind(
    start: Start, worker: str, isolated: IsolatedOptions
) -> None:
    endless = EndlessModel()
    async with Session(model=endless.model, **isolated, worker=worker) as session:
        assert not session.runs.cancel()
        running = asyncio.ensure_future(start(session))
        await endless.wait_for(1)
        assert session.runs.cancel()
        async with asyncio.timeout(SECONDS):
            assert await running == [Reason.CANCELLED]
        assert not session.runs.cancel()
        report = await session.task("quick")
    assert report.reason is Reason.GOAL


@pytest.mark.parametrize("worker", WORKERS)
async def test_cancel_stops_the_tasks_of_map_that_wait(
    worker: str, isolated: IsolatedOptions
) -> None:
    endless = EndlessModel()
    async with Session(model=endless.model, **isolated, worker=worker) as session:
        running = asyncio.ensure_future(run_map(session))
        await endless.wait_for(2)
        assert session.runs.cancel()
        async with asyncio.timeout(SECONDS):
            assert await running == [Reason.CANCELLED] * 5
    assert endless.requests == 2


async def test_cancel_stops_all_calls_at_once_and_a_prompt_that_waits(
    isolated: IsolatedOptions,
) -> None:
    endless = EndlessModel()
    starts: list[Start] = [run_prompt, run_prompt, run_task, run_map, run_scope]
    async with Session(model=endless.model, **isolated) as session:
        running = [asyncio.ensure_future(start(session)) for start in starts]
        await endless.wait_for(5)
        assert session.runs.cancel()
        async with asyncio.timeout(SECONDS):
            reasons = await asyncio.gather(*running)
        assert {reason for group in reasons for reason in group} == {Reason.CANCELLED}
        assert (await session.task("quick")).reason is Reason.GOAL
    assert endless.requests == 6


async def test_cancel_reaches_a_scope_that_lists_the_files(isolated: IsolatedOptions) -> None:
    endless = EndlessModel()
    async with Session(model=endless.model, **isolated) as session:
        running = asyncio.ensure_future(run_scope(session))
        await asyncio.sleep(0)
        session.runs.cancel()
        async with asyncio.timeout(SECONDS):
            assert await running == [Reason.CANCELLED]
    assert endless.requests == 0


async def test_cancel_while_an_interrupted_run_continues_starts_no_prompt(
    isolated: IsolatedOptions,
) -> None:
    endless = EndlessModel()
    session_id = await leave_unfinished_run(endless, isolated)
    async with Session(model=endless.model, **isolated, resume=session_id) as session:
        running = asyncio.ensure_future(run_prompt(session))
        await endless.wait_for(2)
        assert session.runs.cancel()
        async with asyncio.timeout(SECONDS):
            assert await running == [Reason.CANCELLED]
        assert session.unfinished_runs == ()
    assert endless.requests == 2


async def leave_unfinished_run(endless: EndlessModel, options: IsolatedOptions) -> str:
    """Record the beginning of a run, as a process that was killed leaves it; return the id."""
    from mudroom._adapters.journals.memory import MemoryJournal
    from mudroom._adapters.journals.sqlite.folder import get_session_path
    from mudroom._adapters.journals.sqlite.journal import SqliteJournal

    journal = MemoryJournal()
    async with Session(model=endless.model, **options, journal=journal) as session:
        running = asyncio.ensure_future(session.run("FIRST"))
        await endless.wait_for(1)
        session.runs.cancel()
        await running
    events = journal.events
    started = [isinstance(event, RunStarted) for event in events].index(True)
    path = get_session_path(options["home"], session.id)
    record = SqliteJournal.open(path, session=session.id, create=True)
    await record.append(*events[: started + 1])
    await record.close()
    return session.id
