"""What real providers refuse: a check of a request's conversation, and a server script that refuses as they do (promise S7)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from .model_server import Fault, ServerAnswer, ServerRequest

Script = Callable[[ServerRequest], "ServerAnswer | Awaitable[ServerAnswer]"]


def strict_script(answer: Script) -> Script:
    """The script, behind a provider that answers 400 to a conversation it would not take."""

    def answered(asked: ServerRequest) -> ServerAnswer | Awaitable[ServerAnswer]:
        if faults := find_refusals(asked):
            message = json.dumps(
                {"error": {"type": "invalid_request_error", "message": "; ".join(faults)}}
            )
            return Fault(status=400, body=message.encode())
        return answer(asked)

    return answered


def find_refusals(asked: ServerRequest) -> list[str]:
    """Why a provider would refuse the request, empty if it would not.

    Each call has one result, right after the message that made it; ids are there and new; no block is empty; the text can be encoded.
    """
    try:
        json.dumps(json.loads(asked.body.decode()), ensure_ascii=False).encode()
    except (ValueError, UnicodeError) as error:
        return [f"the body is no JSON in UTF-8: {error}"]
    if b"\\u0000" in asked.body:
        return ["a null character"]
    turns = list(_TURNS[asked.dialect](asked.messages))
    return [*_paired(turns), *(f"{turn.role}: an empty block" for turn in turns if turn.empty)]


class _Turn:
    """One message: whose, the calls it makes, the results it gives, and whether a block of it is empty."""

    def __init__(self, role: str, calls: list[str], results: list[str], *, empty: bool) -> None:
        self.role, self.calls, self.results, self.empty = role, calls, results, empty


def _paired(turns: list[_Turn]) -> Iterator[str]:
    waiting: list[str] = []
    seen: set[str] = set()
    if not turns or turns[0].role != "user":
        yield "the first message is not the user's"
    for turn in turns:
        if turn.results != waiting:
            yield f"results of {turn.results} for calls {waiting}"
        fresh = [call for call in turn.calls if call and call not in seen]
        if len(set(fresh)) < len(turn.calls):
            yield f"call ids that are empty or not new: {turn.calls}"
        seen.update(turn.calls)
        waiting = turn.calls
    if waiting:
        yield f"no results for calls {waiting}"


def _anthropic(messages: list[dict[str, Any]]) -> Iterator[_Turn]:
    for message in messages:
        content = message["content"]
        blocks: list[dict[str, Any]] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        late = [block["type"] for block in blocks[: len(results)]] != ["tool_result"] * len(results)
        empty = (
            not blocks
            or late
            or any(block["type"] == "text" and not block["text"].strip() for block in blocks)
        )
        yield _Turn(message["role"], calls, results, empty=empty)


def _openai(messages: list[dict[str, Any]]) -> Iterator[_Turn]:
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(message["tool_call_id"])
            continue
        if results:
            yield _Turn("tool", [], results, empty=False)
            results = []
        if message["role"] != "system":
            calls = [call["id"] for call in message.get("tool_calls", ())]
            yield _Turn(
                message["role"],
                calls,
                [],
                empty=not (calls or str(message.get("content") or "").strip()),
            )
    if results:
        yield _Turn("tool", [], results, empty=False)


def _google(messages: list[dict[str, Any]]) -> Iterator[_Turn]:
    for place, message in enumerate(messages):
        parts = message["parts"]
        answered = [
            part["functionResponse"]["name"] for part in parts if "functionResponse" in part
        ]
        called = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        results = [
            f"{place - 1}.{n}.{name}" for n, name in enumerate(answered)
        ]  # it pairs by place and name, not by id
        calls = [f"{place}.{n}.{name}" for n, name in enumerate(called)]
        empty = not parts or any("text" in part and not part["text"] for part in parts)
        yield _Turn("user" if message["role"] == "user" else "model", calls, results, empty=empty)


_TURNS = {"anthropic": _anthropic, "openai": _openai, "google": _google}
