"""64 children and a provider with four requests a second: few retries, no lost child."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom import AnyEvent, Report, Session, ToolCallBlock
from mudroom._core.events import RunFinished
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import strict_script

from .conftest import CheckRecord

Figure = Callable[[str, str], None]
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
            tasks = tuple(
                ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}"}) for n in range(CHILDREN)
            )
            return tasks if not request.turn else "All are done."
        return (ToolCallBlock("r", "todo", {"todos": []}),) if not request.turn else "A report."


@pytest.mark.parametrize(
    ("status", "refusal"), [(429, 0.02), (529, 0.02), (503, 0.02), (429, 0.15)]
)
def test_f21_64_children_and_four_requests_a_second(
    tmp_path: Path, status: int, refusal: float, figure: Figure, check_record: CheckRecord
) -> None:
    server, events = LimitedProvider(status, refusal), list[AnyEvent]()

    async def work() -> tuple[Report, int, float]:
        async with ModelServer(strict_script(server.answer)) as serving:
            environ, home = (
                {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": serving.url},
                str(tmp_path / "home"),
            )
            model = "anthropic:claude-sonnet-4-5"
            async with Session(
                model=model, environ=environ, cwd=str(tmp_path), home=home, journal="memory"
            ) as session:
                session.watch(events.append)
                report = await session.run("PARENT")
            return report, serving.request_count, asyncio.get_running_loop().time()

    report, requests, seconds = run_virtual(work())
    needed = 2 + 2 * CHILDREN
    value = (
        f"{requests / needed:.2f} requests per needed one, {seconds:.0f} s for "
        f"{needed / RATE:.0f} s of work"
    )
    figure(
        f"{CHILDREN} children at {RATE} requests a second, {status} after {refusal * 1000:.0f} ms",
        value,
    )
    assert report.ok and report.text == "All are done."
    ended = [event.report for event in events if isinstance(event, RunFinished)]
    assert len(ended) == CHILDREN + 1 and all(report.ok for report in ended), "a child was lost"
    assert requests <= 1.3 * needed
    assert server.early == 0, "a request came although Retry-After had not passed"
    assert seconds <= 1.5 * needed / RATE
    asyncio.run(check_record(events, timed=False))
