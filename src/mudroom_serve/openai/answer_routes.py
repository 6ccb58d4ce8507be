"""AnswerRoutes: prompts of OpenAI's API, each followed to its answer, whole or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from ..request_errors import ErrorBody, ErrorFields, RequestError
from ..route import Call
from ..served_session import ServerParts
from ..session_registry import SessionRegistry
from ..session_routes import SessionRoutes, read_idempotency_key, respond
from ..state.inputs import Input
from ..state.sessions import SessionRecord
from ..timed_writer import TimedWriter
from .prompt_follower import PromptFollower
from .requests import Wanted

UNUSED_HEADER = "Mudroom-Not-Used"


class AnswerRoutes:
    """Paths at which a client sends a prompt and waits for its answer.

    Arguments:
        closing: set when all streams must end.
    """

    def __init__(
        self,
        sessions: SessionRoutes,
        parts: ServerParts,
        registry: SessionRegistry,
        closing: asyncio.Event,
    ) -> None:
        self._sessions = sessions
        self._parts = parts
        self._registry = registry
        self._closing = closing

    def _follow(self, record: SessionRecord, item: Input, wanted: Wanted) -> PromptFollower:
        """Return the follower of a prompt."""
        return PromptFollower(
            self._parts,
            self._registry,
            record,
            item,
            has_outputs=wanted.outputs is not None,
            closing=self._closing,
        )

    async def _send(
        self,
        call: Call,
        wanted: Wanted,
        follower: PromptFollower,
        answer: AsyncGenerator[bytes] | Callable[[str], dict[str, Any]],
    ) -> web.StreamResponse:
        """Send the answer to a prompt. If the client leaves, and cannot ask again, it is stopped.

        Arguments:
            answer: the lines of a stream, or a function that returns the whole answer for its text.
        """
        headers = {UNUSED_HEADER: ", ".join(wanted.unused)} if wanted.unused else {}
        try:
            if not callable(answer):
                return await _send_stream(call, answer, headers, self._parts.options.write_seconds)
            text = await follower.read_text()
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            if not read_idempotency_key(call) and not self._closing.is_set():
                follower.cancel()
            raise
        response = respond(answer(text))
        response.headers.update(headers)
        return response


async def _send_stream(
    call: Call, lines: AsyncGenerator[bytes], headers: Mapping[str, str], seconds: float
) -> web.StreamResponse:
    """Send a stream; an error in it becomes its last message.

    Raises TimeoutError, ConnectionError if the client does not read.
    """
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
    await response.prepare(call.request)
    writer = TimedWriter(call.request, response, seconds)
    try:
        async for line in lines:
            await writer.write(line)
    except RequestError as error:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        fields = ErrorFields(message=error.message, type=kind, code=error.code)
        await writer.write(encode_line(ErrorBody(fields)))
    finally:
        await lines.aclose()
    return response


def encode_line(value: object) -> bytes:
    """Return a message of a stream without a name."""
    return b"data: %b\n\n" % msgspec.json.encode(value)
