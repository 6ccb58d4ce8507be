"""SessionDriver: the queue of prompts, stops at each of their stages, other options, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import SECONDS

from mudroom import Reason, Report, Session
from mudroom.driving import SessionDriver, SessionStart, Turn
from mudroom.errors import MudroomError, SessionPaused, UsageError
from mudroom.events import AnyEvent, RunFinished, RunStarted
from mudroom.testing import Request, ScriptedModel, call

from .prompts import get_last_prompt


class Place:
    """Sessions of one folder whose model answers with the prompt, and waits for one with "slow".

    Attributes:
        asked: prompts of the requests so far.
        starts: how sessions were made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.starts: list[tuple[str, SessionStart]] = []
        self.events: list[AnyEvent] = []
        self.waiting = asyncio.Event()
        self.released = asyncio.Event()

    async def answer(self, request: Request) -> Any:
        prompt = get_last_prompt(request)
        self.asked.append(prompt)
        if "background" in prompt and not request.results:
            return call("task", prompt="slow child", description="wait", background=True)
        if "slow" in prompt:
            self.waiting.set()
            await self.released.wait()
        return f"{prompt} is done"

    def make_session(self, plan: str, start: SessionStart) -> Session:
        """Make the session of a plan; that of "wrong" cannot be opened."""
        self.starts.append((plan, start))
        if plan == "refused":
            raise UsageError("there is no such plan")
        options: dict[str, Any] = {"agent": "missing"} if plan == "wrong" else {}
        return Session(
            model=ScriptedModel(self.answer),
            cwd=str(self.folder),
            home=str(self.folder / "home"),
            sandbox="off",
            environ={},
            **options,
            **start.options,
        )

    @asynccontextmanager
    async def drive(
        self, plan: str = "first", **options: Any
    ) -> AsyncGenerator[SessionDriver[str]]:
        driver = SessionDriver(self.make_session, plan, on_event=self.events.append, **options)
        async with asyncio.timeout(SECONDS), driver:
            yield driver


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_the_next_turn_begins_when_the_work_of_the_one_before_has_returned(
    place: Place,
) -> None:
    lines: list[str] = []

    async def work(turn: Turn[Any]) -> None:
        lines.append(f"begin {turn.key}")
        report: Report[Any] | None = await turn.run(f"prompt {turn.key}")
        await asyncio.sleep(0)
        assert report
        lines.append(report.text)

    async with place.drive() as driver:
        turns = [driver.submit(work, key=key) for key in "ab"]
        await driver.drain()
        assert driver.current is None
        assert driver.waiting == ()
    assert lines == ["begin a", "prompt a is done", "begin b", "prompt b is done"]
    assert [turn.run_id for turn in turns] == ["1", "2"]
    started = [event.run for event in place.events if isinstance(event, RunStarted)]
    assert started == ["1", "2"]


async def test_an_error_reaches_who_waits_and_the_queue_goes_on(place: Place) -> None:
    async def fail(_: Turn[Any]) -> None:
        raise ValueError("a fault of the work")

    async with place.drive() as driver:
        wrong, empty, good = driver.submit(fail), driver.submit(" "), driver.submit("good")
        with pytest.raises(ValueError, match="a fault of the work"):
            await wrong.wait()
        with pytest.raises(UsageError, match="the prompt is empty"):
            await empty.wait()
        report = await good.wait()
        assert report
        assert report.reason is Reason.GOAL


Stop = Callable[[SessionDriver[Any], Turn[Any]], object]
STOPS: dict[str, Stop] = {
    "interrupt": lambda driver, _: driver.interrupt(),
    "interrupt all": lambda driver, _: driver.interrupt(keeps_background=False),
    "cancel": lambda driver, _: driver.cancel(),
    "stop": lambda _, turn: turn.stop(),
}
WORKS: dict[str, Callable[[Place, Turn[Any]], Awaitable[Report[Any] | None]]] = {
    "running": lambda _, turn: turn.run("slow"),
    "preparing": lambda place, turn: _prepare(place, turn),
    "between": lambda place, turn: _pause_between(place, turn),
}


