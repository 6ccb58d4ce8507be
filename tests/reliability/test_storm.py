"""A provider with few requests a second, or no money, and many children: few retries, none lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mudroom import AnyEvent, Reason, Report, ToolCallBlock
from mudroom._core.events import RunFinished
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import strict_script

from .conftest import CheckRecord, Figure
from .providers import open_session

CHILDREN, RATE = 64, 4


class LimitedProvider:
    """A provider that accepts `RATE` requests a second and refuses the others for one second.

    It counts the requests that arrive before that second is over.
    """

    def __init__(self, status: int, refusal: float) -> None:
        self.status = status
        self.refusal = refusal
        self.second = -1
        self.accepted = 0
        self.pause = (0.0, 0.0)
        self.early = 0

    async def answer(self, request: ServerRequest) -> ServerAnswer:
        now = asyncio.get_running_loop().time()
        start, end = self.pause
        self.early += start < now < end
        if int(now) != self.second:
            self.second = int(now)
            self.accepted = 0
        if self.accepted == RATE:
            await asyncio.sleep(self.refusal)
            self.pause = now + self.refusal, now + self.refusal + 1
            return Fault(status=self.status, headers={"Retry-After": "1"})
        self.accepted += 1
        await asyncio.sleep(0.3)
        if "task" in request.tools:
            return "All are done." if request.turn else make_tasks(CHILDREN)
        return (ToolCallBlock("r", "todo", {"todos": []}),) if not request.turn else "A report."


def make_tasks(count: int) -> tuple[ToolCallBlock, ...]:
    return tuple(ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}"}) for n in range(count))


@pytest.mark.parametrize(
    ("status", "refusal"), [(429, 0.02), (529, 0.02), (503, 0.02), (429, 0.15)]
)
def test_f15_f21_64_children_and_four_requests_a_second(
    tmp_path: Path, status: int, refusal: float, figure: Figure, check_record: CheckRecord
) -> None:
    server, events = LimitedProvider(status, refusal), list[AnyEvent]()

    async def work() -> tuple[Report, int, float]:
        async with ModelServer(strict_script(server.answer)) as serving:
            async with open_session(tmp_path, serving) as session:
                session.watch(events.append)
                report = await session.run("PARENT")
            return report, serving.request_count, asyncio.get_running_loop().time()

    report, requests, seconds = run_virtual(work())
    needed = 2 + 2 * CHILDREN
    figure(
        f"{CHILDREN} children at {RATE} requests a second, {status} after {refusal * 1000:.0f} ms",
        f"{requests / needed:.2f} requests per needed one, {seconds:.0f} s for "
        f"{needed / RATE:.0f} s of work",
    )
    assert report.ok and report.text == "All are done."
    ended = [event.report for event in events if isinstance(event, RunFinished)]
    assert len(ended) == CHILDREN + 1 and all(report.ok for report in ended), "a child was lost"
    assert requests <= 1.3 * needed
    assert server.early == 0, "a request came although Retry-After had not passed"
    assert seconds <= 1.5 * needed / RATE
    asyncio.run(check_record(events, timed=False))


QUOTA = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
EMPTY = Fault(status=429, body=json.dumps({"error": QUOTA}).encode())


@pytest.mark.parametrize("has_fallback", [False, True])
def test_every_child_is_told_of_an_empty_account_or_goes_on_with_the_fallback_at_once(
    tmp_path: Path, has_fallback: bool
) -> None:
    count = 20
    model = "openai:empty,anthropic:full" if has_fallback else "openai:empty"

    def answer(request: ServerRequest) -> ServerAnswer:
        if request.number == 1:
            return make_tasks(count)
        return "A report." if request.model == "full" else EMPTY

    async def fan_out() -> tuple[Report, list[str], float]:
        async with ModelServer(answer) as server:
            async with open_session(tmp_path, server, model) as session:
                report = await session.run("PARENT")
            asked = [request.model for request in server.requests]
            return report, asked, asyncio.get_running_loop().time()

    report, asked, seconds = run_virtual(fan_out())
    if has_fallback:
        assert (report.reason, report.text) == (Reason.GOAL, "A report.")
    else:
        assert report.reason is Reason.ERROR and "Add credit" in report.error
    assert asked.count("empty") <= 1 + 2 * (count + 1)
    assert seconds < 2
