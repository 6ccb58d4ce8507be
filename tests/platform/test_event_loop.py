"""Event loops and clocks, what wakes their tasks, the ends of pools, the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from itertools import pairwise

import pytest
from tests.platform.test_http1 import HELLO, RawServer, open_pool, post
from tests.waiting import wait_until

from mudroom._platform.event_loop import run_event_loop
from mudroom._platform.own_process import collect_garbage_less_often
from mudroom._platform.time_limits import SystemClock
from mudroom._platform.wake_queue import WakeQueue
from mudroom.testing.clock import run_virtual


async def get_loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_the_loop_is_that_of_uvloop() -> None:
    pytest.importorskip("uvloop")
    assert run_event_loop(get_loop_module()).startswith("uvloop")


def test_the_loop_is_asyncio_s_own_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_event_loop(get_loop_module()).startswith("asyncio")


async def test_other_tasks_run_while_thousands_of_futures_are_done() -> None:
    queue = WakeQueue()
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(1_000)]
    done: list[int] = []
    for index, future in enumerate(futures):
        future.add_done_callback(lambda _, index=index: done.append(index))
        queue.wake(future)
    steps = [len(done)]
    while len(done) < len(futures):
        await asyncio.sleep(0)
        steps.append(len(done))
    assert done == list(range(1_000))
    assert max(later - earlier for earlier, later in pairwise(steps)) <= 64


async def test_a_future_is_done_at_once_in_a_later_iteration() -> None:
    queue = WakeQueue()
    for _ in range(200):
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.wake(future)
        assert future.done()
        await asyncio.sleep(0)


async def test_cancelled_futures_are_skipped_and_errors_arrive() -> None:
    queue = WakeQueue()
    futures = [asyncio.get_running_loop().create_future() for _ in range(200)]
    for future in futures[::2]:
        future.cancel()
    for future in futures:
        queue.wake(future, ValueError("full"))
    results = await asyncio.gather(*futures[1::2], return_exceptions=True)
    assert [str(result) for result in results] == ["full"] * 100
    with pytest.raises(asyncio.CancelledError):
        await futures[0]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_each_of_150_connections_is_closed(is_cancelled: bool) -> None:
    server = RawServer(HELLO)
    async with open_pool(server) as pool:
        url = f"http://127.0.0.1:{server.port}/"
        await asyncio.gather(*(post(pool, url) for _ in range(150)))
        count = server.connections
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        if is_cancelled:
            closing.cancel()
        await asyncio.wait([closing])
        await wait_until(lambda: server.ended == count)
    assert count > 128


def test_the_first_collection_comes_later_than_the_others() -> None:
    thresholds = gc.get_threshold()
    callbacks = list(gc.callbacks)
    try:
        collect_garbage_less_often()
        assert gc.get_threshold()[0] == 100_000
        gc.collect(0)
        assert gc.get_threshold()[0] == 50_000
    finally:
        gc.callbacks[:] = callbacks
        gc.set_threshold(*thresholds)


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
