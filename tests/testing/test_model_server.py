"""The scripted server and the clocks that other tests stand on."""

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import aiohttp
import pytest

from mudroom._core.messages import TextBlock, ToolCallBlock
from mudroom.testing.clock import FakeClock, LoopClock, run_virtual
from mudroom.testing.model_server import (
    Fault,
    ModelServer,
    ServerAnswer,
    ServerRequest,
    family_script,
)

TOOLS = {
    "anthropic": [{"name": "read"}, {"name": "task"}],
    "openai": [
        {"type": "function", "function": {"name": "read"}},
        {"type": "function", "function": {"name": "task"}},
    ],
    "google": [{"functionDeclarations": [{"name": "read"}, {"name": "task"}]}],
}
PATHS = {
    "anthropic": "/v1/messages",
    "openai": "/v1/chat/completions",
    "google": "/v1beta/models/m:generateContent",
}


def make_body(dialect: str, *, turns: int = 0, stream: bool = False) -> dict[str, Any]:
    role, messages = ("model", "contents") if dialect == "google" else ("assistant", "messages")
    sent: list[dict[str, Any]] = [{"role": "user"}, *({"role": role} for _ in range(turns))]
    return {
        "model": "m",
        "tools": TOOLS[dialect],
        messages: sent,
        **({"stream": True} if stream else {}),
    }


async def post(server: ModelServer, path: str, sent: dict[str, Any]) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url + path, json=sent) as answer,
    ):
        return answer.status, answer.content_type, await answer.text()


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_script_sees_the_request_in_every_dialect(dialect: str) -> None:
    async with ModelServer(
        lambda asked: (
            f"{asked.dialect} {asked.model} {asked.tools} {asked.turn} {asked.is_streaming}"
        )
    ) as server:
        _, kind, text = await post(server, PATHS[dialect], make_body(dialect, turns=2))
        assert kind == "application/json"
        assert f"{dialect} m ['read', 'task'] 2 False" in text
        assert server.requests[0].messages[0] == {"role": "user"}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("is_fault", [False, True])
async def test_a_text_in_a_list_is_a_text_block(dialect: str, is_fault: bool) -> None:
    blocks = ["Look.", ToolCallBlock("c", "read", {"path": "a"})]
    async with ModelServer(lambda _: Fault(blocks) if is_fault else blocks) as server:
        status, _, text = await post(server, PATHS[dialect], make_body(dialect))
    assert status == 200
    assert "Look." in text
    assert "read" in text


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_stream_is_sent_when_one_is_asked_for(dialect: str) -> None:
    path = PATHS[dialect].replace(":generate", ":streamGenerate")
    async with ModelServer(
        lambda _: (TextBlock("Hello."), ToolCallBlock("c", "read", {"path": "a"}))
    ) as server:
        _, kind, text = await post(server, path, make_body(dialect, stream=dialect != "google"))
        assert kind == "text/event-stream"
        assert "Hello." in text
        assert "data: " in text


async def test_a_fault_answers_model_requests_and_other_paths_are_unknown() -> None:
    async with ModelServer(
        lambda _: Fault(status=429, headers={"Retry-After": "3"}, body=b"slow")
    ) as server:
        assert await post(server, "/v1/messages", make_body("anthropic")) == (
            429,
            "application/json",
            "slow",
        )
        assert (await post(server, "/v1/other", {}))[0] == 404
        assert (server.request_count, server.in_flight, server.peak_in_flight) == (1, 0, 1)


def test_the_family_script_makes_tasks_then_reads_then_reports() -> None:
    script = family_script(3, 2)

    def choose_answer(dialect: str, turns: int, *, parent: bool) -> ServerAnswer:
        tools = TOOLS[dialect] if parent else TOOLS[dialect][:1]
        asked = ServerRequest(
            dialect,
            PATHS[dialect],
            {},
            json.dumps({**make_body(dialect, turns=turns), "tools": tools}).encode(),
            1,
        )
        answer = script(asked)
        assert not hasattr(answer, "__await__")
        return answer  # pyright: ignore[reportReturnType]

    tasks = choose_answer("anthropic", 0, parent=True)
    assert [block.name for block in tasks if isinstance(block, ToolCallBlock)] == ["task"] * 3  # pyright: ignore
    assert isinstance(choose_answer("anthropic", 1, parent=True), str)
    reads = choose_answer("openai", 1, parent=False)
    assert [block.name for block in reads if isinstance(block, ToolCallBlock)] == ["read"]  # pyright: ignore
    assert len(str(choose_answer("openai", 2, parent=False))) == 80


def test_the_server_is_a_process_of_its_own_until_stdin_ends() -> None:
    command = [
        sys.executable,
        "-m",
        "mudroom.testing.model_server",
        "--children",
        "2",
        "--turns",
        "1",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_virtual_time_takes_none() -> None:
    async def work() -> float:
        clock, began = LoopClock(), time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await clock.sleep(7200)
        await asyncio.gather(*(clock.sleep(seconds) for seconds in (5, 10, 20)))
        assert time.monotonic() - began < 60
        assert clock.now() > 1_600_000_000
        return clock.monotonic()

    assert run_virtual(work()) == 3620


def test_virtual_time_waits_for_sockets() -> None:
    async def work() -> float:
        async with ModelServer(lambda _: Fault("Hello.", delay=200)) as server:
            await post(server, "/v1/messages", make_body("anthropic"))
        return asyncio.get_running_loop().time()

    assert run_virtual(work()) == pytest.approx(200, abs=20)


async def test_a_fake_clock_moves_only_when_slept_on() -> None:
    clock = FakeClock(100)
    await clock.sleep(5)
    clock.advance(2)
    assert (clock.now(), clock.monotonic(), clock.sleeps) == (107, 7, [5])
