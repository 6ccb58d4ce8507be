"""Reasons of runs that the limit of a run above ends: that limit, wherever they work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mudroom import AnyEvent, AssistantMessage, Budget, Children, Reason, Report, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import RunFinished, TurnStarted
from mudroom._core.messages import StopReason, TextBlock, ToolCallBlock, Usage
from mudroom._replay import replay
from mudroom.testing.clock import run_virtual

from ..worker_kinds import NEEDS_RAY, open_session
from .conftest import Stage

LIMITS = {
    Reason.MAX_TURNS: Budget(turns=2, depth=2),
    Reason.BUDGET: Budget(total_tokens=60_000, depth=2),
    Reason.TIMEOUT: Budget(seconds=1.5, depth=2),
}


def make_script(reason: Reason, shape: str) -> ScriptedModel:
    """Return a model whose root reaches its limit while the runs below stand in a command."""
    *deep, lowest = shape.split(", ")
    standing = asyncio.Event()
    nested = {"background": True} if lowest == "background" else {}

    def spend(tokens: int, *calls: ToolCallBlock) -> AssistantMessage:
        return AssistantMessage(calls, StopReason.CALLS, Usage(tokens, 10))

    async def answer(request: Request) -> Answer:
        if not request.tools:
            return AssistantMessage((TextBlock("words"),), StopReason.END, Usage(100, 10))
        if request.prompt == "PARENT":
            if not request.turn:
                return spend(100, call("task", prompt="CHILD", background=True))
            await standing.wait()
            if reason is Reason.TIMEOUT:
                return spend(100, call("bash", command="sleep 600"))
            return spend(58_000, call("read", path="notes.txt"))
        if request.prompt == "CHILD" and deep and not request.turn:
            return spend(100, call("task", prompt="GRANDCHILD", **nested))
        if request.prompt == "GRANDCHILD" or not deep:
            standing.set()
        return spend(100, call("bash", command="sleep 600"))

    return ScriptedModel(answer)


@pytest.mark.parametrize(
    ("shape", "worker"),
    [
        ("background", "local"),
        ("background, background", "local"),
        ("background, foreground", "local"),
        ("background, background", "process:1"),
        pytest.param("background, foreground", "ray:1", marks=NEEDS_RAY),
    ],
)
@pytest.mark.parametrize("reason", LIMITS)
async def test_runs_below_end_for_the_reason_of_the_limit(
    reason: Reason, shape: str, worker: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    journal = MemoryJournal()
    reports: dict[str, Report] = {}

    def watch(event: AnyEvent) -> None:
        if isinstance(event, RunFinished):
            reports[event.run] = event.report

    model = make_script(reason, shape)
    options = {"journal": journal, "prompt_budget": LIMITS[reason]}
    async with open_session(tmp_path, model, worker, **options) as session:
        session.watch(watch)
        async with asyncio.timeout(30):
            report = await session.run("PARENT")
    assert (report.reason, report.recovered, report.text) == (reason, True, "words")
    assert len(reports) == 2 + shape.count(",")
    for run, each in reports.items():
        assert (each.reason, each.recovered, each.text) == (reason, True, "words"), run
    if worker == "local":
        await replay(journal.events)


def test_a_child_that_waits_for_its_place_says_that_it_did_not_begin(stage: Stage) -> None:
    async def answer(request: Request) -> Answer:
        if request.prompt != "PARENT":
            if request.tools:
                await asyncio.sleep(1e6)
            return "words"
        if request.turn == 0:
            return [call("task", prompt=f"CHILD {place}", background=True) for place in range(3)]
        await asyncio.sleep(1)
        return [call("read", path="notes.txt", limit=request.turn)] if request.tools else "words"

    budget = Budget(turns=3)
    report = run_virtual(stage.run(answer, prompt_budget=budget, children=Children(parallel=1)))
    assert (report.reason, report.text) == (Reason.MAX_TURNS, "words")
    assert stage.reports["1.1.1"].text == "words"
    notes = [text for text in stage.list_notes() if "task-notification" in text]
    assert sum("[MAX_TURNS: not started: " in text for text in notes) == 2


@pytest.mark.parametrize(
    "budget",
    [Budget(turns=1), Budget(total_tokens=5_000), Budget(seconds=2.0)],
    ids=["turns", "tokens", "seconds"],
)
def test_a_run_killed_in_its_last_turn_still_names_its_limit(
    budget: Budget, tmp_path: Path
) -> None:
    async def answer(request: Request) -> Answer:
        if request.tools:
            calls = (call("bash", command="sleep 1" if budget.seconds else "true"),)
            return AssistantMessage(calls, StopReason.CALLS, Usage(4_900, 10))
        return "words"

    def open_tree(journal: MemoryJournal, **options: Any) -> Session:
        model = ScriptedModel(answer)
        return Session(
            model=model,
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            sandbox="off",
            journal=journal,
            prompt_budget=budget,
            **options,
        )

    async def work() -> tuple[Report, Report]:
        journal = MemoryJournal()
        async with open_tree(journal) as session:
            whole = await session.run("PARENT")
        cut = 1 + max(n for n, each in enumerate(journal.events) if type(each) is TurnStarted)
        killed = MemoryJournal()
        await killed.append(*journal.events[:cut])
        async with open_tree(killed, resume=session.id) as session:
            resumed = await session.resume_unfinished()
        assert resumed is not None
        return whole, resumed

    whole, resumed = asyncio.run(work())
    assert whole.recovered and resumed.recovered and whole.limit and resumed.limit
    assert (resumed.reason, resumed.limit.name) == (whole.reason, whole.limit.name)
