"""Tools in Claude Code's terms, which hooks and programs with its agent SDKs expect."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

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
# Where the names of arguments differ: ours, then Claude Code's.
_ARGUMENTS = {
    "bash": {"background": "run_in_background"},
    "task": {"agent": "subagent_type", "background": "run_in_background"},
    "skill": {"name": "skill", "arguments": "args"},
}
# Claude Code gives absolute paths in these arguments.
_PATHS = {
    "read": "file_path",
    "write": "file_path",
    "edit": "file_path",
    "glob": "path",
    "grep": "path",
}


def get_claude_name(tool: str) -> str:
    """Look up Claude Code's name for a tool; an unknown name stays as it is."""
    return _NAMES.get(normalize_tool_name(tool), tool)


def get_path_argument(tool: str) -> str:
    """Find the argument that is a path, "" for none."""
    return _PATHS.get(normalize_tool_name(tool), "")


def to_claude_arguments(tool: str, arguments: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Give a call's arguments Claude Code's names and absolute paths.

    Arguments:
        tool: name of the tool.
        folder: relative paths begin there.
    """
    names = _ARGUMENTS.get(normalize_tool_name(tool), {})
    result = {names.get(key, key): value for key, value in arguments.items()}
    key = get_path_argument(tool)
    path = result.get(key)
    if isinstance(path, str) and path:
        result[key] = os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
    return result


def to_own_arguments(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give Claude Code's arguments our names; paths stay as they are."""
    table = _ARGUMENTS.get(normalize_tool_name(tool), {})
    names = {theirs: ours for ours, theirs in table.items()}
    return {names.get(key, key): value for key, value in arguments.items()}
