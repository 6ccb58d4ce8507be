"""Tools of a model for its background work: wait, send_message, task_stop."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Gate, Stage, block_texts
from tests.engine.test_background import list_notifications, start, wait_forever
from tests.engine.test_inbox import list_texts

from mudroom import Isolation, Reason, Session, TextBlock
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import MessageSent, RunWaiting, ToolCallStarted
from mudroom._engine.run_tools import send_message
from mudroom.testing.clock import VirtualLoop
from mudroom.testing.model_server import ModelServer

from ..worker_kinds import WORKERS


async def test_wait_returns_at_the_first_report_and_the_report_follows_it(stage: Stage) -> None:
    gate = Gate()

    async def child(request: Request) -> Answer:
        return await gate.child(request) if request.prompt == "CHILD 1" else "done"

    script = {
        "PARENT": [[start("CHILD 1"), start("CHILD 2")], [call("wait")], gate.open, "the end"],
        "CHILD": [child],
    }
    report = await stage.run_checked(script)
    assert report.ok
    assert stage.results[2].text == (
        "1.1.1 general: CHILD 1: works\n1.1.2 general: CHILD 2: has ended"
    )
    _, notification = block_texts(stage.list_requests("PARENT")[2].messages[-1])
    assert "<task-id>1.1.2</task-id>" in notification


async def test_wait_for_all_returns_with_all_reports(stage: Stage) -> None:
    script = {
        "PARENT": [[start("CHILD 1"), start("CHILD 2")], [call("wait", until="all")], "the end"],
        "CHILD": ["done"],
    }
    report = await stage.run_checked(script)
    assert report.turns == 3 and len(list_notifications(stage)) == 2
    assert not stage.select(RunWaiting)


async def test_wait_can_name_its_work_and_refuses_an_unknown_name(stage: Stage) -> None:
    named = {"for": ["1.1.2"]}
    unknown = {"for": "1.1.3"}
    script = {
        "PARENT": [
            [start("CHILD 1"), start("CHILD 2")],
            [call("wait", **named), call("wait", **unknown)],
            "the end",
        ],
        "CHILD": ["done"],
    }
    await stage.run(script)
    first, second = sorted(result.text for result in stage.results[2:])
    assert first == "1.1.2 general: CHILD 2: has ended"
    assert second.startswith("There is no background work '1.1.3'.")


async def test_wait_without_work_is_an_error(stage: Stage) -> None:
    await stage.run([[call("wait")], "the end"])
    assert stage.results[0].error
    assert stage.results[0].text == "Nothing works in the background, and no message has come."


async def test_a_message_of_the_user_ends_a_wait(stage: Stage) -> None:
    gate = Gate()
    script = {
        "PARENT": [[start("CHILD")], [call("wait", until="all")], gate.open, "the end"],
        "CHILD": [gate.child],
    }
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(
            lambda: any(
                isinstance(event, ToolCallStarted) and event.call.name == "wait"
                for event in stage.events
            )
        )
        assert session.runs.send("1", "and the roof")
        await running
        await stage.check_record()
    assert list_texts(stage.list_requests("PARENT")[2])[-1] == "and the roof"


def test_a_wait_of_ten_minutes_sends_no_request(stage: Stage) -> None:
    async def child(request: Request) -> Answer:
        await asyncio.sleep(400)
        return [[call("todo", todos=[])], "done"][request.turn]

    async def run() -> None:
        script = {
            "PARENT": [[start("CHILD")], [call("wait")], "I wait.", "the end"],
            "CHILD": [child],
        }
        report = await stage.run(script)
        assert report.ok and len(stage.list_requests("PARENT")) == 4
        assert len(stage.list_requests("CHILD")) == 2

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
    assert stage.results[1].text == "1.1.1 general: CHILD: works"


async def test_a_message_is_stored_before_the_sender_reads_that_it_was_sent(stage: Stage) -> None:
    async def child(request: Request) -> Answer:
        if request.turn == 0:
            await stage.wait_until(lambda: len(stage.results) >= 2)
            return [call("todo", todos=[])]
        return f"I read: {list_texts(request)[-1]}"

    async def send(request: Request) -> Answer:
        await stage.wait_until(lambda: stage.list_requests("CHILD"))
        return [call("SendMessage", to="1.1.1", content="mind the gap")]

    script = {
        "PARENT": [
            [start("CHILD")],
            send,
            "I wait.",
            "the end",
        ],
        "CHILD": [child],
    }
    await stage.run_checked(script)
    assert stage.results[1].text == "Sent to 1.1.1. It is read after the current tool calls."
    sent = next(event for event in stage.select(MessageSent))
    assert (sent.run, sent.message.id, sent.message.sender) == ("1.1.1", "1.2.1:1.1.1", "1")
    assert (
        'I read: <quoted-message from="1">\nmind the gap\n</message>'
        in list_notifications(stage)[0]
    )


@pytest.mark.parametrize("worker", WORKERS)
async def test_the_sender_learns_of_a_long_call_of_the_receiver(
    stage: Stage, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_message, "LONG_SECONDS", 0.2)

    async def send(request: Request) -> Answer:
        await stage.wait_until((stage.folder / "begun").exists)
        await asyncio.sleep(send_message.LONG_SECONDS)
        return [call("send_message", to="1.1.1", message="mind the gap")]

    def end(request: Request) -> Answer:
        (stage.folder / "go").touch()
        return "I wait."

    command = "touch begun; until test -e go; do sleep 0.01; done"
    script = {
        "PARENT": [[start("CHILD")], send, end, "the end"],
        "CHILD": [[call("bash", command=command)], "I have read it"],
    }
    async with stage.open(script, worker=worker) as session:
        assert (await session.run("PARENT")).ok
        await stage.check_record()
    told = r"Sent to 1\.1\.1\. It is read after the current tool calls\. "
    assert re.fullmatch(told + r"1\.1\.1 is in bash, \d+ s so far\.", stage.results[1].text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"to": "1.1.9", "message": "x"}, "No child '1.1.9' works in the background."),
        ({"to": "1.1.1", "message": " "}, "Invalid arguments for send_message: message: empty"),
        ({"to": "1.1.1", "message": "x" * 8_001}, "Invalid arguments for send_message: message: l"),
    ],
)
async def test_a_wrong_message_is_refused_and_not_recorded(
    stage: Stage, arguments: dict[str, str], text: str
) -> None:
    script = {
        "PARENT": [[start("CHILD")], [call("send_message", **arguments)], "the end"],
        "CHILD": ["done"],
    }
    await stage.run(script)
    assert stage.results[1].error and stage.results[1].text.startswith(text)
    sent = stage.select(MessageSent)
    assert [event.message.kind for event in sent] == ["notification"]


@pytest.mark.parametrize(
    ("stop", "is_recovered"),
    [
        (call("task_stop", to="1.1.1"), True),
        (call("TaskStop", task_id="1.1.1"), True),
        (call("task_stop", to="1.1.1", how="now"), False),
        (call("KillShell", shell_id="1.1.1"), False),
    ],
)
async def test_a_child_is_stopped_with_or_without_a_summary(
    stage: Stage, stop: Any, is_recovered: bool
) -> None:
    async def stop_child(request: Request) -> Answer:
        await stage.wait_until(lambda: stage.list_requests("CHILD"))
        return [stop]

    script = {
        "PARENT": [[start("CHILD")], stop_child, "I wait.", "the end"],
        "CHILD": [wait_forever],
    }
    report = await stage.run_checked(script)
    assert report.ok
    child = stage.reports["1.1.1"]
    assert (child.reason, child.recovered) == (Reason.CANCELLED, is_recovered)
    assert "<status>stopped</status>" in list_notifications(stage)[0]


async def test_writing_to_or_stopping_what_has_ended_or_is_unknown_says_so(stage: Stage) -> None:
    calls = [
        call("send_message", to="1.1.1", message="x"),
        call("task_stop", to="1.1.1"),
        call("task_stop", to="9"),
    ]
    await stage.run({"PARENT": [[start("CHILD")], [call("wait")], calls, "end"], "CHILD": ["done"]})
    texts = [result.text for result in stage.list_requests("PARENT")[-1].results]
    assert texts[:2] == ["1.1.1 has ended: start a new child.", "1.1.1 has ended already."]
    assert texts[2].startswith("There is no background work '9'.")


@pytest.mark.parametrize("isolate", [False, True])
async def test_system_prompt_and_all_tools_of_a_root_run_have_at_most_6_kb(
    tmp_path: Path, *, isolate: bool
) -> None:
    async with ModelServer(lambda request: (TextBlock("done"),)) as server:
        environ = {"ANTHROPIC_API_KEY": "k-test", "ANTHROPIC_BASE_URL": server.url}
        async with Session(
            model="anthropic:m",
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            environ=environ,
            journal=MemoryJournal(),
            sandbox="off",
            isolation=Isolation(each_child=isolate),
        ) as session:
            await session.run("PARENT")
    (request,) = server.requests
    assert ("merge" in request.tools) == isolate
    head = {key: request.json[key] for key in ("tools", "system")}
    assert {"task", "wait", "compact"} <= set(request.tools)
    assert len(msgspec.json.encode(head)) <= 6_000
