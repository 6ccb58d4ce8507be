"""An editor, played by a test: it sends requests and reads the messages of the ACP server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import Integrations, Session
from mudroom._cli.actions.serve_acp import fetch_server_prompt, list_server_prompts
from mudroom._core.agents import Mode
from mudroom._core.budgets import Budget
from mudroom._core.ports import Approver
from mudroom.permissions.approved_rules import load_approved
from mudroom.permissions.rules import Permissions
from mudroom.testing import ScriptedModel
from mudroom_hosts.acp.server import AcpServer
from mudroom_hosts.acp.setup import (
    CommandLine,
    EditorSessionPlan,
    RecordedSession,
)
from mudroom_hosts.file_prompts import FilePrompt

from ..line_client import Line, LineClient

NEW_UPDATES = ("subagent_update", "session_message", "notice", "compaction_update")
"""Updates that the Python package does not have yet."""

RESULTS: dict[str, str] = {
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/prompt": "PromptResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
}
"""Names of the package's models for the results of requests."""

REQUESTS: dict[Any, str] = {
    "fs/read_text_file": "ReadTextFileRequest",
    "session/request_permission": "RequestPermissionRequest",
}
"""Names of the package's models for requests of the server."""

ELICITATIONS = ("CreateUrlSessionElicitationRequest", "CreateFormSessionElicitationRequest")
"""Names of the package's models for questions with an address and with a form."""


def check_with_package(model: str, value: object) -> None:
    """Check a value with a model of the Python package, whose import takes more than a second."""
    from acp import schema

    getattr(schema, model).model_validate(value)


