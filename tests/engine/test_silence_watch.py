"""Silence watch: calls end when they are silent, and few timers wait for that."""

from __future__ import annotations

import asyncio

import pytest

from mudroom._engine.meters.run_timer import SilenceWatch
from mudroom.testing import run_virtual


async def wait_in_silence(watch: SilenceWatch, seconds: float, chunks: int = 0) -> float:
    """Open a call that gets this number of chunks, one a second; return the age at its end."""
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    with pytest.raises(TimeoutError, match="silent"), watch.watch_call(seconds) as call:
        for _ in range(chunks):
            await asyncio.sleep(1)
            call.extend(seconds)
        await asyncio.Future()
    return loop.time() - started_at


def test_each_call_ends_after_its_own_silence() -> None:
    async def run() -> list[float]:
        watch = SilenceWatch()
        calls = [(100, 0), (100, 30), (2, 0), (0.1, 0), (2, 5)]
        return await asyncio.gather(*(wait_in_silence(watch, *call) for call in calls))

    assert run_virtual(run()) == pytest.approx([100, 130, 2, 0.1, 7], abs=0.6)


def test_a_silent_call_needs_few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = 0
    check = SilenceWatch._check

    def count(watch: SilenceWatch, loop: asyncio.AbstractEventLoop) -> None:
        nonlocal checks
        checks += 1
        check(watch, loop)

    monkeypatch.setattr(SilenceWatch, "_check", count)
    assert run_virtual(wait_in_silence(SilenceWatch(), 100, 30)) == pytest.approx(130, abs=0.6)
    assert checks <= 4


def test_a_cancel_from_outside_stays_a_cancel() -> None:
    async def run() -> None:
        waiting = asyncio.create_task(wait_in_silence(SilenceWatch(), 2))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert waiting.cancelling() == 1

    run_virtual(run())


def test_a_cancel_at_the_moment_of_silence_stays_a_cancel() -> None:
    async def run() -> None:
        watch = SilenceWatch()
        waiting = asyncio.create_task(wait_in_silence(watch, 2))
        await asyncio.sleep(0)
        (call,) = watch._calls
        call.end()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run_virtual(run())
