"""A pass-through before a model server that makes the answers of a small model short.

It changes only requests. The model still writes each token.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, web

SHORT_TEXT = 'root ::= "I see " [a-z ]{4,24} "."'
"""Grammar of a short answer, because a small model ends no answer by itself."""


@asynccontextmanager
async def open_pass_through(url: str) -> AsyncGenerator[str]:
    """Yield the URL of a pass-through to a server."""
    async with ClientSession() as client:

        async def forward(request: web.BaseRequest) -> web.StreamResponse:
            body = json.loads(await request.read() or b"{}")
            if body:
                _shorten_answer(body)
            async with client.request(
                request.method, url + request.path, json=body or None
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


def _shorten_answer(body: dict[str, Any]) -> None:
    body |= {"temperature": 0, "seed": 1}
    # The server ignores a grammar in requests of Anthropic's protocol.
    if "max_tokens" in body and "stream_options" not in body:
        body["stop_sequences"] = ["."]
    else:
        body["grammar"] = SHORT_TEXT
