"""MCP servers of one agent: a process for each of its runs, and for no other run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from mudroom import Agent, Budget, Reason, ServerSpec
from mudroom._adapters.models.scripted import Answer, Request, call

from ...waiting import is_alive, wait_until
from ...worker_kinds import WORKERS
from .servers import count_starts, make_quick, read_log
from .test_session_servers import open_session


def make_own(log: Path, agent: str) -> ServerSpec:
    """Return the server of an agent; its log is no variable, which Ray would refuse to send."""
    server = make_quick(agent=agent)
    return replace(server, command="env", args=(f"SERVER_LOG={log}", server.command, *server.args))


def list_pids(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in read_log(log) if line.startswith("start ")]


OWNER = Agent(name="owner", instructions="", tools=("task", "mcp__quick"))
OTHER = Agent(name="other", instructions="", tools=("read", "mcp__*"))


@pytest.mark.parametrize("worker", WORKERS)
async def test_each_run_of_the_agent_has_a_process_that_ends_with_it(
    tmp_path: Path, worker: str
) -> None:
    log = tmp_path / "log"
    pids: list[int] = []
    offered: dict[str, list[str]] = {}

    def answer(request: Request) -> Answer:
        offered.setdefault(request.prompt, [])
        offered[request.prompt] += [name for name in request.tools if "mcp" in name]
        if request.prompt.startswith("Own"):
            steps: list[Answer] = [
                [call("mcp_find", query="pid")],
                [call("mcp__quick__pid"), call("task", agent="other", prompt="Nested")],
            ]
            if request.turn < len(steps):
                # The second run knows the tools from the first one.
                return steps[request.turn] if "mcp_find" in request.tools else steps[1]
            pids.append(next(int(each.text) for each in request.results if each.text.isdigit()))
            return "owned"
        if request.prompt in ("Other", "Nested"):
            return "other"
        steps = [
            [
                call("task", agent="owner", prompt="Own 1"),
                call("task", agent="other", prompt="Other"),
            ],
            [call("task", agent="owner", prompt="Own 2")],
        ]
        if request.turn:
            assert not is_alive(list_pids(log)[request.turn - 1])
        return steps[request.turn] if request.turn < 2 else "done"

    server = make_own(log, "owner")
    budget = Budget(depth=2)
    async with open_session(
        tmp_path, answer, [server], agents=[OWNER, OTHER], worker=worker, prompt_budget=budget
    ) as session:
        report = await session.run("Delegate.")
        assert session.mcp.servers == ()
    assert report.ok
    assert pids == list_pids(log)
    assert len(set(pids)) == 2
    assert offered["Delegate."] == offered["Other"] == offered["Nested"] == []
    assert "mcp__quick__pid" in offered["Own 2"]


@pytest.mark.parametrize("worker", WORKERS)
async def test_the_process_ends_with_a_cancelled_run(tmp_path: Path, worker: str) -> None:
    log = tmp_path / "log"
    sleeper = Agent(name="sleeper", instructions="", tools=("mcp__quick__sleep",))

    def answer(request: Request) -> Answer:
        if request.prompt == "Sleep.":
            return [call("mcp__quick__sleep")]
        return "done" if request.turn else [call("task", agent="sleeper", prompt="Sleep.")]

    server = make_own(log, "sleeper")
    async with open_session(tmp_path, answer, [server], agents=[sleeper], worker=worker) as session:
        running = asyncio.create_task(session.run("Delegate."))
        await wait_until(lambda: "tools/call" in read_log(log))
        session.runs.cancel()
        report = await running
        await wait_until(lambda: not is_alive(list_pids(log)[0]))
    assert report.reason is Reason.CANCELLED


async def test_a_server_of_its_own_hides_that_of_the_session(tmp_path: Path) -> None:
    shared_log = tmp_path / "shared"
    own_log = tmp_path / "own"
    caller = Agent(name="caller", instructions="", tools=("mcp__quick__pid",))
    results: dict[str, str] = {}

    def answer(request: Request) -> Answer:
        if request.prompt == "Delegate.":
            tasks = [call("task", agent=name, prompt=name) for name in ("owner", "caller")]
            return "done" if request.turn else tasks
        if request.turn:
            results[request.prompt] = request.results[0].text
            return "done"
        return [call("mcp__quick__pid")]

    owner = Agent(name="owner", instructions="", tools=("mcp__quick__pid",))
    servers = [make_quick(log=shared_log), make_own(own_log, "owner")]
    async with open_session(tmp_path, answer, servers, agents=[owner, caller]) as session:
        await session.run("Delegate.")
    assert results == {
        "owner": str(list_pids(own_log)[0]),
        "caller": str(list_pids(shared_log)[0]),
    }


async def test_the_agent_of_the_prompts_keeps_its_process_until_the_session_ends(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    agent = Agent(name="owner", instructions="", tools=("mcp__quick__pid",))

    def answer(request: Request) -> Answer:
        return request.results[0].text if request.results else [call("mcp__quick__pid")]

    server = make_own(log, "owner")
    async with open_session(tmp_path, answer, [server], agent=agent) as session:
        first = await session.run("Who?")
        second = await session.run("Who again?")
        assert [status.state for status in session.mcp.servers] == ["ready"]
        await session.mcp.restart("quick")
        third = await session.run("Who now?")
    assert first.text == second.text != third.text
    assert count_starts(log) == 2
    assert not any(map(is_alive, list_pids(log)))
