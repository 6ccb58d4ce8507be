"""`/v1/chat/completions`: each request is a session with one prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from aiohttp import web

from mudroom import Report

from ..request_errors import ErrorBody, ErrorFields, RequestError
from ..route import Call
from ..served_session import ServerParts
from ..session_registry import SessionRegistry
from ..session_routes import SessionRoutes, read_idempotency_key, respond
from ..timed_writer import TimedWriter
from .prompt_follower import PromptFollower
from .requests import ChatRequest, parse_chat

UNUSED_HEADER = "Mudroom-Not-Used"


class ChatRoutes:
    """Chat completions.

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

    async def complete(self, call: Call) -> web.StreamResponse:
        """Run a prompt and return its answer, or stream it."""
        request, wanted = parse_chat(call.body)
        record, item, _ = await self._sessions.add_session(call, wanted.make_session(), kind="chat")
        assert item
        follower = PromptFollower(
            self._parts,
            self._registry,
            record,
            item,
            has_outputs=wanted.outputs is not None,
            closing=self._closing,
        )
        base = {
            "id": f"chatcmpl-{record.id}",
            "created": int(record.created),
            "model": request.model,
        }
        headers = {UNUSED_HEADER: ", ".join(wanted.unused)} if wanted.unused else {}
        try:
            if request.stream:
                lines = self._stream(follower, request, base)
                return await send_stream(call, lines, headers, self._parts.options.write_seconds)
            text = await follower.read_text()
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            if not read_idempotency_key(call) and not self._closing.is_set():
                follower.cancel()
            raise
        response = respond(make_completion(base, text, follower))
        response.headers.update(headers)
        return response

    async def _stream(
        self, follower: PromptFollower, request: ChatRequest, base: Mapping[str, Any]
    ) -> AsyncGenerator[bytes]:
        """Yield the chunks of an answer."""
        yield encode_chunk(base, {"role": "assistant", "content": ""})
        async for piece in follower.stream_text():
            yield encode_chunk(base, {"content": piece}) if piece else b":\n\n"
        yield encode_chunk(base, {}, get_finish_reason(follower))
        if request.stream_options and request.stream_options.include_usage:
            chunk: dict[str, Any] = {**base, "object": "chat.completion.chunk", "choices": []}
            yield encode_line({**chunk, "usage": make_usage(follower.report)})
        yield b"data: [DONE]\n\n"


async def send_stream(
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


def make_completion(base: Mapping[str, Any], text: str, follower: PromptFollower) -> dict[str, Any]:
    """Return a whole answer."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": get_finish_reason(follower),
        "logprobs": None,
    }
    usage = make_usage(follower.report)
    return {**base, "object": "chat.completion", "choices": [choice], "usage": usage}


def encode_chunk(
    base: Mapping[str, Any], delta: Mapping[str, Any], finish_reason: str | None = None
) -> bytes:
    """Return a chunk of an answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
    return encode_line({**base, "object": "chat.completion.chunk", "choices": [choice]})


def encode_line(value: object) -> bytes:
    """Return a message of a stream without a name."""
    return b"data: %b\n\n" % msgspec.json.encode(value)


def get_finish_reason(follower: PromptFollower) -> str:
    """Return why the answer ends: "length" if a limit cut it off."""
    return "stop" if follower.is_whole else "length"


def make_usage(report: Report[Any]) -> dict[str, Any]:
    """Return the tokens of a run and of all runs below it."""
    usage = report.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
