"""ServerConformance: what each server owes its client, whatever its protocol.

A `Client` says how a protocol asks for it. A new server gets one more client here.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from msgspec.structs import replace
from tests.driving.line_server import LineServer
from tests.driving.prompts import get_last_prompt
from tests.waiting import SECONDS, wait_until

from mudroom import Session
from mudroom.driving import Questions, SessionStart
from mudroom.errors import SessionPaused
from mudroom.permissions import Permissions
from mudroom.testing import Request, ScriptedModel, call
from mudroom_hosts.agent_sdk.setup import PlannedSession, SdkOptions, SdkSessionPlan, SessionParts
from mudroom_hosts.mcp.server import McpOptions

from .acp.conftest import SUBAGENTS, Editor
from .conftest import SdkHost
from .http_clients.conftest import Site
from .mcp_hosts.conftest import McpHost, get_values

DONE, CANCELLED = "done", "cancelled"


class Script:
    """The model of all servers: it writes a file, waits, or is done at once, as the prompt says.

    Attributes:
        prompts: last prompts of its requests, in their order.
        firsts: first prompts of the conversations of these requests.
    """

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.firsts: list[str] = []
        self.released = asyncio.Event()

    async def answer(self, request: Request) -> Any:
        prompt = get_last_prompt(request)
        self.prompts.append(prompt)
        self.firsts.append(request.prompt)
        if "write" in prompt and not request.results:
            return call("write", file_path="made.txt", content="text\n")
        if "slow" in prompt:
            await self.released.wait()
        return f"{prompt} is done"

    async def wait_for(self, prompt: str) -> None:
        await wait_until(lambda: prompt in self.prompts)


class Client(ABC):
    """One client of one server."""

    place = ""
    """Folder of the session, below that of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = Script()
        self.questions: list[Any] = []
        self.session = ""
        self.count = 0

    @property
    def made(self) -> Path:
        return self.folder / self.place / "made.txt"

    @abstractmethod
    def serve(self, *, resumes: bool = False) -> Any:
        """Run the server, and open a session in the block, or resume that of the last block."""

    @abstractmethod
    def send(self, prompt: str) -> asyncio.Task[str]:
        """Send a prompt; the task returns how it ended: DONE, CANCELLED, or an error."""

    @abstractmethod
    async def cancel(self) -> None:
        """Stop the prompt that works."""

    @abstractmethod
    async def decide(self, *, allow: bool) -> None:
        """Answer the open question."""

    async def wait_for_question(self) -> None:
        await wait_until(lambda: self.questions)

    async def wait_for_decision(self, *_: Any) -> Any:
        """Take a question; return what the test decides."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.questions.append(answer)
        return await answer

    @abstractmethod
    async def count_open_questions(self) -> int:
        """Return the questions that the client could still answer."""

    @abstractmethod
    def stop(self) -> None:
        """Have the server stop its work so that a later one continues it."""


class SdkClient(Client):
    @asynccontextmanager
    async def serve(self, *, resumes: bool = False) -> AsyncGenerator[None]:
        options = SdkOptions(asks_host=True, resumes=resumes)
        host = self.host = SdkHost(self.folder, self.script.answer, options, "default")
        host.answers["can_use_tool"] = self.wait_for_decision
        prepare = host.prepare

        def prepare_resumed(plan: SdkSessionPlan, parts: SessionParts) -> PlannedSession:
            return prepare(plan if plan.resume else replace(plan, resume=self.session), parts)

        if resumes:
            host.prepare = prepare_resumed
        with suppress(SessionPaused):
            async with host.serve(initializes=True) as self.server:
                yield

    def send(self, prompt: str) -> asyncio.Task[str]:
        self.count += 1
        uuid = f"line {self.count}"
        self.host.send_prompt(prompt, uuid=uuid, priority="later")
        return asyncio.create_task(self._wait(uuid))

    async def _wait(self, uuid: str) -> str:
        def is_end(line: Any) -> bool:
            return line["type"] == "result" and uuid in line.get("user_message_uuids", [])

        line = await self.host.wait_for(is_end)
        self.session = line["session_id"]
        return DONE if line["subtype"] == "success" else CANCELLED

    async def cancel(self) -> None:
        await self.host.request("interrupt")

    async def decide(self, *, allow: bool) -> None:
        behavior = {"behavior": "allow"} if allow else {"behavior": "deny", "message": "No."}
        self.questions[-1].set_result(behavior)

    async def count_open_questions(self) -> int:
        lines = self.host.lines
        withdrawn = {
            line["request_id"] for line in lines if line["type"] == "control_cancel_request"
        }
        asked = self.host.list_lines("control_request")
        return len([line for line in asked if line["request_id"] not in withdrawn])

    def stop(self) -> None:
        line = next(line for line in self.host.lines if line["type"] == "system")
        self.session = line["session_id"]
        self.server.pause()


class EditorClient(Client):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._answered: set[int] = set()

    @asynccontextmanager
    async def serve(self, *, resumes: bool = False) -> AsyncGenerator[None]:
        editor = self.editor = Editor(self.folder, self.script.answer, SUBAGENTS, {})
        self.questions = editor.requests
        editor.answer = lambda _: None
        async with editor.serve() as self.server:
            if resumes:
                await editor.load(self.session)
            else:
                self.session = await editor.open()
            yield

    def send(self, prompt: str) -> asyncio.Task[str]:
        number = self.editor.start_prompt(self.session, prompt)
        return asyncio.create_task(self._wait(number))

    async def _wait(self, number: int) -> str:
        result = await self.editor.finish(number)
        reason: str = result.get("stopReason", str(result))
        return {"end_turn": DONE, "cancelled": CANCELLED}.get(reason, reason)

    async def cancel(self) -> None:
        self.editor.notify("session/cancel", sessionId=self.session)
        for line in self.questions:  # the protocol asks this of a client that cancels
            if line["id"] not in self._answered:
                self._choose(line, "cancelled")

    async def decide(self, *, allow: bool) -> None:
        self._choose(self.questions[-1], "allow" if allow else "reject")

    def _choose(self, line: Any, choice: str) -> None:
        self._answered.add(line["id"])
        self.editor.choose(line, choice)

    async def count_open_questions(self) -> int:
        return len([line for line in self.questions if line["id"] not in self._answered])

    def stop(self) -> None:
        self.server.pause()


class HttpClient(Client):
    place = "project"

    @asynccontextmanager
    async def serve(self, *, resumes: bool = False) -> AsyncGenerator[None]:
        site = Site(self.folder, self.script.answer, {"drain_seconds": 0.0}, {})
        try:
            async with site.connect() as self.client:
                if not resumes:
                    self.session = (await self.client.create())["id"]
                yield
        finally:
            site.close()

    def send(self, prompt: str) -> asyncio.Task[str]:
        return asyncio.create_task(self._run(prompt))

    async def _run(self, prompt: str) -> str:
        path = f"/v1/sessions/{self.session}/events"
        body = {"type": "user.message", "text": prompt}
        while True:  # the same message again returns the state of the first
            _, item = await self.client.send("POST", path, body, key=prompt)
            if item["state"] == "done":
                return {"GOAL": DONE, "CANCELLED": CANCELLED}.get(item["reason"], str(item))
            await asyncio.sleep(0.01)

    async def cancel(self) -> None:
        await self.client.post(self.session, "user.interrupt")

    async def wait_for_question(self) -> None:
        while not await self.count_open_questions():  # noqa: ASYNC110  (a client can only ask)
            await asyncio.sleep(0.01)

    async def decide(self, *, allow: bool) -> None:
        (question,) = (await self.client.get(f"/v1/sessions/{self.session}"))["questions"]
        fields = {"question": question["id"], "allow": allow}
        await self.client.post(self.session, "question.answer", **fields)

    async def count_open_questions(self) -> int:
        return len((await self.client.get(f"/v1/sessions/{self.session}")).get("questions", ()))

    def stop(self) -> None:
        pass  # the end of the block does it


class McpClient(Client):
    place = "project"

    @asynccontextmanager
    async def serve(self, *, resumes: bool = False) -> AsyncGenerator[None]:
        project = self.folder / self.place
        project.mkdir(exist_ok=True)
        options = McpOptions(parallel=1)
        host = McpHost(project, self.script.answer, options, "default")
        async with host.connect("legacy", elicitation_callback=self._ask) as self.client:
            yield

    async def _ask(self, *_: Any) -> mcp_types.ElicitResult:
        text = "allow once" if await self.wait_for_decision() else "no"
        return mcp_types.ElicitResult(action="accept", content={"answer": text})

    def send(self, prompt: str) -> asyncio.Task[str]:
        return asyncio.create_task(self._run(prompt))

    async def _run(self, prompt: str) -> str:
        result = await self.client.call_tool("task", {"prompt": prompt})
        reason: str = get_values(result)["reason"]
        return {"GOAL": DONE, "CANCELLED": CANCELLED}.get(reason, reason)

    async def cancel(self) -> None:
        await self.client.call_tool("task_cancel", {"task": "t1"})

    async def decide(self, *, allow: bool) -> None:
        self.questions[-1].set_result(allow)

    async def count_open_questions(self) -> int:
        return sum(not question.done() for question in self.questions)

    def stop(self) -> None:
        raise NotImplementedError("tasks of one server are not continued by the next")


class GuestClient(Client):
    """A client of a server that uses nothing but public doors."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lines: list[Any] = []

    @asynccontextmanager
    async def serve(self, *, resumes: bool = False) -> AsyncGenerator[None]:
        self.lines.clear()
        self._input: asyncio.Queue[str | None] = asyncio.Queue()
        self.server = LineServer(self._make_session, self._receive, resumes=resumes)
        running = asyncio.create_task(self.server.serve(self._read()))
        yield
        self._input.put_nowait(None)
        await running

    def _make_session(self, questions: Questions, start: SessionStart) -> Session:
        options: dict[str, Any] = start.options
        if start.is_recorded and start.id is None:
            options = {"resume": self.session}
        return Session(
            model=ScriptedModel(self.script.answer),
            cwd=str(self.folder),
            home=str(self.folder / "home"),
            sandbox="off",
            environ={},
            permissions=Permissions(can_ask=True),
            approver=questions,
            **options,
        )

    def _receive(self, line: str) -> None:
        self.lines.append(json.loads(line))
        self.questions = self._list("question")

    async def _read(self) -> AsyncGenerator[str]:
        while (line := await self._input.get()) is not None:
            yield line

    def _write(self, kind: str, **fields: Any) -> None:
        self._input.put_nowait(json.dumps({"type": kind, **fields}))

    def _list(self, kind: str) -> list[Any]:
        return [line for line in self.lines if line["type"] == kind]

    def send(self, prompt: str) -> asyncio.Task[str]:
        self.count += 1
        self._write("prompt", id=str(self.count), text=prompt)
        return asyncio.create_task(self._wait(str(self.count)))

    async def _wait(self, id: str) -> str:
        await wait_until(lambda: any(line["id"] == id for line in self._list("end")))
        (reason,) = [str(line["reason"]) for line in self._list("end") if line["id"] == id]
        return {"GOAL": DONE, "CANCELLED": CANCELLED}.get(reason, reason)

    async def cancel(self) -> None:
        self._write("cancel")

    async def decide(self, *, allow: bool) -> None:
        self._write("answer", question=self.questions[-1]["question"], allow=allow)

    async def count_open_questions(self) -> int:
        return len(self.questions) - len(self._list("withdrawn"))

    def stop(self) -> None:
        self.session = self._list("open")[0]["session"]
        self.server.pause()


