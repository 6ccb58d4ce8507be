"""Tool calls that Groq refused because they do not fit their tool.

The run handles them like all other calls, so the model reads what is wrong with them.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from ..._core.messages import ToolCallBlock
from .._tool_names import ToolNames
from .._wire import REFUSED_CALLS
from ._chat_stream import build_tool_call

_NAME = re.compile(r'"name"\s*:\s*"([^"]+)"|<function=([\w.-]+)')


class _Error(msgspec.Struct):
    code: str | int | None = None
    failed_generation: str = ""
    error: _Error | None = None


def read_refused_calls(body: bytes, names: ToolNames) -> tuple[ToolCallBlock, ...]:
    """Return the calls in an error body, or in an error object of a stream; none in any other."""
    if REFUSED_CALLS.encode() not in body:
        return ()
    try:
        error = msgspec.json.decode(body, type=_Error)
    except msgspec.DecodeError:
        return ()
    error = error.error or error
    if error.code != REFUSED_CALLS or not error.failed_generation.strip():
        return ()
    used_ids: set[str] = set()
    return tuple(
        build_tool_call("", name, arguments, names, used_ids)
        for name, arguments in _parse_generation(error.failed_generation)
    )


def _parse_generation(text: str) -> list[tuple[str, str | dict[str, Any]]]:
    """Return names and arguments of the calls; other text is the arguments of one call."""
    try:
        value: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        value = None
    calls: list[tuple[str, str | dict[str, Any]]] = []
    for item in cast("list[Any]", value if isinstance(value, list) else [value]):
        fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        name = fields.get("name")
        arguments = fields.get("arguments", fields.get("parameters"))
        if isinstance(name, str) and isinstance(arguments, str | dict):
            calls.append((name, cast("str | dict[str, Any]", arguments)))
    if calls:
        return calls
    match = _NAME.search(text)
    return [((match[1] or match[2]) if match else "unknown", text)]
