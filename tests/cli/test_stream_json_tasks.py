"""Lines about tasks in stream-json: one start and one end each, in sessions that really run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Stage

from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import AnyEvent, RunStarted
from mudroom._projections.stream_json import StreamJson

Lines = list[dict[str, Any]]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def make_lines(events: Sequence[AnyEvent]) -> Lines:
    fold = StreamJson(session="s", cwd="/w", model="m", tools=(), agents=())
    return [line for event in events for line in fold.make_event_lines(event)]


def select(lines: Lines, subtype: str) -> Lines:
    return [line for line in lines if line.get("subtype") == subtype]


def check_pairs(lines: Lines, tasks: set[str]) -> None:
    """Check that each task has one start and, after it, one end."""
    for task in tasks:
        own = [line["subtype"] for line in lines if line.get("task_id") == task]
        assert (own[0], own[-1]) == ("task_started", "task_notification"), task
        assert own.count("task_started") == own.count("task_notification") == 1, task
    assert {line["task_id"] for line in select(lines, "task_started")} == tasks


async def test_each_child_and_command_has_one_start_and_one_end(stage: Stage) -> None:
    go = asyncio.Event()

    async def wait_for_go(_: Request) -> Answer:
        await go.wait()
        return "detached and done"

    def parent(request: Request) -> Answer:
        if request.turn == 0:
            return [
                call("task", prompt="DETACHED"),
                call("task", prompt="OUTER", background=True),
                call("task", prompt="ALICE", name="alice", description="look"),
            ]
        if request.turn == 1:
            go.set()
            sending = call("send_message", to="alice", message="And the window?")
            return [sending, call("bash", command="sleep 600", background=True)]
        return "the end"

    script = {
        "PARENT": [parent],
        "DETACHED": [wait_for_go],
        "OUTER": [[call("task", prompt="INNER")], "outer done"],
        "INNER": ["inner done"],
        "ALICE": ["the door", "the window"],
    }
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: "1.1.3" in stage.reports and "1.1.2" in stage.reports)
        assert session.runs.detach("1.1.1")
        report = await running
    assert report.ok and report.stopped_commands
    lines = make_lines(stage.events)
    check_pairs(lines, {*stage.runs[1:], "1.2.2"})
    detached = [each for each in lines if each.get("task_id") == "1.1.1"]
    assert [line.get("is_backgrounded") for line in detached] == [False, None, True]
    assert detached[1]["patch"] == {"is_backgrounded": True}
    assert [line["task_id"] for line in select(lines, "task_updated")] == ["1.1.1"]
    ends = {line["task_id"]: line for line in select(lines, "task_notification")}
    in_background = {task for task, line in ends.items() if line.get("is_backgrounded")}
    assert in_background == {"1.1.1", "1.1.2", "1.2.1"}
    start = next(each for each in select(lines, "task_started") if each["task_id"] == "1.2.2")
    end = ends["1.2.2"]
    assert (end["status"], end["tool_use_id"]) == ("stopped", start["tool_use_id"])


async def test_the_lines_of_a_named_child_have_its_name(stage: Stage) -> None:
    script = {
        "PARENT": [[call("task", prompt="ALICE", name="alice", description="look")], "the end"],
        "ALICE": [[call("todo", todos=[])], "the door"],
    }
    await stage.run(script)
    lines = make_lines(stage.events)
    for subtype in ("task_started", "task_progress"):
        (line,) = select(lines, subtype)
        assert (line["name"], line["description"]) == ("alice", "alice: look")
    assert select(lines, "task_notification")[0]["name"] == "alice"


async def test_a_start_that_is_recorded_twice_gives_one_line(stage: Stage) -> None:
    await stage.run({"PARENT": [[call("task", prompt="CHILD")], "the end"], "CHILD": ["done"]})
    start = next(e for e in stage.events if isinstance(e, RunStarted) and e.run != "1")
    lines = make_lines([*stage.events, start])
    check_pairs(lines, {"1.1.1"})
