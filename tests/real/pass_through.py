"""A pass-through before model servers that makes a small model do what a test needs.

It changes only requests. The model still writes each token.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, web
from msgspec import Struct

SHORT_TEXT = 'root ::= "I see " [a-z ]{4,24} "."'
"""Grammar of a short answer, because a small model ends no answer by itself."""

SEVERAL_CALLS = {"logit_bias": [[11, 200], [2, 150]], "parallel_tool_calls": False}
"""Fields that make the end of an answer less likely, so that calls follow the first one.

With `parallel_tool_calls`, the grammar of the server allows a list without end as one call."""


class ForcedCalls(Struct, frozen=True):
    """The first answer of each conversation calls the tools that it has of these.

    Arguments:
        url: a server that answers with calls.
        arguments: by tool.
        has_several: the answer has several calls.
    """

    url: str
    arguments: Mapping[str, Mapping[str, object]]
    has_several: bool = False


@asynccontextmanager
async def open_pass_through(url: str, calls: ForcedCalls | None = None) -> AsyncGenerator[str]:
    """Yield the URL of a pass-through to a server."""
    async with ClientSession() as client:

        async def forward(request: web.BaseRequest) -> web.StreamResponse:
            body = json.loads(await request.read() or b"{}")
            target = url
            if body:
                body |= {"temperature": 0, "seed": 1}
                tools = body.pop("tools", [])
                if calls and not _has_answer(body) and _force_calls(body, tools, calls):
                    target = calls.url
                else:
                    _shorten_answer(body)
            async with client.request(
                request.method, target + request.path, json=body or None
            ) as answer:
                response = web.StreamResponse(
                    status=answer.status, headers={"Content-Type": answer.content_type}
                )
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response

        runner = web.ServerRunner(web.Server(forward))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def _has_answer(body: dict[str, Any]) -> bool:
    history = body.get("messages") or body["input"]
    return any(entry.get("role") == "assistant" or "call_id" in entry for entry in history)


def _force_calls(body: dict[str, Any], tools: list[dict[str, Any]], calls: ForcedCalls) -> bool:
    """Require calls with fixed arguments; return False if the request has none of the tools."""
    for tool in tools:
        function = tool.get("function", tool)
        if arguments := calls.arguments.get(function["name"]):
            schema = {
                "type": "object",
                "properties": {name: {"const": value} for name, value in arguments.items()},
                "required": list(arguments),
            }
            key = "input_schema" if "input_schema" in function else "parameters"
            # A short prompt is quick.
            function |= {key: schema, "description": "", "strict": False}
            body.setdefault("tools", []).append(tool)
    if "tools" not in body:
        return False
    is_anthropic = "input_schema" in body["tools"][0]
    body["tool_choice"] = {"type": "any"} if is_anthropic else "required"
    if calls.has_several:
        body |= SEVERAL_CALLS
    return True


def _shorten_answer(body: dict[str, Any]) -> None:
    body.pop("tool_choice", None)
    # The server ignores a grammar in requests of Anthropic's protocol. A small model may write no
    # full stop in its whole window, but hardly a sentence without one of these.
    if "max_tokens" in body and "stream_options" not in body:
        body["stop_sequences"] = [".", ",", "\n", " and ", " of ", " the ", " to "]
    else:
        body["grammar"] = SHORT_TEXT
