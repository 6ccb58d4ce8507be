"""Hooks that are not programs: addresses, sent the input by POST, and tools of MCP servers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ...._core.json_values import map_texts
from ...._core.tools import ToolResult
from ...._platform.time_limits import time_limit
from ....errors import MudroomError, shorten_text
from .outcome import HookOutcome, read_ending
from .spec import HookSpec

if TYPE_CHECKING:
    from ...._platform.http1.pool import ConnectionPool, Response


_MAX_ANSWER = 8 << 20  # bytes to read of an answer
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


async def post_input(
    spec: HookSpec, data: bytes, seconds: float, environ: Mapping[str, str]
) -> tuple[HookOutcome, str]:
    """Send a hook its input; return the outcome and a short text about the answer."""
    from ...._platform.http1.parser import HttpError
    from ...._platform.http1.pool import ConnectionPool

    pool = ConnectionPool(read_timeout=seconds)
    try:
        async with time_limit(seconds):
            status, body = await _post(pool, spec, data, environ)
    except TimeoutError:
        text = f"no answer within {seconds:g} s"
        return HookOutcome(failure=f"there was {text}"), text
    except HttpError as error:
        return HookOutcome(failure=f"the request failed: {error}"), "no answer"
    finally:
        await pool.close()
    if not 200 <= status < 300:
        return HookOutcome(failure=f"the answer has status {status}"), f"status {status}"
    return read_ending(spec.event, 0, body.decode("utf-8", "replace"), ""), f"status {status}"


async def _post(
    pool: ConnectionPool, spec: HookSpec, data: bytes, environ: Mapping[str, str]
) -> tuple[int, bytes]:
    headers = {name: fill_variables(spec, value, environ) for name, value in spec.headers.items()}
    headers = {"Content-Type": "application/json", "User-Agent": "mudroom", **headers}
    response: Response = await pool.post(spec.url, headers, lambda: data)
    body = bytearray()
    try:
        while (chunk := await response.read()) and len(body) < _MAX_ANSWER:
            body += chunk
    finally:
        response.close(is_answered=False)
    return response.status, bytes(body)


def fill_variables(spec: HookSpec, text: str, environ: Mapping[str, str]) -> str:
    """Fill in the variables a hook may use in a header; others become empty."""

    def fill(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return environ.get(name, "") if name in spec.allowed_variables else ""

    return _VARIABLE.sub(fill, text)


CallServerTool = Callable[[str, str, dict[str, Any]], Awaitable[ToolResult]]
"""Calls a tool of a server with arguments. Raises MudroomError."""

_PLACE = re.compile(r"\$\{([A-Za-z0-9_.]+)\}")
_SHOWN_CHARACTERS = 500


async def call_hook_tool(
    spec: HookSpec, fields: Mapping[str, Any], seconds: float, call: CallServerTool | None
) -> tuple[HookOutcome, str]:
    """Call a hook's tool and read its text like a program's output; also return how it ended."""
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


def fill_places(value: object, fields: Mapping[str, Any]) -> object:
    """Replace each `${path.to.field}` in a JSON value by that part of the input.

    A field that is not a text is written as JSON; a missing one becomes empty.
    """
    return map_texts(
        value, lambda text: _PLACE.sub(lambda match: _find_text(match[1], fields), text)
    )


def _find_text(path: str, fields: Mapping[str, Any]) -> str:
    value: Any = fields
    for name in path.split("."):
        is_object = isinstance(value, Mapping)
        value = cast("Mapping[str, Any]", value).get(name) if is_object else None
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
