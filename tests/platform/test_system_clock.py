"""Clock of this machine: its times are as far apart as what happened between them."""

from __future__ import annotations

import asyncio
import time

import pytest

from mudroom._platform.time_limits import SystemClock
from mudroom.testing.clock import run_virtual


class StepClock:
    """The machine's clock, set to another time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step = 0.0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.step)


@pytest.mark.parametrize("step", [0.75, -0.75, 30.0, -3_600.0])
async def test_a_step_of_the_machines_clock_changes_no_duration(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, clock = StepClock(monkeypatch), SystemClock()
    first, began = clock.now(), clock.monotonic()
    machine.step = step
    await asyncio.sleep(0.01)
    assert clock.now() - first == pytest.approx(clock.monotonic() - began, abs=0.3)


async def test_a_process_of_this_machine_has_the_time_of_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, clock = StepClock(monkeypatch), SystemClock()
    clock.now()
    machine.step = -0.75
    assert SystemClock(clock.start).now() == pytest.approx(clock.now(), abs=0.3)


async def test_after_a_suspend_the_time_is_that_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, clock = StepClock(monkeypatch), SystemClock()
    clock.now()
    machine.step = 28_800.0
    assert clock.now() == pytest.approx(time.time(), abs=0.3)


def test_virtual_time_passes_in_the_times_of_events() -> None:
    async def wait() -> float:
        clock = SystemClock()
        began = clock.now()
        await asyncio.sleep(90)
        return clock.now() - began

    assert run_virtual(wait()) == pytest.approx(90)