async def _prepare(place: Place, turn: Turn[Any]) -> Report[Any] | None:
    async def read() -> str:
        place.waiting.set()
        await asyncio.Event().wait()
        return "never"

    text = await turn.prepare(read())
    assert text is None
    return await turn.run("prompt")


async def _pause_between(place: Place, turn: Turn[Any]) -> Report[Any] | None:
    place.waiting.set()
    while not turn.is_stopped:  # noqa: ASYNC110  (no event says it)
        await asyncio.sleep(0)
    return await turn.run("prompt")


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("stage", WORKS)
async def test_a_stop_ends_the_turn_at_each_stage(place: Place, stage: str, stop: str) -> None:
    async with place.drive() as driver:
        turn = driver.submit(lambda turn: WORKS[stage](place, turn))
        next_turn = driver.submit("next")
        await place.waiting.wait()
        assert STOPS[stop](driver, turn)
        report = await turn.wait()
        assert turn.is_stopped
        assert not turn.stop()
        after = await next_turn.wait()
    if stage == "running":
        assert report
        assert report.reason is Reason.CANCELLED
    else:
        assert report is None
    assert "prompt" not in place.asked
    assert (after is None) == (stop == "cancel")
    assert ("next" in place.asked) == (stop != "cancel")


async def test_turns_that_wait_are_withdrawn_by_key_or_all(place: Place) -> None:
    async with place.drive() as driver:
        first = driver.submit("slow")
        second, third, fourth = (driver.submit(text, key=text) for text in "bcd")
        await place.waiting.wait()
        assert driver.withdraw("c") == (third,)
        assert driver.withdraw("c") == ()
        assert driver.waiting == (second, fourth)
        assert second.stop()
        assert driver.withdraw() == (fourth,)
        place.released.set()
        assert (await first.wait()) is not None
        assert [await turn.wait() for turn in (second, third, fourth)] == [None] * 3
        assert not driver.interrupt()
        assert not driver.cancel()
    assert place.asked == ["slow"]


async def test_an_interrupted_prompt_keeps_its_background_work(place: Place) -> None:
    async with place.drive() as driver:
        turn = driver.submit("slow background")
        await place.waiting.wait()
        while place.asked.count("slow background") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert driver.interrupt()
        report = await turn.wait()
        assert report
        assert report.is_interrupted
        later = driver.submit("go on")
        while driver.current is not later or later.run_id is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert later.run_id == "1"
        assert driver.cancel()


@pytest.mark.parametrize("has_run", [False, True])
async def test_another_plan_opens_the_same_conversation_before_the_next_turn(
    place: Place, *, has_run: bool
) -> None:
    async with place.drive() as driver:
        session = driver.session.id
        if has_run:
            await driver.submit("one").wait()
        driver.plan = "second"
        report = await driver.submit("two").wait()
        assert report
        assert report.run_id == ("2" if has_run else "1")
        assert driver.session.id == session
        await driver.apply_plan()
        driver.open_later()
        await driver.apply_plan()
    first, second, third = place.starts
    assert first == ("first", SessionStart())
    assert second == ("second", SessionStart(session, has_run))
    assert third == ("second", SessionStart(session, True))
    assert second[1].options == {"resume" if has_run else "id": session}


@pytest.mark.parametrize("plan", ["wrong", "refused"])
@pytest.mark.parametrize("by_turn", [False, True])
async def test_a_plan_that_cannot_be_used_leaves_the_session_as_it_was(
    place: Place, plan: str, *, by_turn: bool
) -> None:
    async with place.drive() as driver:
        driver.plan = plan
        with pytest.raises(MudroomError):
            await (driver.submit("prompt").wait() if by_turn else driver.apply_plan())
        assert driver.plan == "first"
        assert driver.session.agents
        assert await driver.submit("one").wait()
    assert place.asked == ["one"]


async def test_a_plan_waits_for_the_turn_that_works(place: Place) -> None:
    async with place.drive() as driver:
        turn = driver.submit("slow")
        await place.waiting.wait()
        driver.plan = "second"
        await driver.apply_plan()
        assert len(place.starts) == 1
        place.released.set()
        await turn.wait()
        await driver.apply_plan()
        assert len(place.starts) == 2


