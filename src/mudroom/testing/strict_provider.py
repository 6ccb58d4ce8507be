"""Checks a request as real providers do (promise S7).

`strict_script` wraps a server script so that it answers invalid conversations with HTTP 400.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from itertools import groupby, pairwise
from typing import Any

from msgspec import Struct

from .model_server import Fault, Script, ServerAnswer, ServerRequest

Check = Callable[[ServerRequest], list[str]]


def strict_script(answer: Script, *checks: Check) -> Script:
    """Wrap a script so that invalid conversations get HTTP 400.

    Arguments:
        checks: return further reasons to refuse a request, specific to single providers.

    Example:
        ModelServer(strict_script(answer, find_mistral_refusals))
    """

    def check_and_answer(request: ServerRequest) -> ServerAnswer | Awaitable[ServerAnswer]:
        errors = find_refusals(request)
        if errors := errors or [reason for check in checks for reason in check(request)]:
            error = {"type": "invalid_request_error", "message": "; ".join(errors)}
            return Fault(status=400, body=json.dumps({"error": error}).encode())
        return answer(request)

    return check_and_answer


def find_refusals(request: ServerRequest) -> list[str]:
    """Find the reasons to refuse a request; empty if it is valid.

    Each call has one result, directly after the message with the call. Call ids are not empty and
    not reused. No block is empty. The text is valid UTF-8.
    """
    try:
        json.dumps(json.loads(request.body.decode()), ensure_ascii=False).encode()
    except (ValueError, UnicodeError) as error:
        return [f"the body is not JSON in UTF-8: {error}"]
    if b"\\u0000" in request.body:
        return ["a null character"]
    turns = list(_READERS[request.dialect](request.messages))
    empty = [f"{turn.role}: an empty block" for turn in turns if turn.has_empty_block]
    return [*_pairing_errors(turns), *empty]


def find_mistral_refusals(request: ServerRequest) -> list[str]:
    """Find what only Mistral refuses: a user message after a tool message, and long call ids."""
    roles = [message["role"] for message in request.messages]
    if ("tool", "user") in pairwise(roles):
        return ["Unexpected role 'user' after role 'tool'"]
    ids = [call["id"] for message in request.messages for call in message.get("tool_calls", ())]
    wrong = [each for each in ids if not (len(each) == 9 and each.isalnum())]
    return [
        f"Tool call id was {each} but must be a-z, A-Z, 0-9, with a length of 9." for each in wrong
    ]


def find_deepseek_refusals(request: ServerRequest) -> list[str]:
    """Find what only DeepSeek and Kimi refuse: calls without the reasoning before them."""
    has_all = all(
        "reasoning_content" in message for message in request.messages if "tool_calls" in message
    )
    text = "The `reasoning_content` in the thinking mode must be passed back to the API."
    return [] if has_all else [text]


class _Turn(Struct, frozen=True):
    """One message: its role, the ids of its calls and results."""

    role: str
    calls: list[str]
    results: list[str]
    has_empty_block: bool


def _pairing_errors(turns: list[_Turn]) -> Iterator[str]:
    open_calls: list[str] = []
    used: set[str] = set()
    if not turns or turns[0].role != "user":
        yield "the first message is not from the user"
    for turn in turns:
        if turn.results != open_calls:
            yield f"results of {turn.results} for calls {open_calls}"
        fresh = {call for call in turn.calls if call and call not in used}
        if len(fresh) < len(turn.calls):
            yield f"call ids that are empty or not new: {turn.calls}"
        used.update(turn.calls)
        open_calls = turn.calls
    if open_calls:
        yield f"no results for calls {open_calls}"


def _read_anthropic(messages: list[dict[str, Any]]) -> Iterator[_Turn]:
    for message in messages:
        content = message["content"]
        blocks: list[dict[str, Any]] = content
        if isinstance(content, str):
            blocks = [{"type": "text", "text": content}]
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        results_come_first = all(b["type"] == "tool_result" for b in blocks[: len(results)])
        has_blank = any(block["type"] == "text" and not block["text"].strip() for block in blocks)
        invalid = not blocks or not results_come_first or has_blank
        yield _Turn(message["role"], calls, results, invalid)


def _read_openai(messages: list[dict[str, Any]]) -> Iterator[_Turn]:
    results: list[str] = []
    for message in messages:
        role = message["role"]
        if role == "tool":
            results.append(message["tool_call_id"])
            continue
        if results:
            yield _Turn("tool", [], results, False)
            results = []
        if role != "system":
            calls = [call["id"] for call in message.get("tool_calls", ())]
            is_blank = not str(message.get("content") or "").strip()
            yield _Turn(role, calls, [], is_blank and not calls)
    if results:
        yield _Turn("tool", [], results, False)


def _read_responses(items: list[dict[str, Any]]) -> Iterator[_Turn]:
    # Consecutive items of one side are one turn. A developer message is a system prompt.
    items = [item for item in items if item.get("role") != "developer"]
    for role, group in groupby(items, _get_role):
        content = list(group)
        calls = [item["call_id"] for item in content if item["type"] == "function_call"]
        results = [item["call_id"] for item in content if item["type"] == "function_call_output"]
        messages = [item for item in content if item["type"] == "message"]
        has_blank = any(not message["content"] for message in messages)
        has_thought_only = role == "assistant" and content[-1]["type"] == "reasoning"
        yield _Turn(role, calls, results, has_blank or has_thought_only)


def _get_role(item: dict[str, Any]) -> str:
    if item["type"] == "message":
        return item["role"]
    return "user" if item["type"] == "function_call_output" else "assistant"


def _read_google(messages: list[dict[str, Any]]) -> Iterator[_Turn]:
    # Google has no call ids: it pairs calls and results by position and name.
    for position, message in enumerate(messages):
        parts = message["parts"]
        called = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        answered = [
            part["functionResponse"]["name"] for part in parts if "functionResponse" in part
        ]
        calls = [f"{position}.{n}.{name}" for n, name in enumerate(called)]
        results = [f"{position - 1}.{n}.{name}" for n, name in enumerate(answered)]
        has_empty = not parts or any("text" in part and not part["text"] for part in parts)
        role = "user" if message["role"] == "user" else "model"
        yield _Turn(role, calls, results, has_empty)


_READERS = {
    "anthropic": _read_anthropic,
    "openai": _read_openai,
    "openai-responses": _read_responses,
    "google": _read_google,
    "ollama": _read_openai,
}
