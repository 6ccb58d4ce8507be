"""A program with an agent SDK, played by a test: it writes lines and reads those of the server."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec import Struct
from msgspec.structs import replace
from tests.waiting import wait_until

from mudroom import Integrations, ServerSpec, Session
from mudroom._adapters.integrations.hook_programs.events import RULES
from mudroom._adapters.integrations.plugins.spec import Plugin
from mudroom._adapters.models.providers import list_usable_models
from mudroom._cli.actions.parse_json_flags import parse_inline_agents
from mudroom._cli.actions.serve_sdk import choose_servers
from mudroom._core.agents import Mode
from mudroom._platform.processes import list_children
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

from .line_client import Line, LineClient

SUBTYPES = [
    *("initialize", "interrupt", "can_use_tool", "set_permission_mode", "set_model"),
    *("set_max_thinking_tokens", "rename_session", "set_color", "mcp_status"),
    *("get_context_usage", "get_session_cost", "list_models", "get_usage"),
    *("get_binary_version", "mcp_call", "file_suggestions", "hook_callback", "mcp_message"),
    *("rewind_files", "cancel_async_message", "read_file", "seed_read_state"),
    *("mcp_set_servers", "register_repo_root", "reload_plugins", "reload_skills"),
    *("reload_output_styles", "mcp_reconnect", "mcp_toggle", "set_has_subscribers"),
    *("stop_task", "background_tasks", "get_task_output", "apply_flag_settings"),
    *("get_settings", "get_hooks_listing", "update_settings", "elicitation"),
    *("request_user_dialog", "list_permission_rules", "mcp_read_resource"),
]
"""Control requests in the types of the TypeScript SDK 0.3.330."""


class SdkHost(LineClient):
    """The end of the protocol that an agent SDK holds.

    Attributes:
        answers: subtypes of requests of the server -> the answer; an exception is an error.
    """

    def __init__(self, folder: Path, script: Any, options: SdkOptions, mode: str) -> None:
        super().__init__()
        self.model = ScriptedModel(script)
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
        self._count = 0

    def prepare(self, plan: SdkSessionPlan, parts: SessionParts) -> PlannedSession:
        self.plans.append(plan)
        rules = (*self._permissions.rules, *plan.rules)
        mode = Mode(plan.mode) if plan.mode else self._permissions.mode
        chosen = choose_servers(plan, self.servers, folder=str(self._folder), environ={})
        agents = json.dumps(plan.setup.agents)
        session = Session(
            model=plan.model or self.model,
            agents=parse_inline_agents(agents, str(self._folder), []).agents,
            cwd=str(self._folder),
            home=str(self._folder / "home"),
            sandbox="off",
            permissions=replace(self._permissions, rules=rules, mode=mode),
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
        return PlannedSession(
            session=session,
            outputs=plan.setup.json_schema,
            servers=chosen,
            load_prompts=lambda: self.prompts,
        )

    @asynccontextmanager
    async def serve(self, *, initializes: bool = False) -> AsyncGenerator[AgentSdkServer]:
        server = AgentSdkServer(self.prepare, self._options, self.receive, self.notices.append)
        async with self.run_server(server):
            if initializes:
                await self.request("initialize")
            yield server

    def send(self, line: object) -> None:
        self.send_bytes(json.dumps(line).encode())

    def send_prompt(self, content: object, **fields: object) -> None:
        message = {"role": "user", "content": content}
        self.send({"type": "user", "message": message, "session_id": "", **fields})

    async def request(self, subtype: str, **fields: object) -> Line:
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
        count = len(self.list_lines("result"))
        self.send_prompt(prompt, **fields)
        await self.wait_until(lambda: len(self.list_lines("result")) > count)
        return self.list_lines("result")[count]

    def list_lines(self, type: str, subtype: str = "") -> list[Line]:
        return [
            line
            for line in self.lines
            if line["type"] == type and (not subtype or line.get("subtype") == subtype)
        ]

    def list_requests(self) -> list[Line]:
        return [line["request"] for line in self.list_lines("control_request")]

    def list_results(self) -> list[str]:
        return [
            block["content"]
            for line in self.list_lines("user")
            for block in line["message"]["content"]
            if block["type"] == "tool_result"
        ]

    def list_states(self) -> list[str]:
        """Return the states of the session in their order."""
        return [line["state"] for line in self.list_lines("system", "session_state_changed")]

    def handle(self, line: Line) -> None:
        if line["type"] == "control_request" and line["request"]["subtype"] in self.answers:
            self.start_task(self._answer(line))

    async def _answer(self, line: Line) -> None:
        response: Line = {"request_id": line["request_id"]}
        try:
            answer = self.answers[line["request"]["subtype"]](line["request"])
            if asyncio.iscoroutine(answer):
                answer = await answer
            response |= {"subtype": "success", "response": answer}
        except Exception as error:  # noqa: BLE001  (an SDK does the same)
            response |= {"subtype": "error", "error": str(error)}
        self.send({"type": "control_response", "response": response})


class Resources(Struct, frozen=True):
    """What exists at one time.

    Arguments:
        tasks: of the event loop, without the present one. processes: children of this process.
        files: what each open file descriptor refers to, with the number of descriptors.
    """

    tasks: frozenset[asyncio.Task[object]]
    processes: frozenset[int]
    files: Counter[str]

    @classmethod
    def list_all(cls) -> Self:
        here = asyncio.current_task()
        return cls(
            frozenset(
                task
                for task in asyncio.all_tasks()
                if task is not here and not _belongs_to_loop(task)
            ),
            frozenset(list_children()),
            _list_files(),
        )

    def describe_new(self) -> str:
        """Return what exists now and did not then, "" for nothing."""
        now = Resources.list_all()
        new = [
            *map(repr, now.tasks - self.tasks),
            *(f"process {pid}" for pid in now.processes - self.processes),
            *(now.files - self.files),
        ]
        return "\n".join(sorted(new))


def _belongs_to_loop(task: asyncio.Task[object]) -> bool:
    """Return whether the package that sends events has started a task at its first stream."""
    return getattr(task.get_coro(), "__qualname__", "") == "_shutdown_watcher"


def _list_files() -> Counter[str]:
    files: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            files[os.readlink(f"/proc/self/fd/{number}")] += 1
        except OSError:  # the descriptor of the list itself
            continue
    return files


MakeHost = Callable[..., SdkHost]


@pytest.fixture(autouse=True)
async def check_nothing_is_left() -> AsyncGenerator[None]:
    """Fail a test that leaves a task, a process or an open file. They get time to end."""
    before = Resources.list_all()
    yield
    if before.describe_new():
        gc.collect()  # a closed session keeps the descriptor of its folder until then
    try:
        await wait_until(lambda: not before.describe_new())
    except TimeoutError:
        pytest.fail(f"the test has left:\n{before.describe_new()}", pytrace=False)


@pytest.fixture
def make_host(tmp_path: Path) -> MakeHost:
    def make(script: Any, mode: str = "default", **options: Any) -> SdkHost:
        return SdkHost(tmp_path, script, SdkOptions(**options), mode)

    return make
