"""Open work of a session: the runs and background commands that work now."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.engine.conftest import Gate, Stage
from tests.engine.test_background import list_notifications, wait_forever

from mudroom import Budget, OpenWork, Reason
from mudroom._adapters.models.scripted import call


def describe(work: list[OpenWork]) -> list[tuple[Any, ...]]:
    return [(each.id, each.kind, each.title, each.state, each.is_background) for each in work]


async def test_open_runs_and_commands_are_listed_with_their_figures(stage: Stage) -> None:
    script = {
        "PARENT": [
            [call("task", prompt="CHILD", description="look at the cellar", background=True)],
            [call("bash", command="echo begun; sleep 600", background=True)],
            [call("task", prompt="CHILD")],
        ],
        "CHILD": [wait_forever],
    }
    async with stage.open(script, budget=Budget(depth=1)) as session:
        assert await session.runs.list_open_work() == []
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: len(stage.list_requests("CHILD")) == 2)
        work = await session.runs.list_open_work()
        session.runs.cancel()
        await running
        assert await session.runs.list_open_work() == []
    assert describe(work) == [
        ("1", "run", "PARENT", "waiting", False),
        ("1.2.1", "command", "echo begun; sleep 600", "running", True),
        ("1.1.1", "run", "look at the cellar", "running", True),
        ("1.3.1", "run", "CHILD", "running", False),
    ]
    root, _, child, _ = work
    assert root.tokens > 0 and root.seconds >= child.seconds >= 0
    assert (root.agent, child.agent, child.parent) == ("main", "general", "1")


async def test_a_background_command_is_cancelled_by_its_id(stage: Stage) -> None:
    command = "touch begun; sleep 600"
    script: list[Any] = [[call("bash", command=command, background=True)], [call("wait")], "end"]
    async with stage.open({"PARENT": script}) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until((stage.folder / "begun").exists)
        assert not session.runs.cancel("1.1.2") and session.runs.cancel("1.1.1")
        report = await running
        await stage.check_record()
        assert not session.runs.cancel("1.1.1")
    assert report.reason is Reason.GOAL and report.stopped_commands == ()
    (text,) = list_notifications(stage)
    assert "<status>stopped</status>" in text


async def test_work_in_a_worker_process_is_listed_and_its_command_cancelled(stage: Stage) -> None:
    command = "touch begun; sleep 600"
    gate = Gate()
    script = {
        "PARENT": [[call("task", prompt="CHILD")], "the end"],
        "CHILD": [
            [call("bash", command=command, background=True)],
            [call("task", prompt="DEEP", background=True)],
            [call("wait")],
            gate.open,
            "the child is done",
        ],
        "DEEP": [gate.child],
    }
    async with stage.open(script, worker="process:1", budget=Budget(depth=2)) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: (stage.folder / "begun").exists())
        await stage.wait_until(lambda: stage.list_requests("DEEP"))
        work = await session.runs.list_open_work()
        assert session.runs.cancel("1.1.1.1.1")
        assert (await running).ok
    assert [each.id for each in work] == ["1", "1.1.1", "1.1.1.1.1", "1.1.1.2.1"]
    assert "<status>stopped</status>" in stage.list_notes("1.1.1")[0]
