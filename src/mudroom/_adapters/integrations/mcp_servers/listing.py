"""A server's tools as it lists them, as values that can be stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from ...._core.ports import ToolContext
from ...._core.schemas import make_sendable
from ...._core.tool_names import make_server_tool_name
from ...._core.tools import Effect, Tool, ToolResult
from ...._projections.engine_text import quote
from .spec import ServerSpec


class ListedTool(Struct, frozen=True):
    """A tool of a server, whose claims about it count only if the server is trusted."""

    name: str
    description: str
    parameters: dict[str, Any]  # JSON Schema, as sent by the server
    is_read_only: bool = False
    is_idempotent: bool = False


class ListedPrompt(Struct, frozen=True):
    """A prompt of a server. `required` lists the arguments that must be given."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class ListedResource(Struct, frozen=True):
    uri: str
    title: str = ""
    is_template: bool = False


class Listing(Struct, frozen=True):
    tools: tuple[ListedTool, ...] = ()
    instructions: str = ""
    server: str = ""  # name and version of the program
    protocol: str = ""  # revision in use
    fault: str = ""  # why tools are left out
    prompts: tuple[ListedPrompt, ...] = ()
    resources: tuple[ListedResource, ...] = ()
    fresh_seconds: float | None = None  # for which `tools` is valid; None if not stated


class Content(Struct, frozen=True):
    """Part of a call's result: a text for the model, or bytes."""

    text: str = ""
    media_type: str = ""
    data: bytes = b""


class ServerResult(Struct, frozen=True):
    content: tuple[Content, ...] = ()
    structured: Any = None
    is_error: bool = False


_MAX_QUOTED_SCHEMA = 4_000  # characters of the schema to quote in an error about arguments

RunCall = Callable[[ToolContext, ListedTool, dict[str, Any]], Awaitable[ToolResult]]
"""Calls a tool of a server."""


def select_listed(spec: ServerSpec, tools: Iterable[ListedTool]) -> list[ListedTool]:
    return [
        tool
        for tool in tools
        if (not spec.include or tool.name in spec.include) and tool.name not in spec.exclude
    ]


def make_tool(
    spec: ServerSpec, listed: ListedTool, run_call: RunCall, *, is_changed: bool = False
) -> Tool:
    """Make a tool, which may have any effect unless the user trusts the server's annotations."""
    name = make_server_tool_name(spec.name, listed.name)

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        return await run_call(context, listed, arguments)

    def parse(arguments: dict[str, Any]) -> dict[str, Any]:
        check_arguments(listed.parameters, arguments)
        return arguments

    is_pure = spec.is_trusted and listed.is_read_only
    return Tool(
        name=name,
        description=quote(listed.description),
        parameters=make_sendable(listed.parameters),
        parse=parse,
        run=run,
        effect=Effect.PURE if is_pure else Effect.EFFECTFUL,
        is_parallel=spec.is_parallel,
        confirmation_reason=(
            f"server {spec.name} has changed the description of this tool since it was used last"
            if is_changed
            else ""
        ),
    )


def check_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise ValueError, quoting the schema, for wrong arguments. A wrong schema checks nothing."""
    encoded = msgspec.json.encode(schema)
    validate = _make_validator(encoded)
    if validate is None:
        return
    for error in validate(arguments):
        place = ".".join(map(str, error.instance_path)) or "arguments"
        text = encoded.decode()
        if len(text) > _MAX_QUOTED_SCHEMA:
            text = text[:_MAX_QUOTED_SCHEMA] + " …"
        raise ValueError(f"{place}: {error.message}. The schema is {text}")


@lru_cache(maxsize=512)
def _make_validator(schema: bytes) -> Callable[[Mapping[str, Any]], Iterable[Any]] | None:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), offline=True).iter_errors
    except (ValueError, jsonschema_rs.ValidationError):
        return None