async def test_a_stop_while_the_session_is_opened_again_holds(place: Place) -> None:
    opening = asyncio.Event()
    goes_on = asyncio.Event()

    async def on_open(_: Session) -> None:
        if len(place.starts) > 1:
            opening.set()
            await goes_on.wait()

    async with place.drive(on_open=on_open) as driver:
        driver.plan = "second"
        turn = driver.submit("prompt")
        await opening.wait()
        with pytest.raises(UsageError, match="the session is not open"):
            _ = driver.session
        asked = asyncio.create_task(driver.get_session())
        assert driver.cancel()
        goes_on.set()
        assert await turn.wait() is None
        assert await asked is driver.session
    assert place.asked == []


async def test_a_pause_while_the_session_is_opened_again_holds(place: Place) -> None:
    async def on_open(_: Session) -> None:
        if len(place.starts) > 1:
            driver.pause()

    async with place.drive(on_open=on_open) as driver:
        driver.plan = "second"
        with pytest.raises(SessionPaused):
            await driver.submit("prompt").wait()
    assert place.asked == []


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_the_rest_of_a_prompt_runs_in_the_next_driver_or_ends_if_it_is_stopped(
    place: Place, *, is_stopped: bool
) -> None:
    async with place.drive() as driver:
        turn = driver.submit("slow")
        await place.waiting.wait()
        assert driver.pause()
        with pytest.raises(SessionPaused):
            await turn.wait()
        session = driver.session.id
    assert not [event for event in place.events if isinstance(event, RunFinished)]
    place.released.set()

    def make(plan: str, start: SessionStart) -> Session:
        return place.make_session(plan, SessionStart(session, True) if start.id is None else start)

    async def resume(turn: Turn[Any]) -> Report[Any] | None:
        assert not is_stopped or turn.stop()
        return await turn.resume()

    async with SessionDriver(make, "first", resumes=True) as driver:
        report = await driver.submit(resume).wait()
        assert report
        assert report.reason is (Reason.CANCELLED if is_stopped else Reason.GOAL)
        assert driver.session.unfinished_runs == ()
        assert await driver.submit("next").wait()
        assert await driver.submit(lambda turn: turn.resume()).wait() is None
    assert place.asked == ["slow", *([] if is_stopped else ["slow"]), "next"]


async def test_tasks_run_beside_the_queue_and_are_stopped_alone_or_with_all(place: Place) -> None:
    events: list[AnyEvent] = []
    async with place.drive() as driver:
        tasks = [
            driver.start(lambda turn, text=text: turn.run_task(text, on_event=events.append))
            for text in ("slow one", "slow two", "quick")
        ]
        prompt = driver.submit("prompt")
        report, done = await prompt.wait(), await tasks[2].wait()
        assert report
        assert done
        assert done.reason is Reason.GOAL
        assert driver.waiting == ()
        assert {event.run for event in events} >= {turn.run_id for turn in tasks}
        assert prompt.run_id not in [turn.run_id for turn in tasks]
        assert tasks[0].stop()
        assert not tasks[2].stop()
        ended = [await tasks[0].wait()]
        assert driver.cancel()
        ended.append(await tasks[1].wait())
    assert [each.reason for each in ended if each] == [Reason.CANCELLED] * 2


async def test_the_end_of_the_block_ends_all_turns(place: Place) -> None:
    async with place.drive() as driver:
        turns = [driver.submit("slow"), driver.submit("two")]
        await place.waiting.wait()
    assert [await turn.wait() for turn in turns] == [None, None]
    assert place.asked == ["slow"]
    with pytest.raises(UsageError, match="async with SessionDriver"):
        _ = driver.session


async def test_an_error_of_on_open_closes_the_session(place: Place) -> None:
    opened: list[Session] = []

    async def on_open(session: Session) -> None:
        opened.append(session)
        raise UsageError("there is no such message")

    with pytest.raises(UsageError, match="no such message"):
        async with place.drive(on_open=on_open):
            pass
    with pytest.raises(UsageError, match="the session is not open"):
        _ = opened[0].tools
