"""Tools in the terms of Claude Code, which hooks and programs with its agent SDKs expect."""

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
_ARGUMENTS = {
    "bash": {"background": "run_in_background"},
    "task": {"agent": "subagent_type", "background": "run_in_background"},
    "skill": {"name": "skill", "arguments": "args"},
}
"""Names of arguments that differ: ours, and those of Claude Code."""
_PATHS = {
    "read": "file_path",
    "write": "file_path",
    "edit": "file_path",
    "glob": "path",
    "grep": "path",
}
"""Arguments that are paths. Claude Code gives absolute ones."""


def get_claude_name(tool: str) -> str:
    """Return Claude Code's name of a tool. Return an unknown one unchanged."""
    return _NAMES.get(normalize_tool_name(tool), tool)


def get_path_argument(tool: str) -> str:
    """Return the name of the argument that is a path, "" for none."""
    return _PATHS.get(normalize_tool_name(tool), "")


def to_claude_arguments(tool: str, arguments: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the arguments of a call with Claude Code's names and absolute paths.

    Arguments:
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
    """Return arguments of Claude Code with our names; paths stay as they are."""
    table = _ARGUMENTS.get(normalize_tool_name(tool), {})
    names = {theirs: ours for ours, theirs in table.items()}
    return {names.get(key, key): value for key, value in arguments.items()}
