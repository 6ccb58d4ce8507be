"""Limits of a session over runs at three levels: words of all that began, and a record to replay.

Everything in a tree follows from its seed; the provider counts about what the requests have.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from mudroom import (
    Agent,
    AssistantMessage,
    Budget,
    Children,
    Reason,
    Report,
    Session,
    TextBlock,
    Usage,
    tool,
)
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Request, ScriptedModel, call
from mudroom._core.events import RunFinished, RunStarted, StoredEvent
from mudroom._core.messages import StopReason, ToolCallBlock, ToolResultBlock
from mudroom._replay import replay
from mudroom.testing.clock import run_virtual
from mudroom.testing.invariants import find_violations

from ..long_form import count_examples

SEEDS = (*range(count_examples(25, 100)), 113, 387)
"""In the last two, calls are cut off whose children wait for a place."""

TIMED_SEEDS = (30, 31, 41, 42, 52, 53, 63, 64, *range(count_examples(0, 400)))
"""Trees with a limit of time, where some calls never return."""

SLOWEST = 2.0
"""Seconds of the slowest answer."""

MODEL = "anthropic:claude-sonnet-4-5"
PARENT = Agent(
    name="parent",
    description="Delegates.",
    instructions="Delegate.",
    tools=("read", "task", "wait", "stand_still"),
    budget=Budget(depth=2),
)
LIMITS = (
    Budget(usd=0.1, depth=3),
    Budget(usd=0.8, depth=3),
    Budget(total_tokens=30_000, depth=3),
    Budget(input_tokens=40_000, depth=3),
    Budget(input_tokens=80_000, depth=3),
    Budget(output_tokens=8_000, depth=3),
    Budget(turns=2, depth=3),
    Budget(turns=4, total_tokens=80_000, depth=3),
    Budget(seconds=5, input_tokens=40_000, depth=3),
    Budget(seconds=10, depth=3),
    Budget(children=2, usd=0.4, depth=3),
)


@tool
async def stand_still() -> str:
    """Wait without end."""
    await asyncio.sleep(1e6)
    return "never"


class DeepTree:
    """A parent whose children start children of their own, in the background or not."""

    def __init__(self, seed: int, *, hangs: bool = False) -> None:
        self._seed = seed
        self._hangs = hangs
        draw = self._draw("options")
        self.budget = LIMITS[seed % len(LIMITS)]
        self.is_map = draw.random() < 0.3
        self.max_children = draw.choice((1, 3, 64))
        self.journal = MemoryJournal()

    def _draw(self, *place: object) -> random.Random:
        return random.Random(f"{self._seed} {place}")

    async def answer(self, request: Request) -> AssistantMessage:
        draw = self._draw(request.prompt, request.turn, bool(request.tools))
        await asyncio.sleep(draw.choice((0.1, 0.5, 1.0)) * (1 + draw.random()))
        calls: list[ToolCallBlock] = []
        if request.tools and request.turn < self._draw(request.prompt).choice((1, 2, 4)):
            calls = self._draw_calls(draw, request)
        written = draw.randint(20, 600)
        if request.max_tokens is not None and written > request.max_tokens:
            usage = Usage(_count_tokens(request), request.max_tokens)
            return AssistantMessage((TextBlock("cut"),), StopReason.LENGTH, usage)
        usage = Usage(_count_tokens(request), written)
        if calls:
            return AssistantMessage(tuple(calls), StopReason.CALLS, usage)
        return AssistantMessage((TextBlock("words"),), StopReason.END, usage)

    def _draw_calls(self, draw: random.Random, request: Request) -> list[ToolCallBlock]:
        if self._hangs and self._draw("hang", request.prompt, request.turn).random() < 0.2:
            return [call("stand_still")]
        calls = [call("read", path="notes.txt", limit=request.turn + 1)]
        if draw.random() < 0.1:
            calls.append(call("wait", timeout=draw.choice((1, 5))))
        if "task" not in request.tools or request.turn > 1:
            return calls
        is_background = draw.random() < 0.5
        for place in range(draw.choice((1, 2, 5))):
            prompt = f"{request.prompt}.{request.turn}{place}"
            calls.append(call("task", prompt=prompt, agent="parent", background=is_background))
        return calls

    async def run(self) -> list[Report]:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "notes.txt").write_text("notes\n" * 10)
            async with Session(
                model=ScriptedModel(self.answer, MODEL),
                cwd=folder,
                home=f"{folder}/home",
                environ={},
                sandbox="off",
                journal=self.journal,
                budget=self.budget,
                agents=[PARENT],
                tools=[stand_still],
                children=Children(parallel=self.max_children),
            ) as session:
                async with asyncio.timeout(1_000):
                    if self.is_map:
                        return await session.map([f"T{n}" for n in range(5)], agent="parent")
                    return [await session.run("R")]


def _count_tokens(request: Request) -> int:
    characters = len(request.system) + (2_200 if request.tools else 0)
    for message in request.messages:
        for block in message.content:
            if isinstance(block, TextBlock | ToolResultBlock):
                characters += len(block.text)
            elif isinstance(block, ToolCallBlock):
                characters += len(str(block.arguments)) + 20
    return characters // 4


@pytest.mark.parametrize("seed", SEEDS)
def test_s16_a_run_at_any_depth_leaves_words_or_says_that_it_did_not_begin(seed: int) -> None:
    check_tree(DeepTree(seed))


@pytest.mark.parametrize("seed", TIMED_SEEDS)
def test_s16_runs_beside_calls_that_never_return_leave_words_in_time(seed: int) -> None:
    tree = DeepTree(seed, hangs=True)
    seconds = tree.budget.seconds or 15
    tree.budget = replace(tree.budget, seconds=seconds)
    for report in check_tree(tree):
        # Late is at most one answer of the run, and one of a run below.
        assert report.seconds <= seconds + 2 * SLOWEST


def check_tree(tree: DeepTree) -> list[Report]:
    """Run a tree, check its record, and return the reports of the runs that the program starts."""
    answers = run_virtual(tree.run())
    events: list[StoredEvent] = tree.journal.events
    reports = {event.run: event.report for event in events if isinstance(event, RunFinished)}
    assert {event.run for event in events if isinstance(event, RunStarted)} <= reports.keys()
    allowed = {Reason.GOAL, Reason.BUDGET, Reason.TIMEOUT, Reason.MAX_TURNS}
    for report in [*reports.values(), *answers]:
        assert report.reason in allowed, report
        if report.turns:
            assert report.text, report
        else:
            assert report.error.startswith("not started: "), report
    assert not find_violations(events, timed=False)
    assert asyncio.run(replay(events)) == events
    return answers
