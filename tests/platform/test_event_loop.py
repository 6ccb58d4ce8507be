"""Event loops, what wakes their tasks, the ends of pools, and the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import sys
from itertools import pairwise

import pytest
from tests.platform.test_http1 import HELLO, RawServer, open_pool, post
from tests.waiting import wait_until

from mudroom._platform.event_loop import run_event_loop
from mudroom._platform.own_process import collect_garbage_less_often
from mudroom._platform.wake_queue import WakeQueue


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
