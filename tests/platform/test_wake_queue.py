"""Tests of the wake queue: many futures are done in order, a few in each iteration of the loop."""

import asyncio
from itertools import pairwise

import pytest

from mudroom._platform.wake_queue import WakeQueue


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
