"""Questions of MCP servers and tools to the user, through the host of an agent SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mudroom import ToolContext, tool
from mudroom._adapters.models.scripted import call
from mudroom.ports import InputForm

if TYPE_CHECKING:
    from .conftest import MakeHost

SCHEMA = {"type": "object", "properties": {"branch": {"type": "string"}}}


@tool
async def choose(ctx: ToolContext, url: str) -> str:
    """Ask the user."""
    schema = {} if url else SCHEMA
    answer = await ctx.ask_user(InputForm("git", "Which branch?", schema, url))
    return f"{answer.allowed} {answer.arguments} {answer.why}"


async def run_tool(make_host: MakeHost, url: str, reply: Any) -> tuple[list[Any], str]:
    """Return the requests to the host, and the result of the tool."""
    host = make_host([call("choose", url=url), "Done."], asks_host=True)
    host.tools = [choose]
    requests: list[Any] = []

    def answer(request: Any) -> Any:
        requests.append(request)
        if isinstance(reply, Exception):
            raise reply
        return reply

    host.answers["elicitation"] = answer
    host.answers["can_use_tool"] = lambda _: {"behavior": "allow"}
    async with host.serve():
        await host.ask("Choose.")
    results = [
        block["content"]
        for line in host.list_lines("user")
        for block in line["message"]["content"]
        if block["type"] == "tool_result"
    ]
    return requests, results[0]


async def test_a_form_is_filled_by_the_host(make_host: MakeHost) -> None:
    reply = {"action": "accept", "content": {"branch": "main"}}
    (request,), result = await run_tool(make_host, "", reply)
    assert request == {
        "subtype": "elicitation",
        "mcp_server_name": "git",
        "message": "Which branch?",
        "mode": "form",
        "requested_schema": SCHEMA,
    }
    assert result.startswith("True {'branch': 'main'}")


async def test_an_address_is_shown_by_the_host(make_host: MakeHost) -> None:
    (request,), result = await run_tool(make_host, "https://example.com", {"action": "accept"})
    assert (request["mode"], request["url"]) == ("url", "https://example.com")
    assert result.startswith("True {}")


@pytest.mark.parametrize("reply", [{"action": "decline"}, {"action": "cancel"}, ValueError("no")])
async def test_a_host_that_does_not_answer_declines(make_host: MakeHost, reply: Any) -> None:
    _, result = await run_tool(make_host, "", reply)
    assert result.startswith("False None")