CLIENTS: list[type[Client]] = [SdkClient, EditorClient, HttpClient, GuestClient]
conversations = pytest.mark.parametrize("client", CLIENTS, indirect=True)
"""Clients whose prompts belong to one conversation; tasks of MCP hosts have none in common."""


@pytest.fixture(params=[*CLIENTS, McpClient])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Client:
    return request.param(tmp_path)


async def test_prompts_wait_for_one_another(client: Client) -> None:
    async with asyncio.timeout(SECONDS), client.serve():
        first = client.send("slow")
        await client.script.wait_for("slow")
        second = client.send("two")
        assert await _settle(second) is None
        assert client.script.prompts == ["slow"]
        client.script.released.set()
        assert [await first, await second] == [DONE, DONE]
    assert client.script.prompts == ["slow", "two"]


async def test_a_cancelled_prompt_ends_and_the_next_one_runs(client: Client) -> None:
    async with asyncio.timeout(SECONDS), client.serve():
        first = client.send("slow")
        await client.script.wait_for("slow")
        await client.cancel()
        assert await first == CANCELLED
        assert await client.send("two") == DONE
    assert client.script.prompts == ["slow", "two"]


@pytest.mark.parametrize("allow", [True, False])
async def test_a_question_is_answered(client: Client, *, allow: bool) -> None:
    async with asyncio.timeout(SECONDS), client.serve():
        prompt = client.send("write")
        await client.wait_for_question()
        assert not client.made.exists()
        await client.decide(allow=allow)
        assert await prompt == DONE
    assert client.made.exists() == allow


