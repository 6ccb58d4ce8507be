"""The end of a pool closes all of its connections, a few in each iteration of the event loop."""

import asyncio

import pytest
from tests.platform.test_http1 import HELLO, RawServer, open_pool, post
from tests.waiting import wait_until


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
