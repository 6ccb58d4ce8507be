"""Processes of mudroom run on uvloop where it is installed, and on asyncio's loop elsewhere."""

from __future__ import annotations

import asyncio
import sys

import pytest
from tests.platform.test_http1 import HELLO, RawServer, open_pool, post

from mudroom._platform.event_loop import run_event_loop


async def get_loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_the_loop_is_that_of_uvloop() -> None:
    pytest.importorskip("uvloop")
    assert run_event_loop(get_loop_module()).startswith("uvloop")


def test_the_loop_is_asyncio_s_own_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_event_loop(get_loop_module()).startswith("asyncio")


def test_requests_work_on_uvloop() -> None:
    pytest.importorskip("uvloop")

    async def ask_twice() -> list[bytes]:
        server = RawServer(HELLO, HELLO)
        async with open_pool(server) as pool:
            url = f"http://127.0.0.1:{server.port}/"
            return [await post(pool, url), await post(pool, url)]

    assert run_event_loop(ask_twice()) == [b"hello", b"hello"]
