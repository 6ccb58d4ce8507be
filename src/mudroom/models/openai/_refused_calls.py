"""Tool calls that Groq refused because they do not fit their tool.

The run handles them like all other calls, so the model reads what is wrong with them.
"""

from __future__ import annotations

import re
from typing import cast

import msgspec

from ..._core.messages import ToolCallBlock
from .._json import make_decoder, read_arguments
from .._tool_names import ToolNames
from .._wire import REFUSED_CALLS
from ._chat_stream import build_tool_call

_NAME = re.compile(r'"name"\s*:\s*"([^"]+)"|<function=([\w.-]+)')


class _Call(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


_decode_calls = make_decoder(cast("type[list[_Call] | _Call]", list[_Call] | _Call))


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


def _parse_generation(text: str) -> list[tuple[str, str]]:
    """Return names and arguments of the calls; other text is the arguments of one call."""
    try:
        value = _decode_calls(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        value = []
    calls: list[tuple[str, str]] = []
    for call in value if isinstance(value, list) else [value]:
        arguments = read_arguments(call.arguments) or read_arguments(call.parameters)
        if call.name is not None and arguments:
            calls.append((call.name, arguments))
    if calls:
        return calls
    match = _NAME.search(text)
    return [((match[1] or match[2]) if match else "unknown", text)]
