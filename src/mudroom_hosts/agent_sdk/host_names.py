"""Names and arguments of tools in lines for the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mudroom.views import get_claude_name, to_claude_arguments


def to_host_arguments(tool: str, arguments: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """Return the arguments of a call as the host knows them, without those that are not set.

    Arguments:
        cwd: folder of the session.
    """
    result = to_claude_arguments(tool, arguments, cwd)
    if result.get("run_in_background") is False:
        del result["run_in_background"]
    return {key: value for key, value in result.items() if value is not None}


def to_host_line(line: dict[str, Any], cwd: str) -> dict[str, Any]:
    """Return a line of output with the names and arguments of the host."""
    for block in _list_blocks(line):
        if block.get("type") == "tool_use":
            block["input"] = to_host_arguments(block["name"], block["input"], cwd)
            block["name"] = get_claude_name(block["name"])
    for denial in line.get("permission_denials", ()):
        denial["tool_input"] = to_host_arguments(denial["tool_name"], denial["tool_input"], cwd)
        denial["tool_name"] = get_claude_name(denial["tool_name"])
    if name := line.get("last_tool_name"):
        line["last_tool_name"] = get_claude_name(name)
    return line


def _list_blocks(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = line.get("message")
    if line.get("type") != "assistant" or not isinstance(message, dict):
        return []
    return cast("list[dict[str, Any]]", cast("dict[str, Any]", message)["content"])
