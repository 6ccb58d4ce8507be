"""Tasks of the protocol: state, questions, cancels, rights, and the end of the server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.waiting import wait_until

from mudroom import Budget, Session
from mudroom._adapters.journals.sessions import open_store
from mudroom.events import RunFinished, RunStarted
from mudroom.testing import Request
from mudroom_hosts.mcp.host_tasks import (
    DEFAULT_PARALLEL,
    LOCAL_OWNER,
    HostTask,
    HostTasks,
    TaskArguments,
)
from mudroom_hosts.mcp.protocol_tasks import FOLDER, KEPT_SECONDS, ProtocolTasks

from .conftest import EXTENSION, MakeHost
from .test_process import start_with_model
from .test_questions import write_twice
from .test_rude_hosts import block

LOST = 20 if os.environ.get("MUDROOM_LONG") else 2
"""Tasks that a killed server leaves behind."""


async def test_a_task_is_fetched_answered_and_kept_for_the_next_server(
    make_host: MakeHost, tmp_path: Path
) -> None:
    async with make_host(write_twice).connect_tasks() as host:
        discovered = (await host.ask("server/discover"))["result"]
        state = await host.start("Write.")
        task = state["taskId"]
        answers = ["allow once", "no"]
        while answers:
            asked = await host.wait(task, "input_required")
            (key,) = asked["inputRequests"]
            content = {"answer": answers.pop(0)}
            responses = {key: {"action": "accept", "content": content}, "other": 1}
            assert "result" in await host.ask("tasks/update", taskId=task, inputResponses=responses)
        done = await host.wait(task, "completed")
    assert discovered["capabilities"]["extensions"] == {EXTENSION: {}}
    assert (state["resultType"], state["status"]) == ("task", "working")
    assert (state["ttlMs"], "result" in state) == (KEPT_SECONDS * 1_000, False)
    values = done["result"]["structuredContent"]
    assert values["reason"] == "GOAL"
    assert len(values["permission_denials"]) == 1
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["f0.md"]

    files = list((tmp_path / "home" / FOLDER).iterdir())
    async with make_host([]).connect_tasks() as host:
        assert await host.get(task) == done
    leftover = files[0].with_name(f"{files[0].name}x1y2")  # of a write that was interrupted
    leftover.touch()
    for path in (files[0], leftover):
        os.utime(path, (0, 0))
    async with make_host([]).connect_tasks() as host:
        answer = await host.ask("tasks/get", taskId=task)
    assert len(files) == 1
    assert answer["error"]["code"] == -32602
    assert not leftover.exists()


async def test_a_host_that_listens_gets_each_state_of_a_task(make_host: MakeHost) -> None:
    async with make_host(write_twice).connect_tasks() as host:
        task = (await host.start("Write."))["taskId"]
        undeclared = await host.ask(
            "subscriptions/listen", declares=False, notifications={"taskIds": [task]}
        )
        notifications = {"taskIds": [task, "unknown"], "promptsListChanged": True}
        listening = asyncio.create_task(
            host.ask("subscriptions/listen", notifications=notifications)
        )
        for answer in ("allow once", "no"):
            asked = await host.wait_for_state("input_required")
            (key,) = asked["inputRequests"]
            responses = {key: {"action": "accept", "content": {"answer": answer}}}
            await host.ask("tasks/update", taskId=task, inputResponses=responses)
        ended = await listening
        first, *sent = [each for each in host.lines if "method" in each]
        done = await host.get(task)
    assert undeclared["error"]["code"] == -32021
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == {"taskIds": [task]}
    assert {each["method"] for each in sent} == {"notifications/tasks"}
    ids = {each["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for each in sent}
    assert ids == {ended["id"]}
    last = {key: value for key, value in sent[-1]["params"].items() if key != "_meta"}
    assert {**last, "resultType": "complete"} == {
        key: value for key, value in done.items() if key != "_meta"
    }
    assert last["status"] == "completed"


async def test_a_cancel_ends_the_task(make_host: MakeHost) -> None:
    async def answer(_: Request) -> str:
        await asyncio.Event().wait()
        return ""

    async with make_host(answer).connect_tasks() as host:
        task = (await host.start("Wait."))["taskId"]
        for _ in range(2):
            cancelled = await host.ask("tasks/cancel", taskId=task)
            assert cancelled["result"]["resultType"] == "complete"
        assert (await host.get(task))["status"] == "cancelled"


async def test_a_get_that_is_cancelled_does_not_cancel_the_end(tmp_path: Path) -> None:
    host_task = HostTask("t1", TaskArguments(prompt="Go."))
    tasks = ProtocolTasks(HostTasks(Budget()), str(tmp_path), "s")
    state = await tasks.create(LOCAL_OWNER, [host_task], lambda: {"text": "Done."})
    host_task.finish(None)
    getting = asyncio.create_task(tasks.get(state["taskId"], LOCAL_OWNER))
    await asyncio.sleep(0)  # it waits until the end is stored
    getting.cancel()
    await asyncio.gather(getting, return_exceptions=True)
    state, _ = await tasks.get(state["taskId"], LOCAL_OWNER)
    assert (state["status"], state["result"]) == ("completed", {"text": "Done."})


async def test_a_task_that_cannot_be_stored_is_cancelled(
    make_host: MakeHost, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / FOLDER
    folder.parent.mkdir(parents=True)
    folder.touch()
    async with make_host(block).connect_tasks() as host:
        answer = (await host.ask("tools/call", name="task", arguments={"prompt": "Wait."}))[
            "result"
        ]
        listed = await host.ask("tools/call", name="task_result", arguments={})
    assert "the task cannot be stored: Not a directory" in answer["content"][0]["text"]
    assert answer["isError"]
    (task,) = listed["result"]["structuredContent"]["results"]
    assert task["state"] == "ended"


async def test_hosts_without_the_extension_get_results_and_no_tasks(make_host: MakeHost) -> None:
    async with make_host(["Done."]).connect_tasks() as host:
        arguments = {"prompt": "Go."}
        result = await host.ask("tools/call", declares=False, name="task", arguments=arguments)
        refused = await host.ask("tasks/get", declares=False, taskId="x")
        unknown = await host.ask("tasks/get", taskId="../x")
    assert result["result"]["structuredContent"]["reason"] == "GOAL"
    assert refused["error"]["code"] == -32021
    assert refused["error"]["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    assert unknown["error"]["code"] == -32602


async def test_tasks_of_a_killed_server_have_results_or_reasons_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async with start_with_model(tmp_path, shakes_hands=False) as server:
        host = server.raw
        done = (await host.start("How many files are there?"))["taskId"]
        await host.wait(done, "completed")
        prompts = (f"RUN touch here{n}; sleep 600" for n in range(LOST))
        lost = [(await host.start(prompt))["taskId"] for prompt in prompts]
        await wait_until(
            lambda: len(list((tmp_path / "project").glob("here*"))) == min(LOST, DEFAULT_PARALLEL)
        )
        server.process.kill()
        await server.wait()
        events = await server.read_events()
        (info,) = await open_store(str(server.home)).list()
        async with Session(
            home=str(server.home), resume=info.id, sandbox="off", environ=server.environ
        ) as session:
            report = await session.resume_unfinished()
    async with start_with_model(tmp_path, shakes_hands=False) as server:
        host = server.raw
        states = [await host.get(task) for task in (done, *lost)]
    assert [state["status"] for state in states] == ["completed", *["failed"] * LOST]
    text = "the server ended while the task worked. `mudroom -r "
    assert all(text in state["error"]["message"] for state in states[1:])
    started = [event.run for event in events if isinstance(event, RunStarted)]
    ended = [event.run for event in events if isinstance(event, RunFinished)]
    assert started[:2] == ["1", "2"] and ended == ["1"]
    assert report
    assert report.text == "Done."
