"""Limits that runs in several worker processes share: they hold as in one process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mudroom import (
    AnyEvent,
    AssistantMessage,
    Budget,
    Reason,
    Session,
    TextBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._core.events import TurnStarted
from mudroom.testing import Answer, Request, ScriptedModel, call

from ..worker_kinds import open_session
from .far_place import get_worker

ANSWER = Usage(input_tokens=1_200, output_tokens=800)


async def read_on(request: Request) -> AssistantMessage:
    """Read another part each turn, for 2,000 tokens; give a summary when there are no tools."""
    await asyncio.sleep(0.01)
    if not request.tools:
        return AssistantMessage((TextBlock("summary"),), usage=ANSWER)
    arguments = {"path": "notes.txt", "limit": request.turn + 1}
    call = ToolCallBlock(f"c{request.number}", "read", arguments)
    return AssistantMessage((TextBlock("so far"), call), usage=ANSWER)


def open_in_processes(folder: Path, model: ScriptedModel, **options: Any) -> Session:
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    return open_session(folder, model, **({"worker": "process:2"} | options))


@pytest.mark.parametrize(
    ("budget", "name", "answer"),
    [
        (Budget(total_tokens=13_000), "total_tokens", 2_000),
        (Budget(output_tokens=5_000), "output_tokens", 800),
        (Budget(input_tokens=8_000), "input_tokens", 1_200),
        (Budget(usd=0.1), "usd", (3 * 1_200 + 15 * 800) / 1_000_000),
    ],
    ids=["total", "output", "input", "usd"],
)
async def test_processes_pass_a_limit_by_one_answer_at_most(
    budget: Budget, name: str, answer: float, tmp_path: Path
) -> None:
    model = ScriptedModel(read_on, "anthropic:claude-sonnet-4-5")
    async with open_in_processes(tmp_path, model, budget=budget) as session:
        reports = await session.map(["read"] * 6)
        assert len(get_worker(session).pids) == 2
    assert {report.reason for report in reports} == {Reason.BUDGET}
    amounts = reports if name == "usd" else [report.usage for report in reports]
    spent, limit = sum(getattr(amount, name) for amount in amounts), getattr(budget, name)
    # What was held for a summary that took less is left.
    assert limit - 2 * answer <= spent <= limit + answer


async def test_processes_take_no_turn_too_many(tmp_path: Path) -> None:
    model = ScriptedModel(read_on)
    async with open_in_processes(tmp_path, model, budget=Budget(turns=7)) as session:
        reports = await session.map(["read"] * 6)
    assert {report.reason for report in reports} == {Reason.MAX_TURNS}
    assert len([request for request in model.requests if request.tools]) == 7


@pytest.mark.parametrize("children", [2, 3, 5, 9])
async def test_processes_start_exactly_the_children_that_a_limit_allows(
    children: int, tmp_path: Path
) -> None:
    all_leads = asyncio.Barrier(2)

    async def start(request: Request) -> Answer:
        if request.turn or request.prompt.startswith("LEAF"):
            return "done"
        if request.prompt.startswith("LEAD"):
            await all_leads.wait()
        name, count = ("LEAD", 2) if request.prompt == "PARENT" else ("LEAF", 8)
        return [call("task", prompt=f"{name} {number}") for number in range(count)]

    runs: set[str] = set()
    budget = Budget(children=children, depth=2)
    async with open_in_processes(tmp_path, ScriptedModel(start), budget=budget) as session:
        session.watch(lambda event: runs.add(event.run) if "." in event.run else None)
        report = await session.run("PARENT")
        assert len(get_worker(session).pids) == 2
    assert report.ok and len(runs) == children


async def test_a_lost_process_releases_its_requests_and_turns(tmp_path: Path) -> None:
    has_killed = False

    async def answer(request: Request) -> AssistantMessage:
        nonlocal has_killed
        if not has_killed and request.turn == 1:
            has_killed = True
            os.kill(get_worker(session).pids[0], signal.SIGKILL)
            await asyncio.sleep(3600)
        return await read_on(request)

    model = ScriptedModel(answer)
    turns: list[AnyEvent] = []
    budget = Budget(turns=4, total_tokens=200_000)
    options: dict[str, Any] = {"worker": "process:1", "budget": budget}
    async with open_in_processes(tmp_path, model, **options) as session:
        session.watch(lambda event: turns.append(event) if isinstance(event, TurnStarted) else None)
        report = await asyncio.wait_for(session.task("read"), 60)
    assert has_killed and report.reason is Reason.MAX_TURNS
    assert len([request for request in model.requests if request.tools]) == 4 + 1, (
        "the request of the lost process is repeated"
    )