async def test_a_cancel_withdraws_the_question(client: Client) -> None:
    async with asyncio.timeout(SECONDS), client.serve():
        prompt = client.send("write")
        await client.wait_for_question()
        await client.cancel()
        assert await prompt == CANCELLED
        while await client.count_open_questions():  # noqa: ASYNC110  (a client can only ask)
            await asyncio.sleep(0.01)
        assert await client.send("two") == DONE
    assert not client.made.exists()


@conversations
async def test_a_later_server_resumes_the_conversation(client: Client) -> None:
    async with asyncio.timeout(SECONDS):
        async with client.serve():
            assert await client.send("one") == DONE
            client.stop()
        async with client.serve(resumes=True):
            assert await client.send("two") == DONE
    assert client.script.firsts == ["one", "one"]
    assert client.script.prompts == ["one", "two"]


@conversations
async def test_work_of_a_server_that_was_stopped_continues(client: Client) -> None:
    async with asyncio.timeout(SECONDS):
        async with client.serve():
            prompt = client.send("slow")
            await client.script.wait_for("slow")
            client.stop()
        prompt.cancel()
        client.script.released.set()
        async with client.serve(resumes=True):
            assert await client.send("two") == DONE
        await asyncio.gather(prompt, return_exceptions=True)
    assert client.script.prompts == ["slow", "slow", "two"]


async def _settle(task: asyncio.Task[str]) -> str | None:
    """Give a task some steps of the event loop; return its result, None if it still works."""
    for _ in range(50):
        await asyncio.sleep(0)
    return task.result() if task.done() else None
