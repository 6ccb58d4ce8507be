"""Tools of the caller in worker processes: the session's process executes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...._core.tools import Effect, Tool, ToolCategory, ToolView, find_no_key
from .messages import WorkerConfig
from .remote_services import SessionLink
from .server_calls import make_remote_run


class SessionToolSpec(Struct, frozen=True, kw_only=True):
    """A tool without its functions; see Tool for the fields."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect
    is_parallel: bool
    argument_aliases: dict[str, str]
    ignored_arguments: frozenset[str]
    needs_confirmation: bool
    confirmation_reason: str
    category: ToolCategory | None
    path_argument: str
    is_search: bool
    rule_argument: str
    title_argument: str
    view: ToolView
    preview_lines: int
    needs_children: bool
    offered_to: Literal["all", "root", "request"]
    keeps_results: bool


def is_sendable(tool: Tool) -> bool:
    """Return whether the session's process can execute a tool for runs in other processes.

    It cannot if the tool uses the files or the memory of its run, or decides something by a
    function before the call.
    """
    has_functions = tool.adapt or tool.forward or tool.make_reminder or tool.propose
    return not (tool.uses_context or has_functions or tool.get_key is not find_no_key)


def add_tools(config: WorkerConfig, tools: Sequence[Tool]) -> WorkerConfig:
    """Return a config with the tools of the caller."""
    if not tools:
        return config
    own = [tool for tool in tools if not tool.reference]
    specs = msgspec.convert(own, list[SessionToolSpec], from_attributes=True)
    return replace(
        config,
        import_path=tuple(map(os.path.abspath, sys.path)),
        tool_references=tuple(tool.reference for tool in tools if tool.reference),
        session_tools=msgspec.msgpack.encode(specs),
    )


def make_session_tools(config: WorkerConfig, link: SessionLink) -> list[Tool]:
    """Return the tools of a config whose calls the session's process executes."""
    if not config.session_tools:
        return []
    specs = msgspec.msgpack.decode(config.session_tools, type=list[SessionToolSpec])
    return [_make_tool(spec, link) for spec in specs]


def _make_tool(spec: SessionToolSpec, link: SessionLink) -> Tool:
    return Tool(
        **msgspec.structs.asdict(spec),
        parse=dict,
        run=make_remote_run(spec.name, link),
        uses_context=False,
    )