class Editor(LineClient):
    """The end of the protocol that an editor holds. Each line of the server is checked.

    Attributes:
        answer: chooses the answer to a question about a call; None never answers.
        fill: returns the result or the error of a question of an MCP server.
        give: returns the result or the error of a request for the text of a file; None never
            answers.
        reads_unsaved: the server was started with --unsaved.
        requests: the questions so far.
    """

    def __init__(self, folder: Path, script: Any, abilities: Line, options: Line) -> None:
        super().__init__()
        self.model = ScriptedModel(script)
        self.plans: list[EditorSessionPlan] = []
        self.requests: list[Line] = []
        self.answer: Callable[[Line], str | None] = lambda _: "allow"
        self.fill: Callable[[Line], Line] = lambda _: {"result": {"action": "decline"}}
        self.give: Callable[[Line], Line] | None = None
        self.reads_unsaved = False
        self.prompts: list[FilePrompt] = []
        self.has_model = True
        self.home = str(folder / "home")
        self.folder = folder
        self._abilities = abilities
        self._options = {"prompt_budget": Budget(depth=4), **options}
        self._methods: dict[int, str] = {}

    def prepare(self, plan: EditorSessionPlan, approver: Approver) -> Session:
        self.plans.append(plan)
        mode = Mode(plan.mode) if plan.mode else Mode.DEFAULT
        rules = load_approved(self.home, plan.cwd)
        options: Line = {"model": plan.model or self.model, "sandbox": "off"} | self._options
        options |= {"tools": plan.tools} if plan.tools else {}
        return Session(
            cwd=plan.cwd,
            home=self.home,
            permissions=Permissions(rules=rules, mode=mode, can_ask=True),
            approver=approver,
            integrations=Integrations(mcp_servers=plan.servers),
            resume=plan.resume,
            id=plan.id,
            environ={"HOME": str(self.folder)},
            **options,
        )

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[AcpServer]:
        async def list_sessions(folder: str | None) -> list[RecordedSession]:
            return [
                RecordedSession(id=str(number), cwd=folder or "/", title="A title.", written=0)
                for number in range(60)
            ]

        async def delete_session(session: str) -> None:
            self.notices.append(f"deleted {session}")

        command_line = CommandLine(
            prepare=self.prepare,
            load_prompts=lambda _: self.prompts,
            list_server_prompts=list_server_prompts,
            fetch_server_prompt=fetch_server_prompt,
            list_models=lambda: ["offline"],
            list_sessions=list_sessions,
            delete_session=delete_session,
            has_model=lambda _: self.has_model,
            preload=lambda: None,
            reads_unsaved=self.reads_unsaved,
        )
        server = AcpServer(command_line, self.receive, self.notices.append)
        async with self.run_server(server):
            await self.request("initialize", protocolVersion=1, clientCapabilities=self._abilities)
            yield server

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[str]:
        """Run a server with a new session; yield its id."""
        async with self.serve():
            yield await self.open()

    def send(self, **message: Any) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def notify(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def start(self, method: str, **params: Any) -> int:
        number = len(self._methods)
        self._methods[number] = method
        self.send(id=number, method=method, params=params)
        return number

    async def finish(self, number: int) -> Line:
        line = await self.wait_for(lambda line: "method" not in line and line.get("id") == number)
        return line["result"] if "result" in line else line["error"]

    async def request(self, method: str, **params: Any) -> Line:
        return await self.finish(self.start(method, **params))

    async def open(self, **params: Any) -> str:
        fields: Line = {"cwd": str(self.folder), "mcpServers": [], **params}
        return (await self.request("session/new", **fields))["sessionId"]

    async def load(self, session: str, method: str = "session/load") -> Line:
        return await self.request(method, sessionId=session, cwd=str(self.folder), mcpServers=[])

    def start_prompt(self, session: str, text: str) -> int:
        return self.start(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}]
        )

    async def ask(self, session: str, text: str) -> Line:
        return await self.finish(self.start_prompt(session, text))

    def list_updates(self, kind: str = "", session: str = "") -> list[Line]:
        params = [line["params"] for line in self.lines if line.get("method") == "session/update"]
        return [
            each["update"]
            for each in params
            if kind in ("", each["update"]["sessionUpdate"]) and session in ("", each["sessionId"])
        ]

    def list_states(self) -> dict[str, list[str]]:
        """Return the states of each child in their order."""
        states: dict[str, list[str]] = {}
        for update in self.list_updates("subagent_update"):
            states.setdefault(update["sessionId"], []).append(update["state"]["state"])
        return states

    def join_text(self, session: str = "", kind: str = "agent_message_chunk") -> str:
        """Return the text of the chunks for a session."""
        return "".join(each["content"]["text"] for each in self.list_updates(kind, session))

    def handle(self, line: Line) -> None:
        self._check(line)
        if line.get("method") == "session/request_permission":
            self.requests.append(line)
            if choice := self.answer(line["params"]):
                self.choose(line, choice)
        elif line.get("method") == "elicitation/create":
            self.send(id=line["id"], **self.fill(line["params"]))
        elif line.get("method") == "fs/read_text_file" and self.give:
            self.send(id=line["id"], **self.give(line["params"]))

    def choose(self, line: Line, choice: str) -> None:
        """Answer a question about a call with the id of an option, or "cancelled"."""
        outcome: Line = {"outcome": "cancelled"}
        if choice != "cancelled":
            outcome = {"outcome": "selected", "optionId": choice}
        self.send(id=line["id"], result={"outcome": outcome})

    def _check(self, line: Line) -> None:
        assert line["jsonrpc"] == "2.0"
        method = line.get("method")
        if method == "session/update":
            kind = line["params"]["update"]["sessionUpdate"]
            if kind not in NEW_UPDATES:
                check_with_package("SessionNotification", line["params"])
        elif method == "elicitation/create":
            is_form = bool(line["params"]["mode"] == "form")
            check_with_package(ELICITATIONS[is_form], line["params"])
        elif method in REQUESTS:
            check_with_package(REQUESTS[method], line["params"])
        elif "result" in line and (model := RESULTS.get(self._methods[line["id"]])):
            check_with_package(model, line["result"])
        else:
            assert "result" in line or "error" in line


MakeEditor = Callable[..., Editor]
SUBAGENTS: Line = {"subagents": {}, "session": {"notices": {}, "compaction": {}}}


@pytest.fixture
def make_editor(tmp_path: Path) -> MakeEditor:
    """Return a function that makes an editor.

    Its arguments: the script, whether it shows children as sessions, other abilities, and session
    options.
    """

    def make(
        script: Any, *, subagents: bool = True, abilities: Line | None = None, **options: Any
    ) -> Editor:
        shown = (SUBAGENTS if subagents else {}) | (abilities or {})
        return Editor(tmp_path, script, shown, options)

    return make
