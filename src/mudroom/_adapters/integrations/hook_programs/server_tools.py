"""Hooks of type mcp_tool, which call a tool of an MCP server with parts of their input."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from ...._core.tools import ToolResult
from ...._platform.time_limits import time_limit
from ....errors import MudroomError, shorten_text
from .outcome import HookOutcome, read_ending
from .spec import HookSpec

CallServerTool = Callable[[str, str, dict[str, Any]], Awaitable[ToolResult]]
"""Calls a tool of a server with arguments. Raises MudroomError."""

_PLACE = re.compile(r"\$\{([A-Za-z0-9_.]+)\}")
_SHOWN_CHARACTERS = 500


async def call_hook_tool(
    spec: HookSpec, fields: Mapping[str, Any], seconds: float, call: CallServerTool | None
) -> tuple[HookOutcome, str]:
    """Call the tool of a hook; return its outcome, and how it ended for the log.

    The text of the result is treated like the output of a program.

    Arguments:
        fields: the input of the hook.
        call: None if no session is open.
    """
    if call is None:
        return _fail("its MCP server is used in a session only")
    server, tool = str(spec.options.get("server", "")), str(spec.options.get("tool", ""))
    arguments = fill_places(spec.options.get("input") or {}, fields)
    if not isinstance(arguments, dict):
        return _fail("its input is not an object")
    try:
        async with time_limit(seconds):
            result = await call(server, tool, cast("dict[str, Any]", arguments))
    except TimeoutError:
        return _fail(f"it did not end within {seconds:g} s")
    except MudroomError as error:
        return _fail(str(error))
    if result.error:
        return _fail(f"the tool failed: {shorten_text(result.text, _SHOWN_CHARACTERS)}")
    return read_ending(spec.event, 0, result.text, ""), "answered"


def _fail(reason: str) -> tuple[HookOutcome, str]:
    return HookOutcome(failure=reason), reason


def fill_places(value: Any, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401  (JSON values)
    """Replace each `${path.to.field}` in a JSON value by that part of the input.

    A field that is not a text is written as JSON; a missing one becomes empty.
    """
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: fill_places(item, fields) for key, item in entries.items()}
    if isinstance(value, list):
        return [fill_places(item, fields) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    return _PLACE.sub(lambda match: _find_text(match[1], fields), value)


def _find_text(path: str, fields: Mapping[str, Any]) -> str:
    value: Any = fields
    for name in path.split("."):
        is_object = isinstance(value, Mapping)
        value = cast("Mapping[str, Any]", value).get(name) if is_object else None
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
