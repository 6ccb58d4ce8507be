"""Tasks and questions over HTTP: which token of which owner may answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from tests.waiting import SECONDS

from .conftest import EXTENSION, HttpHost, TaskHost
from .test_questions import write_twice

MakeHttpHost = Callable[..., HttpHost]
MEANS_YES: dict[str, Any] = {"action": "accept", "content": {"answer": "allow once"}}


class HttpTaskHost(TaskHost):
    """A host of the newer revision over HTTP. `token`: of its owner."""

    def __init__(self, http: httpx2.AsyncClient, url: str, token: str) -> None:
        self._http = http
        self._url = url
        self._token = token

    async def ask(self, method: str, *, declares: bool = True, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
        if declares:
            capabilities["extensions"] = {EXTENSION: {}}
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        headers = {
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self._token}",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": params.get("name") or params.get("taskId", ""),
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        answer = await self._http.post(self._url, headers=headers, json=body)
        return answer.json()

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:  # type: ignore[override]
        """Call a tool without tasks of the protocol."""
        return await self.ask("tools/call", declares=False, name=tool, arguments=arguments)


async def test_only_tokens_with_the_scope_answer_decide_questions(
    make_http_host: MakeHttpHost, tmp_path: Path
) -> None:
    host = make_http_host(write_twice)
    tokens = [
        host.make_token("alice"),
        host.make_token("alice", scopes=("read", "run")),
        host.make_token("bob"),
    ]
    async with host.serve(), httpx2.AsyncClient(timeout=SECONDS) as http:
        alice, reader, bob = (HttpTaskHost(http, host.url, token) for token in tokens)
        task = (await alice.start("Write."))["taskId"]
        asked = await alice.wait(task, "input_required")
        (key,) = asked["inputRequests"]
        responses = {key: MEANS_YES}
        seen = await reader.get(task)
        refused = await reader.ask("tasks/update", taskId=task, inputResponses=responses)
        left = await reader.call("task_result", task="t1", wait=0.1)
        await alice.ask("tasks/update", taskId=task, inputResponses=responses)

        repeated = {"name": "task_result", "arguments": {"task": "t1"}}
        first = (await alice.call("task_result", task="t1"))["result"]
        again: dict[str, Any] = {
            **repeated,
            "requestState": first["requestState"],
            "inputResponses": dict.fromkeys(first["inputRequests"], MEANS_YES),
        }
        foreign = await bob.ask("tools/call", declares=False, **again)
        without = await reader.ask("tools/call", declares=False, **again)
        done = await alice.ask("tools/call", **again)
    assert (seen["status"], "inputRequests" in seen) == ("working", False)
    assert refused["error"]["message"] == "the token does not have the scope answer"
    assert left["result"]["structuredContent"]["state"] == "asking"
    assert foreign["error"]["message"] == "Unknown requestState"
    assert without["error"]["message"] == "the token does not have the scope answer"
    assert done["result"]["structuredContent"]["permission_denials"] == []
    assert len(list((tmp_path / "project").iterdir())) == 2
