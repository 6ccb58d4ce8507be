"""`/v1/responses`: each conversation is a session, each answer a prompt's report."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from itertools import count
from typing import Any

import msgspec
from aiohttp import web

from mudroom import Report

from ..request_bodies import DEFAULT_AGENT, UserMessage
from ..request_errors import RequestError, make_not_found, make_wrong_request
from ..route import Call
from ..session_routes import read_idempotency_key, respond
from ..state.inputs import PROMPT, Input
from ..state.sessions import SessionRecord
from .answer_routes import AnswerRoutes, PromptFollower, check_report, convert_result, read_report
from .requests import ResponseRequest, Wanted, parse_response


class ResponseRoutes(AnswerRoutes):
    """Answers of conversations."""

    async def create(self, call: Call) -> web.StreamResponse:
        request, wanted = parse_response(call.body)
        record, item = await self._add_prompt(call, request, wanted)
        follower = self._follow(record, item, wanted)
        response = make_response(record, item, request.model, request.previous_response_id)
        if request.stream:
            return await self._send(call, wanted, follower, self._stream(follower, response))
        return await self._send(
            call, wanted, follower, lambda text: finish_response(response, text, follower.report)
        )

    async def read(self, call: Call) -> web.Response:
        name = call.request.match_info["response"]
        record, item = await self._find(call, name)
        model = record.choices.agent or DEFAULT_AGENT
        response = make_response(record, item, model, None)
        if item.state != "done":
            return respond(response)
        result = item.result
        try:
            if result.error:
                raise convert_result(result)
            report = await read_report(self._parts, record.id, result)
            check_report(report)
        except RequestError as error:
            return respond(fail_response(response, error))
        text = report.text
        if item.body.get("outputs"):
            text = msgspec.json.encode(report.outputs).decode()
        return respond(finish_response(response, text, report))

    async def _add_prompt(
        self, call: Call, request: ResponseRequest, wanted: Wanted
    ) -> tuple[SessionRecord, Input]:
        if not request.previous_response_id:
            return await self._add_session(call, wanted, "responses")
        record, previous = await self._find(call, request.previous_response_id)
        agent = record.choices.agent or DEFAULT_AGENT
        if request.model != agent:
            message = f"this conversation has the agent {agent!r}; use it, or begin a new one"
            raise make_wrong_request(message, "model")
        message = UserMessage(wanted.prompt, wanted.outputs)
        last = await self._parts.inputs.find_last_prompt(record.id)
        if last and last.number != previous.number and not read_idempotency_key(call):
            raise RequestError(
                409,
                "not_the_last",
                "a later answer continues this conversation: use its id, or begin a new one",
                param="previous_response_id",
            )
        return record, await self._sessions.add_input(call, record, message)

    async def _find(self, call: Call, name: str) -> tuple[SessionRecord, Input]:
        session, number = split_response_id(name)
        item = await self._parts.inputs.find(number) if session else None
        if item is None or item.session != session or item.type != PROMPT:
            raise make_not_found("response", name)
        try:
            return await self._sessions.find(call, session), item
        except RequestError:
            raise make_not_found("response", name) from None

    async def _stream(
        self, follower: PromptFollower, response: dict[str, Any]
    ) -> AsyncGenerator[bytes]:
        events = ResponseEvents(response)
        yield events.begin()
        text = ""
        try:
            async for piece in follower.stream_text():
                text += piece
                yield events.add(piece) if piece else b":\n\n"
        except RequestError as error:
            yield events.encode("response.failed", response=fail_response(response, error))
            return
        finished = finish_response(response, text, follower.report)
        yield events.end(text, finished)


_PREFIX = "resp_"


def make_response_id(record: SessionRecord, item: Input) -> str:
    return f"{_PREFIX}{record.id.replace('-', '')}_{item.number}"


def split_response_id(text: str) -> tuple[str, int]:
    """Split an id into session and prompt number; "" and 0 for a wrong id."""
    name, _, number = text.removeprefix(_PREFIX).partition("_")
    is_number = number.isascii() and number.isdecimal() and len(number) < 19
    if not text.startswith(_PREFIX) or len(name) != 32 or not is_number:
        return "", 0
    parts = (name[:8], name[8:12], name[12:16], name[16:20], name[20:])
    return "-".join(parts), int(number)


def make_response(
    record: SessionRecord, item: Input, model: str, previous: str | None
) -> dict[str, Any]:
    return {
        "id": make_response_id(record, item),
        "object": "response",
        "created_at": record.created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": previous,
        "temperature": None,
        "tool_choice": "none",
        "tools": [],
        "top_p": None,
    }


def finish_response(response: Mapping[str, Any], text: str, report: Report[Any]) -> dict[str, Any]:
    is_whole = report.ok
    usage = report.usage
    return {
        **response,
        "status": "completed" if is_whole else "incomplete",
        "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
        "output": [make_message(response, text, is_whole=is_whole)],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        },
    }


def fail_response(response: Mapping[str, Any], error: RequestError) -> dict[str, Any]:
    status = "cancelled" if error.code == "cancelled" else "failed"
    return {
        **response,
        "status": status,
        "error": {"code": "server_error", "message": error.message},
    }


def make_message(response: Mapping[str, Any], text: str, *, is_whole: bool) -> dict[str, Any]:
    return {
        "id": get_message_id(response),
        "type": "message",
        "role": "assistant",
        "status": "completed" if is_whole else "incomplete",
        "content": [make_part(text)],
    }


def make_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def get_message_id(response: Mapping[str, Any]) -> str:
    return f"msg_{response['id'].removeprefix(_PREFIX)}"


class ResponseEvents:
    """The numbered events of one streamed answer."""

    def __init__(self, response: Mapping[str, Any]) -> None:
        self._numbers = count()
        self._response = response
        self._place = {
            "item_id": get_message_id(response),
            "output_index": 0,
            "content_index": 0,
        }

    def encode(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": next(self._numbers), **fields}
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(event))

    def begin(self) -> bytes:
        response = self._response
        item = make_message(response, "", is_whole=True)
        item |= {"status": "in_progress", "content": []}
        return b"".join(
            [
                self.encode("response.created", response=response),
                self.encode("response.in_progress", response=response),
                self.encode("response.output_item.added", output_index=0, item=item),
                self.encode("response.content_part.added", **self._place, part=make_part("")),
            ]
        )

    def add(self, text: str) -> bytes:
        return self.encode("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def end(self, text: str, finished: Mapping[str, Any]) -> bytes:
        place = self._place
        item = finished["output"][0]
        return b"".join(
            [
                self.encode("response.output_text.done", **place, text=text, logprobs=[]),
                self.encode("response.content_part.done", **place, part=make_part(text)),
                self.encode("response.output_item.done", output_index=0, item=item),
                self.encode(f"response.{finished['status']}", response=finished),
            ]
        )
