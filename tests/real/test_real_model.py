"""Runs of a real model over the wires of mudroom: conversations, calls, children, stops, limits."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mudroom import Agent, ModelOptions, Reason, Session
from mudroom._adapters.models._wire import WireModel
from mudroom._platform.time_limits import SystemClock
from mudroom._session.model_registry import ModelRegistry
from mudroom.testing import load_replay_model

from .conftest import LlamaServer, StartServer
from .pass_through import ForcedCalls, open_pass_through

WIRES = ["openai-chat", "openai-responses", "anthropic"]
TALKER = Agent(name="talker", description="Talks.", instructions="You talk.", tools=())
READER = Agent(
    name="reader", description="Reads.", instructions="You read.", tools=("read", "glob")
)
LEADER = Agent(name="leader", description="Leads.", instructions="You lead.", tools=("task",))


def make_environ(url: str) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": url,
    }


def open_session(url: str, wire: str, folder: Path, agent: Agent, **options: Any) -> Session:
    return Session(
        model=f"{wire}:smollm2",
        cwd=str(folder),
        journal="memory",
        environ=make_environ(url),
        agent=agent,
        **options,
    )


@pytest.mark.parametrize("wire", WIRES)
async def test_a_conversation_of_two_prompts(
    wire: str, server: LlamaServer, tmp_path: Path
) -> None:
    async with (
        open_pass_through(server.url) as url,
        open_session(url, wire, tmp_path, TALKER) as session,
    ):
        first = await session.run("What do you see?")
        second = await session.run("What else do you see?")
    for report in (first, second):
        assert report.reason is Reason.GOAL, report.error
        assert report.text
        assert report.usage.output_tokens > 0
    assert second.usage.input_tokens > first.usage.input_tokens


@pytest.mark.parametrize("wire", WIRES)
async def test_a_forced_call_reads_a_file(
    wire: str, server: LlamaServer, calling_server: LlamaServer, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("a red door")
    calls = ForcedCalls(calling_server.url, {"read": {"file_path": "notes.txt"}})
    async with (
        open_pass_through(server.url, calls) as url,
        open_session(url, wire, tmp_path, READER) as session,
    ):
        report = await session.run("Read notes.txt.")
    assert report.reason is Reason.GOAL, report.error
    assert list(report.calls) == ["read"]
    assert report.failed == 0


# The server's Anthropic protocol does not take the fields that make several calls likely.
@pytest.mark.parametrize("wire", WIRES[:2])
async def test_several_calls_of_an_answer_have_their_results(
    wire: str, server: LlamaServer, calling_server: LlamaServer, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("a red door")
    arguments = {"read": {"file_path": "notes.txt"}, "glob": {"pattern": "*.txt"}}
    calls = ForcedCalls(calling_server.url, arguments, has_several=True)
    async with (
        open_pass_through(server.url, calls) as url,
        open_session(url, wire, tmp_path, READER) as session,
    ):
        report = await session.run("Read notes.txt, and list the files.")
    assert report.reason is Reason.GOAL, report.error
    assert report.turns == 2
    assert sum(report.calls.values()) > 1
    assert report.failed == 0


@pytest.mark.parametrize("wire", WIRES)
async def test_a_child_runs_on_the_same_server(
    wire: str, server: LlamaServer, calling_server: LlamaServer, tmp_path: Path
) -> None:
    task = {"description": "Look", "prompt": "What do you see?", "agent": "talker"}
    calls = ForcedCalls(calling_server.url, {"task": task})
    async with (
        open_pass_through(server.url, calls) as url,
        open_session(url, wire, tmp_path, LEADER, agents=[TALKER]) as session,
    ):
        report = await session.run("Let the talker look.")
    assert report.reason is Reason.GOAL, report.error
    assert list(report.calls) == ["task"]
    assert report.failed == 0


@pytest.mark.parametrize("wire", WIRES)
async def test_a_cancelled_run_stops_the_server(
    wire: str, server: LlamaServer, tmp_path: Path
) -> None:
    async with open_session(server.url, wire, tmp_path, TALKER) as session:
        running = asyncio.create_task(session.run("Write a very long story of many chapters."))
        await _wait_for(server, generating=True)
        assert session.runs.cancel()
        report = await running
        await _wait_for(server, generating=False)
    assert report.reason is Reason.CANCELLED
    count = await asyncio.to_thread(server.count_generated_tokens)
    await asyncio.sleep(0.5)
    assert await asyncio.to_thread(server.count_generated_tokens) == count


async def _wait_for(server: LlamaServer, *, generating: bool, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while await asyncio.to_thread(server.is_generating) is not generating:
        assert time.monotonic() < deadline, f"generating is not {generating} after {seconds} s"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_full_window_is_an_error_with_a_remedy(
    wire: str, start_server: StartServer, tmp_path: Path
) -> None:
    small = start_server(512, ())
    async with open_session(small.url, wire, tmp_path, TALKER) as session:
        report = await session.run("one two three four five six seven eight nine ten " * 100)
    assert report.reason is Reason.ERROR
    assert "exceeds the available context size (512 tokens)" in report.error
    assert "/compact" in report.error


async def test_an_address_alone_gives_model_and_window_and_no_price(
    server: LlamaServer, tmp_path: Path
) -> None:
    environ = {"OPENAI_BASE_URL": f"{server.url}/v1"}
    registry = ModelRegistry(environ, SystemClock(), load_replay_model)
    name = await registry.choose_default()
    assert name == "openai:smollm2"
    model = registry.get_model(name)
    assert isinstance(model, WireModel)
    assert model.facts.context_window == 8192
    async with (
        open_pass_through(server.url) as url,
        Session(
            cwd=str(tmp_path),
            journal="memory",
            environ={"OPENAI_BASE_URL": f"{url}/v1"},
            agent=TALKER,
            model_options=ModelOptions(prices=True),
        ) as session,
    ):
        report = await session.run("What do you see?")
    assert (report.model, report.reason) == ("openai:smollm2", Reason.GOAL), report.error
    assert report.usd is None


async def test_doctor_tests_a_request(server: LlamaServer, tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": f"{server.url}/v1", "HOME": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mudroom", "doctor", "--json"),
        cwd=tmp_path,
        env=environ | {"PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["model request"]["state"] == "ok"
    assert checks["model request"]["found"].startswith("openai:smollm2 answers in ")
