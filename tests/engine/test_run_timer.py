"""The age of a run and its deadline: approvals stop the clock, also two at the same time."""

from __future__ import annotations

import asyncio
import random

from mudroom import Budget
from mudroom._engine.meters.meter import Meter
from mudroom._engine.meters.run_timer import RunTimer
from mudroom.testing import FakeClock


async def test_the_clock_stands_until_the_last_of_two_approvals_ends() -> None:
    clock = FakeClock()
    meter = Meter(Budget(seconds=100))
    timer = RunTimer(clock, meter)
    clock.advance(10)
    with meter.pause():
        clock.advance(5)
        with meter.pause():
            clock.advance(7)
        clock.advance(3)
        assert timer.age == 10
    clock.advance(1)
    assert timer.age == 11
    assert timer.time_left == 89


async def test_a_pause_moves_the_deadline_by_its_length() -> None:
    clock = FakeClock()
    meter = Meter(Budget(seconds=100))
    timer = RunTimer(clock, meter)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as timer.deadline:
        with meter.pause():
            await asyncio.sleep(0)
            assert timer.deadline.when() is None
            clock.advance(50)
        moved_to = timer.deadline.when()
        assert moved_to is not None
        assert 0 < moved_to - loop.time() <= 100
        timer.deadline.reschedule(None)


class ClockAt(FakeClock):
    """A clock that shows a moment exactly: sums of steps would round it."""

    moment = 0.0

    def monotonic(self) -> float:
        return self.moment


def test_a_run_that_only_waited_has_an_age_of_zero() -> None:
    draw = random.Random(1)
    for _ in range(500):
        first, *moments = sorted(draw.random() * 10 ** draw.randint(-3, 3) for _ in range(5))
        clock = ClockAt()
        clock.moment = first
        meter = Meter(Budget())
        timer = RunTimer(clock, meter)
        for moment in moments:
            with meter.pause():
                clock.moment = moment
        assert str(round(timer.age, 3)) == "0.0"
