"""Tests of the limit of open files: raised by the program, and clear errors where it is reached."""

import asyncio
import subprocess
import sys

import pytest

from mudroom._platform.http1.pool import ConnectionPool

from .test_http1 import HELLO, OK, RawServer, open_pool, post

RAISED = """
import resource, sys
from mudroom._cli.main import main
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
sys.argv = ["mudroom", "help"]
try:
    main()
finally:
    print("limit", *resource.getrlimit(resource.RLIMIT_NOFILE))
"""

FULL = """
import asyncio, os, resource
from contextlib import suppress
from mudroom._core.messages import user_message
from mudroom._core.ports import RequestConfig
from mudroom.errors import ModelUnavailable
from mudroom._adapters.models._errors import ProviderHints
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom.testing.clock import FakeClock

async def main():
    http = HttpClient(clock=FakeClock(), hints=ProviderHints("anthropic", "KEY", "URL"))
    model = AnthropicModel("m", http=http, key="k", base_url="http://127.0.0.1:1")
    conversation = model.start_conversation(RequestConfig(system=""))
    conversation.append(user_message("Go on."))
    asyncio.get_running_loop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with suppress(OSError):
        while True:
            os.dup(0)
    try:
        async for _ in conversation.request_answer():
            pass
    except ModelUnavailable as error:
        print(error)

asyncio.run(main())
"""


def run_python(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_program_raises_its_limit_of_open_files() -> None:
    output = run_python(RAISED)
    soft, hard = map(int, output.rpartition("limit ")[2].split())
    assert soft == (16_384 if hard == -1 else min(hard, 16_384))


def test_an_error_names_the_limit_of_open_files_and_its_remedy() -> None:
    output = run_python(FULL)
    assert "cannot open a connection to anthropic: Too many open files" in output
    assert "Raise the limit with `ulimit -n`, or run fewer children at once." in output


async def test_requests_that_wait_for_a_connection_cause_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mudroom._platform.http1.pool._MAX_CONNECTIONS", 16)
    server = RawServer(HELLO)
    async with open_pool(server) as pool:
        url = f"http://127.0.0.1:{server.port}/"
        await asyncio.gather(*[post(pool, url) for _ in range(16)])
        assert not caplog.records
        assert await asyncio.gather(*[post(pool, url) for _ in range(40)]) == [b"hello"] * 40
    assert [record.getMessage() for record in caplog.records] == [
        "16 connections to models are open, as many as the limit of open files allows. "
        "More requests wait. Raise the limit with `ulimit -n`."
    ]


async def test_hundreds_of_requests_are_in_flight_at_once() -> None:
    server = RawServer(OK + b"Content-Length: 5\r\n\r\nhe")
    async with open_pool(server) as pool:
        url = f"http://127.0.0.1:{server.port}/"
        count = min(400, pool_size(pool) // 4)
        responses = await asyncio.gather(*[pool.get(url, {}) for _ in range(count)])
        assert server.connections == count
        for response in responses:
            response.close(is_answered=False)


def pool_size(pool: ConnectionPool) -> int:
    return pool._max_connections  # pyright: ignore[reportPrivateUsage]
