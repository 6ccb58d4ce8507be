"""Names and arguments of tools as the host knows them, in both directions.

Arguments of a host need no table: each tool has the other names as aliases.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from ..._core.tool_names import normalize_tool_name

_NAMES = {
    "bash": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "glob": "Glob",
    "grep": "Grep",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "todo": "TodoWrite",
    "task": "Agent",
    "skill": "Skill",
    "wait": "TaskOutput",
    "send_message": "SendMessage",
    "task_stop": "TaskStop",
    "task_create": "TaskCreate",
    "task_update": "TaskUpdate",
    "task_list": "TaskList",
    "task_get": "TaskGet",
}
_ARGUMENTS = {
    "bash": {"background": "run_in_background"},
    "task": {"agent": "subagent_type", "background": "run_in_background"},
    "skill": {"name": "skill", "arguments": "args"},
}
_PATHS = {
    "read": "file_path",
    "write": "file_path",
    "edit": "file_path",
    "glob": "path",
    "grep": "path",
}


def to_host_name(tool: str) -> str:
    """Return the name by which the host knows a tool; a tool of a server keeps its name."""
    return _NAMES.get(normalize_tool_name(tool), tool)


def to_host_arguments(tool: str, arguments: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """Return the arguments of a call as the host knows them, with absolute paths.

    Arguments:
        cwd: folder of the session.
    """
    name = normalize_tool_name(tool)
    renamed = _ARGUMENTS.get(name, {})
    result = {renamed.get(key, key): value for key, value in arguments.items()}
    if result.get("run_in_background") is False:
        del result["run_in_background"]
    path = result.get(_PATHS.get(name, ""))
    if isinstance(path, str) and path:
        result[_PATHS[name]] = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    return {key: value for key, value in result.items() if value is not None}


def to_host_line(line: dict[str, Any], cwd: str) -> dict[str, Any]:
    """Return a line of output with the names and arguments of the host."""
    for block in _list_blocks(line):
        if block.get("type") == "tool_use":
            block["input"] = to_host_arguments(block["name"], block["input"], cwd)
            block["name"] = to_host_name(block["name"])
    for denial in line.get("permission_denials", ()):
        denial["tool_input"] = to_host_arguments(denial["tool_name"], denial["tool_input"], cwd)
        denial["tool_name"] = to_host_name(denial["tool_name"])
    if name := line.get("last_tool_name"):
        line["last_tool_name"] = to_host_name(name)
    return line


def _list_blocks(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = line.get("message")
    if line.get("type") != "assistant" or not isinstance(message, dict):
        return []
    return cast("list[dict[str, Any]]", cast("dict[str, Any]", message)["content"])
