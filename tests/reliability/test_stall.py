"""S10: a model that falls silent, at its first word or in the middle, cannot hold a run for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mudroom import Assistant, Reason, Report, Session
from mudroom._core.events import AnyEvent, Delta, Stored
from mudroom._core.messages import Message, StopReason, Text, Usage
from mudroom._core.ports import Piece, Retry, Setup
from mudroom._engine.model_call import PATIENCE, SILENCE
from mudroom.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.testing.clock import run_virtual
from mudroom.testing.invariants import violations
from mudroom.testing.model_server import Asked, Fault, ModelServer, Said
from mudroom.testing.wire_formats import Reply, anthropic_stream

Parts = Callable[[], AsyncIterator[Piece | Retry | Assistant]]


class Slow:
    """A model that answers in its own time; also its own chat."""

    name = "slow:model"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def chat(self, setup: Setup) -> Slow:
        return self

    def add(self, message: Message) -> None:
        pass

    def ask(self, *, tools: bool = True) -> AsyncIterator[Piece | Retry | Assistant]:
        return self._parts()

    async def close(self) -> None:
        pass


async def never() -> AsyncIterator[Piece | Retry | Assistant]:
    await asyncio.Event().wait()
    yield Piece("text", "")


async def stops_in_the_middle() -> AsyncIterator[Piece | Retry | Assistant]:
    yield Piece("text", "So far ")
    await asyncio.Event().wait()


async def slow_but_alive() -> AsyncIterator[Piece | Retry | Assistant]:
    await asyncio.sleep(PATIENCE)
    for _ in range(20):
        yield Piece("thinking", "hm ")
        await asyncio.sleep(SILENCE - 1)
    yield Assistant((Text("Done."),))


async def told_to_wait() -> AsyncIterator[Piece | Retry | Assistant]:
    for attempt in range(1, 4):
        yield Retry(attempt, 290.0, 429, "too many requests")
        await asyncio.sleep(290 + PATIENCE)
    yield Assistant((Text("Done."),))


PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def test_a_stream_that_only_pings_for_half_an_hour_is_alive(tmp_path: Path) -> None:
    async def work() -> Report:
        async def answer(asked: Asked) -> Said:
            whole = anthropic_stream(
                Reply((Text("Done."),), "m", "msg", Usage(1, 1), StopReason.END)
            )
            return Fault(
                body=PING * 20 + b"".join(whole),
                kind="text/event-stream",
                drip=len(PING),
                pause=100.0,
            )

        async with ModelServer(answer) as server:
            environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
            model, home = "anthropic:claude-sonnet-4-5", str(tmp_path / "home")
            async with Session(
                model=model, environ=environ, cwd=str(tmp_path), home=home, journal="memory"
            ) as session:
                return await session.run("PARENT")

    assert run_virtual(work()).text == "Done."


def ran(folder: Path, model: object) -> tuple[Report, float, list[Stored]]:
    """A run on virtual time: its report, the seconds it took, its record."""
    events: list[AnyEvent] = []

    async def work() -> tuple[Report, float]:
        async with Session(
            model=model,  # pyright: ignore[reportArgumentType]
            cwd=str(folder),
            home=str(folder / "home"),
            journal="memory",
        ) as session:
            session.watch(events.append)
            report = await session.run("PARENT")
            return report, asyncio.get_running_loop().time()

    report, seconds = run_virtual(work())
    record = [event for event in events if not isinstance(event, Delta)]
    assert not violations(record, timed=False)
    return report, seconds, record


@pytest.mark.parametrize(
    ("parts", "at"), [(never, SILENCE + PATIENCE), (stops_in_the_middle, SILENCE)]
)
def test_s10_a_silent_model_ends_the_run(tmp_path: Path, parts: Parts, at: float) -> None:
    report, seconds, _ = ran(tmp_path, Slow(parts))
    assert (report.reason, report.error) == (Reason.TIMEOUT, "the model fell silent")
    assert seconds == pytest.approx(at, abs=1)


@pytest.mark.parametrize("parts", [slow_but_alive, told_to_wait])
def test_who_is_slow_but_gives_signs_of_life_is_waited_for(tmp_path: Path, parts: Parts) -> None:
    report, seconds, _ = ran(tmp_path, Slow(parts))
    assert report.reason is Reason.GOAL
    assert seconds > 600


def test_s10_a_parent_hears_that_its_child_fell_silent_and_goes_on(tmp_path: Path) -> None:
    async def script(request: Request) -> Answer:
        if request.prompt == "CHILD":
            if request.turn:
                await asyncio.Event().wait()
            return ["I begin.", call("glob", pattern="*")]
        return call("task", prompt="CHILD") if request.turn == 0 else request.results[0].text

    report, _, _ = ran(tmp_path, ScriptedModel(script))
    assert report.ok
    assert report.text.startswith(
        "[TIMEOUT: the model fell silent; what follows is partial]\nI begin."
    )
