"""Tools of the caller in worker processes: the session's process executes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...._core.tools import Effect, Tool, ToolCategory, ToolView, find_no_key
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


def describe_tools(tools: Sequence[Tool]) -> list[SessionToolSpec]:
    """Return the tools that the session's process executes, without their functions."""
    own = [tool for tool in tools if not tool.reference]
    return msgspec.convert(own, list[SessionToolSpec], from_attributes=True)


def make_session_tool(spec: SessionToolSpec, link: SessionLink) -> Tool:
    """Return a tool whose calls the session's process executes."""
    return Tool(
        **msgspec.structs.asdict(spec),
        parse=dict,
        run=make_remote_run(spec.name, link),
        uses_context=False,
    )
