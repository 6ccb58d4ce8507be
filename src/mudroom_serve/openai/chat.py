"""`/v1/chat/completions`: each request is a session with one prompt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from aiohttp import web

from mudroom import Report

from ..route import Call
from .answer_routes import AnswerRoutes, PromptFollower, encode_line
from .requests import ChatRequest, parse_chat


class ChatRoutes(AnswerRoutes):
    async def complete(self, call: Call) -> web.StreamResponse:
        request, wanted = parse_chat(call.body)
        record, item = await self._add_session(call, wanted, "chat")
        follower = self._follow(record, item, wanted)
        base = {
            "id": f"chatcmpl-{record.id}",
            "created": int(record.created),
            "model": request.model,
        }
        if request.stream:
            return await self._send(call, wanted, follower, self._stream(follower, request, base))
        return await self._send(
            call, wanted, follower, lambda text: make_completion(base, text, follower)
        )

    async def _stream(
        self, follower: PromptFollower, request: ChatRequest, base: Mapping[str, Any]
    ) -> AsyncGenerator[bytes]:
        yield encode_chunk(base, {"role": "assistant", "content": ""})
        async for piece in follower.stream_text():
            yield encode_chunk(base, {"content": piece}) if piece else b":\n\n"
        yield encode_chunk(base, {}, get_finish_reason(follower))
        if request.stream_options and request.stream_options.include_usage:
            chunk: dict[str, Any] = {**base, "object": "chat.completion.chunk", "choices": []}
            yield encode_line({**chunk, "usage": make_usage(follower.report)})
        yield b"data: [DONE]\n\n"


def make_completion(base: Mapping[str, Any], text: str, follower: PromptFollower) -> dict[str, Any]:
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
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
    return encode_line({**base, "object": "chat.completion.chunk", "choices": [choice]})


def get_finish_reason(follower: PromptFollower) -> str:
    return "stop" if follower.report.ok else "length"


def make_usage(report: Report[Any]) -> dict[str, Any]:
    """Count the tokens of a run and all runs below it."""
    usage = report.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
