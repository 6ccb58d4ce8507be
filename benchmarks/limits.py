"""What shared limits leave behind: fan-outs that money, tokens or time cannot pay in full.

    python -m benchmarks.limits

Each answer takes half a second of virtual time or more, and the provider counts the tokens.
Printed are how many children finished, how many of those that began left words, how many worked at
once, and the share of the money that went to children that did not finish. The exit code is 1 when
a figure misses its goal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mudroom import (
    AnyEvent,
    AssistantMessage,
    Budget,
    Children,
    Reason,
    Report,
    Session,
    TextBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._adapters.models.scripted import Request, ScriptedModel, call
from mudroom._core.events import RunFinished
from mudroom._core.messages import StopReason
from mudroom.testing.clock import run_virtual

MODEL = "anthropic:claude-sonnet-4-5"
"""3 dollars for a million tokens of input, 15 for output."""

SECONDS = 0.5


class Child(Struct, frozen=True):
    """How the children of a fan-out work.

    Arguments:
        requests: answers that a child gives until it has finished.
        sent, written: tokens of each request and of each answer, as the provider counts them.
        spread: times half a second that an answer may take longer than that.
        is_silent: true for no words beside calls: only a last answer, or a summary, leaves some.
            The parent is always silent.
    """

    requests: int
    sent: int
    written: int
    spread: float = 0.0
    is_silent: bool = False

    def choose_seconds(self, number: int) -> float:
        """Return how long the answer to a request takes, by its number."""
        return SECONDS * (1 + self.spread * (number * 0.618 % 1))


class Outcome(Struct):
    """What a fan-out left behind.

    Arguments:
        answer: report of the parent; None for a map.
        reports: of the children, those that did not begin included.
    """

    reports: dict[str, Report]
    answer: Report | None
    at_once: int
    seconds: float
    usd: float

    @property
    def begun(self) -> list[Report]:
        """Reports of the children that made a request."""
        return [report for report in self.reports.values() if report.turns]

    @property
    def finished(self) -> list[Report]:
        """Reports of the children that reached their goal."""
        return [report for report in self.begun if report.reason is Reason.GOAL]

    @property
    def wordless(self) -> int:
        """Children that began and left no words."""
        return sum(not report.text for report in self.begun)

    @property
    def wasted(self) -> float:
        """Share of the money that went to children that did not finish."""
        lost = sum(report.usd or 0 for report in self.begun if report.reason is not Reason.GOAL)
        return lost / self.usd if self.usd else 0.0


class FanOut:
    """A parent with children, or a map, against a scripted provider."""

    def __init__(self, child: Child, count: int) -> None:
        self.model = ScriptedModel(self._answer, MODEL)
        self.reports: dict[str, Report] = {}
        self.at_once = 0
        self._child = child
        self._count = count
        self._working = 0

    async def _answer(self, request: Request) -> AssistantMessage:
        self._working += 1
        self.at_once = max(self.at_once, self._working)
        await asyncio.sleep(self._child.choose_seconds(request.number))
        self._working -= 1
        sent, written = self._child.sent, self._child.written
        calls: list[ToolCallBlock] = []
        if request.prompt == "PARENT":
            written = 200
            if not request.turn:
                prompts = [f"CHILD {place}" for place in range(self._count)]
                calls = [call("task", prompt=prompt) for prompt in prompts]
        elif request.tools and request.turn + 1 < self._child.requests:
            calls = [call("read", path="notes.txt", limit=request.turn + 1)]
        if request.max_tokens is not None and written > request.max_tokens:
            usage = Usage(sent, request.max_tokens)
            return AssistantMessage((TextBlock("cut"),), StopReason.LENGTH, usage)
        named = [
            replace(each, id=f"call_{request.number}_{place}") for place, each in enumerate(calls)
        ]
        is_silent = named and (self._child.is_silent or request.prompt == "PARENT")
        words = () if is_silent else (TextBlock("words"),)
        stop = StopReason.CALLS if named else StopReason.END
        return AssistantMessage((*words, *named), stop, Usage(sent, written))


async def run_children(
    child: Child, count: int, budget: Budget, *, at_once: int | None = None
) -> Outcome:
    """Let a parent start all children in one answer.

    Arguments:
        at_once: children that may work at the same time; all of them by default.
    """
    fan_out = FanOut(child, count)
    with TemporaryDirectory(prefix="mudroom-bench-") as folder:
        Path(folder, "notes.txt").write_text("notes\n" * 10)

        def watch(event: AnyEvent) -> None:
            if isinstance(event, RunFinished) and event.run != "1":
                fan_out.reports[event.run] = event.report

        slots = at_once or count
        async with _open(
            fan_out, folder, prompt_budget=budget, children=Children(parallel=slots)
        ) as session:
            start = asyncio.get_running_loop().time()
            session.watch(watch)
            answer = await session.run("PARENT")
            seconds = asyncio.get_running_loop().time() - start
    return Outcome(fan_out.reports, answer, fan_out.at_once, seconds, answer.usd or 0.0)


async def run_map(child: Child, count: int, budget: Budget) -> Outcome:
    """Run a map of all tasks at once under the budget of the session."""
    fan_out = FanOut(child, count)
    with TemporaryDirectory(prefix="mudroom-bench-") as folder:
        Path(folder, "notes.txt").write_text("notes\n" * 10)
        async with _open(fan_out, folder, budget=budget) as session:
            start = asyncio.get_running_loop().time()
            reports = await session.map(
                [f"CHILD {place}" for place in range(count)], parallel=count
            )
            seconds = asyncio.get_running_loop().time() - start
    named = {str(place): report for place, report in enumerate(reports)}
    usd = sum(report.usd or 0 for report in reports)
    return Outcome(named, None, fan_out.at_once, seconds, usd)


def _open(fan_out: FanOut, folder: str, **options: Any) -> Session:
    return Session(
        model=fan_out.model,
        cwd=folder,
        home=f"{folder}/home",
        sandbox="off",
        journal="memory",
        environ={},
        **options,
    )


class Goal(Struct, frozen=True):
    """What a fan-out must leave behind.

    Arguments:
        finished: children that must finish. at_once: children that must work at the same time.
        wasted: highest share of the money for children that do not finish.
        slower: highest factor of the time without a limit.
        latest: highest number of seconds.
    """

    finished: int
    at_once: int = 1
    wasted: float = 1.0
    slower: float = 100.0
    latest: float = 1_000.0


def list_fan_outs() -> Iterator[tuple[str, Coroutine[Any, Any, Outcome], Goal]]:
    """Yield the fan-outs with their names and goals."""
    large, small, three = Child(8, 20_000, 1_000), Child(1, 600, 60), Child(3, 100, 20)
    price = 3 * (100 * 3 + 20 * 15) / 1e6
    name = "25 children of 8 large requests, "
    yield name + "5 dollars", run_children(large, 25, Budget(usd=5.0)), Goal(2)
    tokens = Budget(total_tokens=1_400_000)
    yield name + "1,400,000 tokens", run_children(large, 25, tokens), Goal(2)
    yield "12 small children, 1 dollar", run_children(small, 12, Budget(usd=1.0)), Goal(12, 12)
    tokens = Budget(total_tokens=100_000)
    yield "12 small children, 100,000 tokens", run_children(small, 12, tokens), Goal(12, 10)
    yield (
        "map of 60 tasks, money for 30",
        run_map(three, 60, Budget(usd=30 * price)),
        Goal(26, 1, 0.1),
    )
    yield (
        "the same, money for 1,200",
        run_map(three, 60, Budget(usd=1_200 * price)),
        Goal(60, 60, 0, 1.4),
    )
    name = "20 children of 3 requests, "
    three = replace(three, is_silent=True)
    yield name + "2.4 s", run_children(three, 20, Budget(seconds=2.4)), Goal(0, 20, latest=2.4)
    uneven = replace(three, spread=2.0)
    # The limit is passed by no more than the last answer of the parent.
    goal = Goal(5, 20, latest=8 + 3 * SECONDS)
    yield name + "uneven, 8 s", run_children(uneven, 20, Budget(seconds=8)), goal
    fours = run_children(three, 20, Budget(seconds=6), at_once=4)
    yield name + "4 at once, 6 s", fours, Goal(8, 4, latest=6)
    timed = Budget(seconds=60)
    yield name + "a minute", run_children(three, 20, timed), Goal(20, 20, 0, latest=3)


def main() -> int:
    """Run the fan-outs, print what they left behind, and return 1 if a goal is missed."""
    free = run_virtual(run_map(Child(3, 100, 20), 60, Budget())).seconds
    missed = 0
    for name, work, goal in list_fan_outs():
        outcome = run_virtual(work)
        answer = outcome.answer
        is_met = (
            len(outcome.finished) >= goal.finished
            and not outcome.wordless
            and outcome.at_once >= goal.at_once
            and outcome.wasted <= goal.wasted
            and outcome.seconds <= min(goal.slower * free, goal.latest)
            and (answer is None or bool(answer.text))
        )
        missed += not is_met
        print(
            f"{'held  ' if is_met else 'MISSED'} {name}: {len(outcome.finished)} finished of "
            f"{len(outcome.begun)} that began, {outcome.wordless} without words, "
            f"{outcome.at_once} at once, {outcome.seconds:.1f} s, {outcome.usd:.4f} dollars, "
            f"{outcome.wasted:.0%} for children that did not finish"
            + (f"; the parent: {answer.reason}, {answer.text!r}" if answer else "")
        )
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
