"""Hooks of the type http with a real server: inputs, decisions, headers, and rude answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mudroom import Integrations, Session

from .hook_helpers import make_set, make_spec
from .test_hook_functions import make_options

DENIAL = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}


class HookServer:
    """Server of hooks. `requests`: pairs of headers and input, in order."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.url = ""
        self.is_open = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as the last part of the path says."""
        self.requests.append((dict(request.headers), json.loads(await request.read())))
        kind = request.path.rpartition("/")[2]
        if kind == "wait":
            await self.is_open.wait()
        answers = {
            "deny": lambda: web.json_response(DENIAL),
            "text": lambda: web.Response(text="some context"),
            "broken": lambda: web.Response(text="{broken"),
            "status": lambda: web.json_response(DENIAL, status=500),
            "moved": lambda: web.Response(status=302, headers={"Location": f"{self.url}/deny"}),
            "nothing": lambda: web.Response(status=204),
            "wait": lambda: web.Response(),
        }
        return answers[kind]()


@pytest.fixture
async def server() -> AsyncGenerator[HookServer]:
    hooks = HookServer()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/{kind}", hooks.answer)
    async with TestServer(app) as running:
        hooks.url = str(running.make_url("")).rstrip("/")
        yield hooks
        hooks.is_open.set()


def make_http(server: HookServer, kind: str, event: str = "PreToolUse", **fields: Any):
    return make_spec(event, "", kind="http", url=f"{server.url}/{kind}", shown=kind, **fields)


async def test_answers_of_an_address_have_outcomes(
    server: HookServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fire(kind: str, event: str = "PreToolUse", **fields: Any):
        hooks = make_set(tmp_path, make_http(server, kind, event, **fields))
        outcome = await hooks.fire(event, {"hook_event_name": event, "text": "é" * 90_000})
        await hooks.close()
        return outcome

    denied = await fire("deny")
    assert (denied.decision, denied.reason) == ("deny", "no")
    assert server.requests[0][1] == {"hook_event_name": "PreToolUse", "text": "é" * 90_000}
    assert (await fire("text", "UserPromptSubmit")).context == "some context"
    assert (await fire("nothing")).decision == ""
    assert not caplog.messages
    failures = {
        "broken": "its output begins with { and is no JSON object",
        "status": "the answer has status 500",
        "moved": "the answer has status 302",
        "wait": "there was no answer within 0.2 s",
    }
    for kind, failure in failures.items():
        outcome = await fire(kind, timeout=0.2 if kind == "wait" else None)
        assert (outcome.decision, outcome.context) == ("", "")
        assert failure in caplog.messages[-1]
    blocked = await fire("status", blocks_on_failure=True)
    assert blocked.decision == "deny"


async def test_headers_have_only_the_variables_that_the_hook_names(
    server: HookServer, tmp_path: Path
) -> None:
    headers = {"Authorization": "Bearer ${TOKEN}", "X-Other": "$OTHER!"}
    spec = make_http(server, "nothing", headers=headers, allowed_variables=("TOKEN",))
    hooks = make_set(tmp_path, spec, environ={"TOKEN": "t", "OTHER": "secret"})
    await hooks.fire("PreToolUse", {})
    await hooks.close()
    sent = server.requests[0][0]
    assert (sent["Authorization"], sent["X-Other"]) == ("Bearer t", "!")
    assert sent["Content-Type"] == "application/json"


async def test_an_address_decides_about_the_calls_that_its_condition_selects(
    server: HookServer, tmp_path: Path
) -> None:
    chosen = make_http(server, "deny", condition="Bash(touch *)", matcher="Bash")
    others = [
        make_http(server, "status", condition="Bash(git *)"),
        make_http(server, "status", condition="Edit(*.py)"),
        make_http(server, "status", event="Stop", condition="Bash(touch *)"),
    ]
    options = make_options(tmp_path, integrations=Integrations(hook_programs=[chosen, *others]))
    async with Session(**options) as session:
        await session.run("D2")
    assert not (tmp_path / "made").exists()
    ((_, sent),) = server.requests
    assert sent["tool_input"] == {"command": "touch made"}
