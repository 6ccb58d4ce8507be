"""Detached work: a call that waits returns, and its child or command goes on in the background."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Gate, Stage
from tests.engine.test_background import list_notifications
from tests.records import read_record, write_record
from tests.waiting import wait_until

from mudroom import Budget, Reason, Report, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import MessageSent, RunFinished, StoredEvent, ToolCallFinished
from mudroom._engine.inbox import make_notification
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations


def wait_for(child: str = "CHILD") -> Any:
    return call("task", prompt=child)


class WorkingGate(Gate):
    """The child has a turn before it waits."""

    async def child(self, request: Request) -> Answer:
        if request.turn == 0:
            return [call("todo", todos=[])]
        return await super().child(request)


async def wait_for_second_turn(stage: Stage, run: str) -> None:
    """Wait until the run with this prompt has made its second request."""
    await stage.wait_until(lambda: any(each.turn == 1 for each in stage.list_requests(run)))


async def run_and_detach(
    stage: Stage,
    script: dict[str, Any],
    run: str | None = None,
    *,
    at: str = "CHILD",
    **options: Any,
) -> Report:
    """Detach a run, or all, at the second turn of the one with this prompt. Check the record."""
    async with stage.open(script, **options) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await wait_for_second_turn(stage, at)
        assert session.runs.detach(run)
        report = await running
        await stage.check_record()
    return report


async def test_a_detached_child_goes_on_and_reports_by_a_notification(stage: Stage) -> None:
    gate = WorkingGate()
    script = {"PARENT": [[wait_for()], gate.open, "all is known"], "CHILD": [gate.child]}
    report = await run_and_detach(stage, script, "1.1.1")
    assert (report.text, report.reason, report.turns) == ("all is known", Reason.GOAL, 3)
    assert stage.results[0].text.startswith("Started 1.1.1 in the background.")
    assert stage.results[0].detail == {"run": "1.1.1", "background": True}
    (text,) = list_notifications(stage)
    assert "<task-id>1.1.1</task-id>" in text and "<result>\ndone\n" in text


async def test_all_children_that_a_run_waits_for_are_detached_together(stage: Stage) -> None:
    gate = WorkingGate()
    script = {
        "PARENT": [[wait_for("CHILD 1"), wait_for("CHILD 2")], gate.open, "the end"],
        "CHILD": [gate.child],
    }
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: len(stage.list_requests("CHILD")) == 4)
        assert session.runs.detach()
        report = await running
        await stage.check_record()
    assert report.ok and len(list_notifications(stage)) == 2


async def test_the_other_calls_of_the_answer_still_wait(stage: Stage) -> None:
    gate = WorkingGate()

    async def second(request: Request) -> Answer:
        await stage.wait_until(lambda: stage.results)
        return "the second is done"

    script = {
        "PARENT": [[wait_for("CHILD"), wait_for("SECOND")], gate.open, "the end"],
        "CHILD": [gate.child],
        "SECOND": [second],
    }
    report = await run_and_detach(stage, script, "1.1.1")
    assert report.ok
    assert stage.results[1].text.startswith("the second is done")
    assert len(list_notifications(stage)) == 1


async def test_only_a_child_that_a_call_waits_for_can_be_detached(stage: Stage) -> None:
    gate = WorkingGate()
    script = {
        "PARENT": [[call("task", prompt="CHILD", background=True)], gate.open, "the end"],
        "CHILD": [gate.child],
    }
    async with stage.open(script) as session:
        assert not any(session.runs.detach(run) for run in (None, "1.1.1", "1"))
        running = asyncio.create_task(session.run("PARENT"))
        await wait_for_second_turn(stage, "CHILD")
        assert not any(session.runs.detach(run) for run in (None, "1.1.1", "1"))
        await running
        assert not session.runs.detach("1.1.1")


async def test_files_of_a_detached_child_are_evidence_of_its_parent(stage: Stage) -> None:
    gate = WorkingGate()

    async def child(request: Request) -> Answer:
        if request.turn == 1:
            await gate.is_open.wait()
        write = call("write", file_path=f"{request.turn}.txt", content="x")
        return [write] if request.turn < 2 else "done"

    script = {"PARENT": [[wait_for()], gate.open, "the end"], "CHILD": [child]}
    report = await run_and_detach(stage, script)
    assert report.files_changed == ("0.txt", "1.txt")


async def test_a_child_of_a_child_is_detached_in_a_worker_process(stage: Stage) -> None:
    gate = WorkingGate()

    def child(request: Request) -> Answer:
        if request.turn == 1:
            return gate.open(request)
        return "the child is done" if request.turn else [wait_for("DEEP")]

    script = {"PARENT": [[wait_for()], "the end"], "CHILD": [child], "DEEP": [gate.child]}
    report = await run_and_detach(
        stage, script, "1.1.1.1.1", at="DEEP", worker="process:1", budget=Budget(depth=2)
    )
    assert report.ok and stage.results[0].text.startswith("the child is done")
    assert stage.reports["1.1.1.1.1"].ok


def answer_from_messages(request: Request) -> Answer:
    """Answer from the messages alone: the parent ends when it has read both reports."""
    if request.prompt != "PARENT":
        return [[call("todo", todos=[])], f"{request.prompt} is done."][request.turn]
    if request.turn == 0:
        return [wait_for("CHILD a"), wait_for("CHILD b")]
    texts = str([message.content for message in request.messages])
    return "All are done." if texts.count("is done.") == 2 else "I wait."


@pytest.mark.timeout(300)
async def test_s11_a_detached_child_is_reported_once_after_a_cut_at_each_record(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    is_detached = asyncio.Event()

    async def hold(request: Request) -> Answer:
        if request.prompt == "CHILD a" and request.turn == 1:
            await is_detached.wait()
        return answer_from_messages(request)

    options: dict[str, Any] = {"sandbox": "off", "environ": {}}
    async with Session(
        model=ScriptedModel(hold), cwd=str(tmp_path), home=str(home), **options
    ) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await wait_until(lambda: session.runs.detach("1.1.1"))
        is_detached.set()
        assert (await running).text == "All are done."
    events = read_record(home, session.id)
    await check_ends(events)
    options["model"] = ScriptedModel(answer_from_messages)
    for cut in range(2, len(events) - 1):
        folder = tmp_path / str(cut)
        await write_record(folder, session.id, *events[:cut])
        async with Session(home=str(folder), resume=session.id, **options) as resumed:
            report = await resumed.resume_unfinished()
        assert report is None or report.text == "All are done.", f"cut off after {cut} records"
        await check_ends(read_record(folder, session.id))


async def test_s11_a_child_that_ends_while_it_is_detached_is_reported_once(
    tmp_path: Path,
) -> None:
    """The record has the notification, but not yet the result of the call."""
    async with Session(
        model=ScriptedModel(answer_from_messages),
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        sandbox="off",
        environ={},
    ) as session:
        assert (await session.run("PARENT")).text == "All are done."
    recorded = read_record(tmp_path / "home", session.id)
    end = next(n for n, event in enumerate(recorded) if isinstance(event, ToolCallFinished))
    before = [event for event in recorded if event.run != "1" or recorded.index(event) < end]
    message = make_notification("1.1.1", "completed", "general: CHILD a", "CHILD a is done.")
    arrival = MessageSent(at=before[-1].at, run="1", turn=1, message=message)
    await write_record(tmp_path, session.id, *before, arrival)
    async with Session(
        model=ScriptedModel(answer_from_messages),
        home=str(tmp_path),
        resume=session.id,
        sandbox="off",
        environ={},
    ) as resumed:
        await resumed.resume_unfinished()
    events = read_record(tmp_path, session.id)
    assert not find_violations(events)
    results = {
        event.result.detail["run"]: event.result
        for event in events
        if isinstance(event, ToolCallFinished) and event.run == "1"
    }
    assert results["1.1.1"].detail.get("background")
    assert not results["1.1.2"].detail.get("background")


async def check_ends(events: list[StoredEvent]) -> None:
    """Check that each run ended once, and that the replay is equal."""
    assert not find_violations(events)
    assert await replay(events) == events
    ended = [event.run for event in events if isinstance(event, RunFinished)]
    assert sorted(ended) == ["1", "1.1.1", "1.1.2"]
    results = [event.call_id for event in events if isinstance(event, ToolCallFinished)]
    assert len(results) == len(set(results))


async def run_detached_command(stage: Stage, command: str, **arguments: Any) -> list[str]:
    """Run a command, detach it when it has created `begun`, and return the notifications."""

    async def end(request: Request) -> Answer:
        (stage.folder / "go").touch()
        return [call("wait", until="all")]

    script = {"PARENT": [[call("bash", command=command, **arguments)], end, "the end"]}
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until((stage.folder / "begun").exists)
        assert session.runs.detach()
        assert (await running).ok
        await stage.check_record()
    return list_notifications(stage)


WAIT_FOR_GO = "until test -e go; do sleep 0.01; done"


async def test_a_detached_command_goes_on_with_its_output_so_far(stage: Stage) -> None:
    command = f"seq 300; touch begun; {WAIT_FOR_GO}; echo last; touch made.txt; exit 3"
    (text,) = await run_detached_command(stage, command)
    start = stage.results[0]
    assert start.text.startswith("Started 1.1.1 in the background.")
    assert start.text.endswith(f"is in {start.spill} when it ends. Its time limit is 120 s.")
    assert start.detail == {"command": "1.1.1", "background": True}
    assert "<status>failed</status>" in text and "[exit code 3; " in text
    assert text.endswith("\nlast\n</result>\n</task-notification>")
    lines = Path(start.spill).read_text().splitlines()
    assert lines == [*map(str, range(1, 301)), "last"]
    assert {"begun", "made.txt"} <= set(stage.reports["1"].files_changed)


async def test_a_detached_command_with_long_output_keeps_its_file(stage: Stage) -> None:
    command = f"seq 100000; touch begun; {WAIT_FOR_GO}; echo last"
    (text,) = await run_detached_command(stage, command)
    assert "<status>completed</status>" in text
    lines = Path(stage.results[0].spill).read_text().splitlines()
    assert len(lines) == 100_001 and lines[-1] == "last"


async def test_the_time_limit_of_a_detached_command_stays(stage: Stage) -> None:
    (text,) = await run_detached_command(stage, "touch begun; sleep 600", timeout=1_000)
    assert "[timed out after 1 s; " in text


async def test_a_command_is_detached_in_a_worker_process(stage: Stage) -> None:
    command = f"touch begun; {WAIT_FOR_GO}; echo last"

    def child(request: Request) -> Answer:
        if request.turn == 1:
            (stage.folder / "go").touch()
            return [call("wait", until="all")]
        return "the child is done" if request.turn else [call("bash", command=command)]

    script = {"PARENT": [[wait_for()], "the end"], "CHILD": [child]}
    async with stage.open(script, worker="process:1", budget=Budget(depth=2)) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until((stage.folder / "begun").exists)
        assert session.runs.detach("1.1.1.1.1")
        assert (await running).ok
        await stage.check_record()
    assert stage.list_notes("1.1.1")[0].count("\nlast\n") == 1
