"""Limits of notifications about tasks: one a second for progress, and the number of streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mcp_types
from mcp.shared.exceptions import MCPError
from tests.waiting import wait_until

from mudroom import Agent, Budget
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom._core.runs import Brief
from mudroom.driving import Question
from mudroom.events import RunStarted
from mudroom_hosts.mcp.following import Context
from mudroom_hosts.mcp.host_tasks import LOCAL_OWNER, HostTask, HostTasks, TaskArguments
from mudroom_hosts.mcp.protocol import _MAX_STREAMS, _PAUSE, TaskNotifications
from mudroom_hosts.mcp.protocol_tasks import ProtocolTasks

from .conftest import EXTENSION


class Listener:
    """A host that declares tasks and keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        extensions: dict[str, Any] = {EXTENSION: {}}
        self.client_capabilities = mcp_types.ClientCapabilities(extensions=extensions)

    async def send_notification(self, message: Any, related_request_id: object) -> None:
        self.sent.append(message)

    @property
    def states(self) -> list[Mapping[str, Any]]:
        """States of tasks, without the acknowledgement."""
        return [each.params for each in self.sent[1:]]

    def make_context(self) -> Context:
        context = SimpleNamespace(
            session=self,
            request=None,
            request_id=1,
            lifespan_context=LOCAL_OWNER,
            protocol_version="2026-07-28",
        )
        return cast("Context", context)


def listen(
    tasks: ProtocolTasks | TaskNotifications, host: Listener, **wanted: Any
) -> asyncio.Task[Any]:
    notifications = TaskNotifications(tasks) if isinstance(tasks, ProtocolTasks) else tasks
    wanted_notifications = mcp_types.SubscriptionFilter.model_validate(wanted)
    params = mcp_types.SubscriptionsListenRequestParams(notifications=wanted_notifications)
    return asyncio.create_task(notifications.listen(host.make_context(), params))


async def test_progress_is_sent_once_a_second_also_while_a_question_is_open(
    tmp_path: Path,
) -> None:
    host_task = HostTask("t1", TaskArguments(prompt="Go."))
    host_task.can_ask = True
    brief = Brief(
        run_id="1",
        agent=Agent(name="main"),
        prompt="Go.",
        tools=(),
        model="offline",
        budget=Budget(),
    )
    host_task.apply(RunStarted(at=0, run="1", brief=brief))
    tasks = ProtocolTasks(HostTasks(Budget()), str(tmp_path), "s")
    state = await tasks.create(LOCAL_OWNER, [host_task], lambda: {"text": "Done."})
    host = Listener()
    listening = listen(tasks, host, taskIds=[state["taskId"]])
    await wait_until(lambda: len(host.states) == 1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for name in ("q1", "q2"):
        answer: asyncio.Future[ApprovalDecision] = loop.create_future()
        request = ApprovalRequest("1", "main", "bash", {"command": name}, why="no rule allows it")
        host_task.questions = {name: Question(id=name, request=request, decision=answer)}
        for _ in range(20):
            host_task.turns += 1
            host_task.notify()
            await asyncio.sleep(0.005)
    host_task.questions = {}
    host_task.finish(None)
    await listening
    seconds = loop.time() - began
    asked = [each for each in host.states if each["status"] == "input_required"]
    assert {key for each in asked for key in each["inputRequests"]} == {"q1", "q2"}
    assert len(asked) <= 2 + seconds / _PAUSE
    assert host.states[-1]["status"] == "completed"


async def test_no_more_streams_are_open_than_allowed(tmp_path: Path) -> None:
    notifications = TaskNotifications(ProtocolTasks(HostTasks(Budget()), str(tmp_path), "s"))
    host = Listener()
    wanted = {"taskIds": ["unknown"], "toolsListChanged": True}
    streams = [listen(notifications, host, **wanted) for _ in range(_MAX_STREAMS + 1)]
    await wait_until(lambda: len(host.sent) >= _MAX_STREAMS)
    refused = [each for each in streams if each.done()]
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    assert [type(each.exception()) for each in refused] == [MCPError]
    await asyncio.wait_for(listen(notifications, host, taskIds=["unknown"]), 10)
