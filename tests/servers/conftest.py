"""A program with an agent SDK, played by a test: it writes lines and reads those of the server."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.waiting import SECONDS, wait_until

from mudroom import Integrations, ServerSpec, Session
from mudroom._adapters.integrations.hook_programs.events import RULES
from mudroom._adapters.integrations.plugins.spec import Plugin
from mudroom._adapters.models.providers import list_usable_models
from mudroom._cli.actions.parse_json_flags import parse_inline_agents
from mudroom._cli.actions.serve_sdk import choose_servers
from mudroom._core.agents import Mode
from mudroom.permissions.rules import Permissions
from mudroom.testing import ScriptedModel
from mudroom_hosts.agent_sdk.server import AgentSdkServer
from mudroom_hosts.agent_sdk.setup import (
    PlannedSession,
    SdkOptions,
    SdkSessionPlan,
    SessionParts,
)
from mudroom_hosts.file_prompts import FilePrompt

from .leftovers import Resources

Line = dict[str, Any]

SUBTYPES = [
    "initialize",
    "interrupt",
    "can_use_tool",
    "set_permission_mode",
    "set_model",
    "set_max_thinking_tokens",
    "rename_session",
    "set_color",
    "mcp_status",
    "get_context_usage",
    "get_session_cost",
    "list_models",
    "get_usage",
    "get_binary_version",
    "mcp_call",
    "file_suggestions",
    "hook_callback",
    "mcp_message",
    "rewind_files",
    "cancel_async_message",
    "read_file",
    "seed_read_state",
    "mcp_set_servers",
    "register_repo_root",
    "reload_plugins",
    "reload_skills",
    "reload_output_styles",
    "mcp_reconnect",
    "mcp_toggle",
    "set_has_subscribers",
    "stop_task",
    "background_tasks",
    "get_task_output",
    "apply_flag_settings",
    "get_settings",
    "get_hooks_listing",
    "update_settings",
    "elicitation",
    "request_user_dialog",
    "list_permission_rules",
    "mcp_read_resource",
]
"""Control requests in the types of the TypeScript SDK 0.3.330."""


class SdkHost:
    """The end of the protocol that an agent SDK holds.

    Arguments:
        folder: of the session.
        script: of the model.
    """

    def __init__(self, folder: Path, script: Any, options: SdkOptions, mode: str) -> None:
        self.model = ScriptedModel(script)
        self.lines: list[Line] = []
        self.notices: list[str] = []
        self.plans: list[SdkSessionPlan] = []
        self.tools: list[Any] = []
        self.servers: list[ServerSpec] = []
        self.prompts: list[FilePrompt] = []
        self.plugins: list[Plugin] = []
        self.answers: dict[str, Callable[[Line], object]] = {}
        self._folder = folder
        self._options = replace(
            options, hook_events=tuple(RULES), list_models=lambda: list_usable_models(os.environ)
        )
        self._permissions = Permissions(mode=Mode(mode), can_ask=options.asks_host)
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._written = asyncio.Condition()
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def prepare(self, plan: SdkSessionPlan, parts: SessionParts) -> PlannedSession:
        """Make the session of a plan, as the command line does."""
        self.plans.append(plan)
        rules = (*self._permissions.rules, *plan.rules)
        mode = Mode(plan.mode) if plan.mode else self._permissions.mode
        permissions = replace(self._permissions, rules=rules, mode=mode)
        chosen = choose_servers(plan, self.servers, folder=str(self._folder), environ={})
        agents = json.dumps(plan.setup.agents)
        session = Session(
            model=plan.model or self.model,
            agents=parse_inline_agents(agents, str(self._folder), []).agents,
            cwd=str(self._folder),
            home=str(self._folder / "home"),
            sandbox="off",
            permissions=permissions,
            approver=parts.approver,
            tools=self.tools,
            integrations=Integrations(
                plugins=self.plugins,
                tool_sources=plan.sources,
                mcp_servers=chosen.used,
                hooks=parts.hooks or None,
            ),
            resume=plan.resume,
            id=plan.id,
            environ={"HOME": str(self._folder)},
        )
        outputs = plan.setup.json_schema
        return PlannedSession(
            session=session,
            outputs=outputs,
            servers=chosen,
            load_prompts=lambda: self.prompts,
        )

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[AgentSdkServer]:
        """Run a server until the end of the block, and close its input."""
        server = AgentSdkServer(self.prepare, self._options, self._receive, self.notices.append)
        running = asyncio.create_task(server.serve(self._read()))
        try:
            yield server
            self.close()
            async with asyncio.timeout(SECONDS):
                await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def send(self, line: object) -> None:
        """Send a line to the server."""
        self._queue.put_nowait(json.dumps(line).encode())

    def send_bytes(self, data: bytes) -> None:
        """Send a line that may be no JSON."""
        self._queue.put_nowait(data)

    def close(self) -> None:
        """Close the input of the server."""
        self._queue.put_nowait(None)

    def send_prompt(self, content: object, **fields: object) -> None:
        """Send a line of the user."""
        message = {"role": "user", "content": content}
        self.send({"type": "user", "message": message, "session_id": "", **fields})

    async def request(self, subtype: str, **fields: object) -> Line:
        """Send a control request and return the body of its response."""
        self._count += 1
        request_id = f"r{self._count}"
        request = {"subtype": subtype, **fields}
        self.send({"type": "control_request", "request_id": request_id, "request": request})
        line = await self.wait_for(
            lambda line: (
                line["type"] == "control_response" and line["response"]["request_id"] == request_id
            )
        )
        return line["response"]

    async def ask(self, prompt: object, **fields: object) -> Line:
        """Send a prompt and return its result line."""
        count = len(self.list_lines("result"))
        self.send_prompt(prompt, **fields)
        await self.wait_until(lambda: len(self.list_lines("result")) > count)
        return self.list_lines("result")[count]

    def list_lines(self, type: str, subtype: str = "") -> list[Line]:
        """Return the lines of a type."""
        return [
            line
            for line in self.lines
            if line["type"] == type and (not subtype or line.get("subtype") == subtype)
        ]

    def list_states(self) -> list[str]:
        """Return the states of the session in their order."""
        return [line["state"] for line in self.list_lines("system", "session_state_changed")]

    async def wait_for(self, matches: Callable[[Line], bool]) -> Line:
        """Return the first line that matches, as soon as it comes."""
        await self.wait_until(lambda: any(map(matches, self.lines)))
        return next(filter(matches, self.lines))

    async def wait_until(self, is_true: Callable[[], object]) -> None:
        """Wait until a condition about the lines is true."""
        async with asyncio.timeout(SECONDS), self._written:
            await self._written.wait_for(is_true)

    def _receive(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        assert b"\n" not in data[:-1]
        line: Line = json.loads(data)
        self.lines.append(line)
        self._start(self._notify())
        if line["type"] == "control_request" and line["request"]["subtype"] in self.answers:
            self._start(self._answer(line))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._written:
            self._written.notify_all()

    async def _answer(self, line: Line) -> None:
        """Answer a request of the server as the test says; an exception is an error."""
        response: Line = {"request_id": line["request_id"]}
        try:
            answer = self.answers[line["request"]["subtype"]](line["request"])
            if asyncio.iscoroutine(answer):
                answer = await answer
            response |= {"subtype": "success", "response": answer}
        except Exception as error:  # noqa: BLE001  (an SDK does the same)
            response |= {"subtype": "error", "error": str(error)}
        self.send({"type": "control_response", "response": response})

    async def _read(self) -> AsyncIterator[bytes]:
        while (data := await self._queue.get()) is not None:
            yield data


MakeHost = Callable[..., SdkHost]
_SECONDS_WITHOUT_SEARCH = 0.2
"""Seconds for what a test has begun to close, before a search for garbage."""


@pytest.fixture(autouse=True)
async def check_nothing_is_left() -> AsyncGenerator[None]:
    """Fail a test that leaves a task, a process or an open file. They get time to end."""
    before = Resources.list_all()
    yield
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_WITHOUT_SEARCH):
            await wait_until(lambda: not before.describe_new())
    if not before.describe_new():
        return
    gc.collect()  # the exception of a failed request keeps its connection until then
    try:
        await wait_until(lambda: not before.describe_new())
    except TimeoutError:
        pytest.fail(f"the test has left:\n{before.describe_new()}", pytrace=False)


@pytest.fixture
def make_host(tmp_path: Path) -> MakeHost:
    """Return a function that makes a host with a script of the model."""

    def make(script: Any, mode: str = "default", **options: Any) -> SdkHost:
        return SdkHost(tmp_path, script, SdkOptions(**options), mode)

    return make
