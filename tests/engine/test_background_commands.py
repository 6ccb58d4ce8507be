"""Background commands: reported once, stopped with the run, and never lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Stage
from tests.engine.test_background import list_notifications, wait_forever
from tests.records import read_record, write_record

from mudroom import Reason, Session, ToolCallBlock, ToolContext, ToolResult, tool
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import MessageDelivered, MessageSent, StoredEvent, ToolCallFinished
from mudroom._engine.background import STILL_RUNNING
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations


def bash(command: str, **arguments: Any) -> ToolCallBlock:
    return call("bash", command=command, background=True, **arguments)


async def test_a_background_command_is_reported_with_code_tail_and_path(stage: Stage) -> None:
    command = "seq 1 2000; echo x > made.txt; exit 3"
    report = await stage.run_checked([[bash(command)], [call("wait")], "the end"])
    assert stage.results[0].text.startswith("Started 1.1.1 in the background.")
    (text,) = list_notifications(stage)
    assert "<task-id>1.1.1</task-id>\n<status>failed</status>" in text
    assert f"<task>{command}</task>" in text and "[exit code 3; " in text
    assert text.count("\n") < 500 and "\n1999\n2000\n</result>" in text
    path = stage.results[0].spill
    assert Path(path).read_text().splitlines() == [str(n) for n in range(1, 2001)]
    assert f"is in {path}]" in text
    assert report.files_changed == ("made.txt",) and report.observed_changes == ("made.txt",)


@pytest.mark.parametrize(
    "spelled",
    [
        call("Bash", command="echo hello", run_in_background=True),
        call("background_run", command="echo hello"),
    ],
)
async def test_the_spellings_of_other_programs_start_a_command(
    stage: Stage, spelled: ToolCallBlock
) -> None:
    await stage.run([[spelled], [call("wait")], "the end"])
    (text,) = list_notifications(stage)
    assert "<status>completed</status>" in text and "\nhello\n</result>" in text


async def test_a_command_that_goes_on_is_named_once_and_then_stopped(stage: Stage) -> None:
    script: list[Answer] = [[bash("echo begun; sleep 600")], "I stop.", "the end"]
    report = await stage.run_checked(script)
    assert (report.text, report.turns) == ("the end", 3)
    assert report.stopped_commands == ("echo begun; sleep 600",)
    notes = stage.list_notes()
    assert len(notes) == 1 and notes[0].startswith(f"{STILL_RUNNING}1.1.1 echo begun; sleep 600.")
    assert not list_notifications(stage)


async def test_the_evidence_of_a_child_names_the_commands_that_its_end_stopped(
    stage: Stage,
) -> None:
    script = {
        "PARENT": [[call("task", prompt="CHILD")], "the end"],
        "CHILD": [[bash("sleep 600")], "I stop.", "I am done"],
    }
    await stage.run_checked(script)
    assert "; stopped at its end: sleep 600; " in stage.results[0].text


async def test_a_command_is_stopped_by_the_model(stage: Stage) -> None:
    async def stop(request: Request) -> Answer:
        await stage.wait_until((stage.folder / "made.txt").exists)
        return [call("KillShell", shell_id="1.1.1")]

    command = "echo begun; touch made.txt; sleep 600"
    script: list[Any] = [[bash(command)], stop, [call("wait")], "the end"]
    report = await stage.run_checked({"PARENT": script})
    (text,) = list_notifications(stage)
    assert "<status>stopped</status>" in text
    assert "[stopped; all its processes were ended; " in text and "\nbegun\n</result>" in text
    assert report.stopped_commands == () and report.files_changed == ("made.txt",)


async def test_a_cancel_stops_background_commands(stage: Stage) -> None:
    async with stage.open({"PARENT": [[bash("sleep 600")], wait_forever]}) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: len(stage.model.requests) == 2)
        assert session.runs.cancel()
        report = await running
        await stage.check_record()
    assert report.reason is Reason.CANCELLED
    assert report.stopped_commands == ("sleep 600",)


async def test_a_cancel_stops_a_detached_command(stage: Stage) -> None:
    command = "touch begun; sleep 600"
    async with stage.open({"PARENT": [[call("bash", command=command)], wait_forever]}) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until((stage.folder / "begun").exists)
        assert session.runs.detach("1.1.1")
        await stage.wait_until(lambda: len(stage.model.requests) == 2)
        assert session.runs.cancel()
        report = await running
        await stage.check_record()
    assert report.reason is Reason.CANCELLED and report.stopped_commands == (command,)


async def test_a_time_limit_of_a_background_command_is_stated(stage: Stage) -> None:
    await stage.run([[bash("sleep 600", timeout=1_000)], [call("wait")], "the end"])
    (text,) = list_notifications(stage)
    assert "<status>failed</status>" in text and "[timed out after 1 s; " in text


async def test_a_tool_that_is_no_coroutine_starts_work_in_the_background(stage: Stage) -> None:
    async def work() -> ToolResult:
        return ToolResult("it is done")

    @tool
    def begin(ctx: ToolContext) -> ToolResult:
        "Start work from the thread of the tool."
        return ctx.run_in_background("quick work", work())

    script: list[Any] = [[call("begin")], [call("wait")], "the end"]
    async with stage.open(script, tools=[begin]) as session:
        assert (await session.run("PARENT")).ok
        await stage.check_record()
    (text,) = list_notifications(stage)
    assert "it is done" in text


async def test_a_command_is_cancelled_before_its_first_step(stage: Stage) -> None:
    async def work() -> ToolResult:
        return ToolResult("never")

    @tool
    async def begin(ctx: ToolContext) -> ToolResult:
        "Start work, and cancel the run at once."
        result = ctx.run_in_background("quick work", work())
        assert stage.session.runs.cancel("1")
        return result

    report = await stage.run_checked([[call("begin")], "the end"], tools=[begin])
    assert (report.reason, report.stopped_commands) == (Reason.CANCELLED, ("quick work",))


def script(request: Request) -> Answer:
    texts = str([message.content for message in request.messages])
    if request.turn == 0:
        return [bash("echo one >> effects.txt"), bash("echo two >> effects.txt")]
    return "the end" if texts.count("<task-id>") == 2 else [call("wait")]


@pytest.mark.timeout(300)
async def test_s11_each_command_is_reported_once_after_a_cut_at_each_record(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    options: dict[str, Any] = {"model": ScriptedModel(script), "sandbox": "off", "environ": {}}
    async with Session(cwd=str(tmp_path), home=str(home), **options) as session:
        assert (await session.run("PARENT")).text == "the end"
    events = read_record(home, session.id)
    await check_reports(events)
    effects = tmp_path / "effects.txt"
    for cut in range(2, len(events) - 1):
        effects.write_text("")
        folder = tmp_path / str(cut)
        await write_record(folder, session.id, *events[:cut])
        async with Session(home=str(folder), resume=session.id, **options) as resumed:
            await resumed.resume_unfinished()
        await check_reports(read_record(folder, session.id))
        lines = effects.read_text().split()
        assert len(lines) == len(set(lines)), f"cut off after {cut} records"


async def check_reports(events: list[StoredEvent]) -> None:
    """Check that each command that started has one notification, and that the replay is equal."""
    assert not find_violations(events)
    assert await replay(events) == events
    started = [
        event.result.detail["command"]
        for event in events
        if isinstance(event, ToolCallFinished) and "command" in event.result.detail
    ]
    sent = [event.message.sender for event in events if isinstance(event, MessageSent)]
    read = [event.origin for event in events if isinstance(event, MessageDelivered)]
    assert sorted(sent) == sorted(read) and set(started) <= set(sent)
