"""Progress of calls of MCP servers on screens: live, in worker processes, limited in number."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from mudroom import Agent, Reason
from mudroom._adapters.integrations.mcp_servers.servers import LineLimit
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._cli.output.plain_progress import PlainProgress
from mudroom._projections.run_tree import RunTree
from mudroom.events import AnyEvent, Delta

from ...waiting import wait_until
from .servers import make_quick, read_log
from .test_session_servers import open_session


def answer(request: Request) -> Answer:
    if request.prompt == "Sleep.":
        return [call("mcp__quick__sleep")]
    return "done" if request.turn else [call("task", agent="sleeper", prompt="Sleep.")]


@pytest.mark.parametrize("worker", ["local", "process:1"])
async def test_the_progress_of_a_call_is_shown_until_it_is_cancelled(
    worker: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    agent = Agent(name="sleeper", instructions="", tools=("mcp__quick__sleep",))
    events: list[AnyEvent] = []
    async with open_session(
        tmp_path, answer, [make_quick(log=log)], agents=[agent], worker=worker
    ) as session:
        has_progress = asyncio.Event()

        def note(event: AnyEvent) -> None:
            events.append(event)
            if isinstance(event, Delta) and event.kind == "progress":
                has_progress.set()

        session.watch(note)
        running = asyncio.create_task(session.run("Delegate."))
        async with asyncio.timeout(60):
            await has_progress.wait()
        session.runs.cancel()
        assert (await running).reason is Reason.CANCELLED
        await wait_until(lambda: "notifications/cancelled" in read_log(log))
    line = "mcp__quick__sleep: 1 of 2: asleep"
    shown = [each for each in events if isinstance(each, Delta) and each.kind == "progress"]
    assert [(each.run, each.turn, each.text) for each in shown] == [("1.1.1", 1, line)]
    tree = RunTree()
    for event in events[: events.index(shown[0]) + 1]:
        tree.apply(event)
    assert tree.runs["1.1.1"].last_action == line
    assert tree.runs["1.1.1"].streamed_length == 0
    stream = io.StringIO()
    progress = PlainProgress(stream, RunTree(), verbose=True)
    for event in events:
        progress.on_event(event)
    assert f"): {line}\n" in stream.getvalue()


def test_at_most_four_lines_a_second_are_shown() -> None:
    now = [0.0]
    lines: list[str] = []
    limit = LineLimit(lines.append, lambda: now[0])
    for step in range(200):
        now[0] = step / 100
        limit.show(str(step))
    assert lines == [str(step) for step in range(0, 200, 25)]
