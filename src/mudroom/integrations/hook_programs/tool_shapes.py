"""Tools as hooks know them: names, inputs and responses of Claude Code."""

from __future__ import annotations

import os
import re
from typing import Any, cast

import msgspec

from ..._core.messages import ToolCallBlock
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import ToolResult

_NAMES = {
    "bash": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "glob": "Glob",
    "grep": "Grep",
    "todo": "TodoWrite",
    "skill": "Skill",
    "task": "Agent",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
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
"""Names of arguments that differ: ours, and those that hooks know."""
_PATHS = {
    "read": "file_path",
    "write": "file_path",
    "edit": "file_path",
    "glob": "path",
    "grep": "path",
}
"""Arguments that are paths. Hooks read and write absolute ones."""


_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)


class ToolInput(msgspec.Struct, frozen=True):
    """A tool call in the terms of hooks."""

    name: str
    arguments: dict[str, Any]


def get_hook_name(tool: str) -> str:
    """Return the name of a tool as hooks know it. Return an unknown one unchanged."""
    return _NAMES.get(normalize_tool_name(tool), tool)


def to_hook_input(call: ToolCallBlock, folder: str) -> ToolInput:
    """Return a call in the terms of hooks. `folder`: relative paths begin there."""
    tool = normalize_tool_name(call.name)
    names = _ARGUMENTS.get(tool, {})
    arguments = {names.get(key, key): value for key, value in call.arguments.items()}
    path = arguments.get(_PATHS.get(tool, ""))
    if isinstance(path, str) and path:
        arguments[_PATHS[tool]] = os.path.normpath(os.path.join(folder, path))
    return ToolInput(get_hook_name(call.name), arguments)


def from_hook_input(
    call: ToolCallBlock, sent: ToolInput, changed: dict[str, Any]
) -> dict[str, Any]:
    """Return arguments that a hook gave, in our terms; an unchanged path stays as it was.

    Arguments:
        sent: the call as the hook read it.
    """
    tool = normalize_tool_name(call.name)
    names = {theirs: ours for ours, theirs in _ARGUMENTS.get(tool, {}).items()}
    arguments = {names.get(key, key): value for key, value in changed.items()}
    path = _PATHS.get(tool, "")
    if path in call.arguments and arguments.get(path) == sent.arguments.get(path):
        arguments[path] = call.arguments[path]
    return arguments


def to_hook_response(sent: ToolInput, result: ToolResult) -> dict[str, Any]:
    """Return the result of a call in the terms of hooks."""
    arguments = sent.arguments
    text = result.text
    match sent.name:
        case "Bash":
            is_cut = bool(result.detail.get("timed_out"))
            return {"stdout": text, "stderr": "", "interrupted": is_cut, "isImage": False}
        case "Write":
            kind = "create" if text.startswith("created") else "update"
            path = arguments.get("file_path", "")
            return {"type": kind, "filePath": path, "content": arguments.get("content", "")}
        case "Edit":
            return {
                "filePath": arguments.get("file_path", ""),
                "oldString": arguments.get("old_string", ""),
                "newString": arguments.get("new_string", ""),
                "replaceAll": bool(arguments.get("replace_all")),
            }
        case "Read":
            file = {
                "filePath": arguments.get("file_path", ""),
                "content": _LINE_NUMBER.sub("", text),
                "numLines": result.detail.get("lines", text.count("\n") + 1),
                "startLine": arguments.get("offset") or 1,
            }
            return {"type": "text", "file": file}
        case "Agent":
            is_background = bool(result.detail.get("background"))
            return {
                "status": "async_launched" if is_background else "completed",
                "agentId": result.detail.get("run", ""),
                "content": [{"type": "text", "text": text}],
                "prompt": arguments.get("prompt", ""),
            }
        case _:
            return {"content": [{"type": "text", "text": text}]}


def read_hook_response(output: object) -> str:
    """Return the text of a tool response that a hook gave in place of the tool's."""
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        shape = cast("dict[str, Any]", output)
        if isinstance(shape.get("stdout"), str):
            return "\n".join(filter(None, (shape["stdout"], str(shape.get("stderr") or ""))))
        output = shape.get("content", shape)
    try:
        blocks = msgspec.convert(output, list[_TextBlock])
    except msgspec.ValidationError:
        return output if isinstance(output, str) else msgspec.json.encode(output).decode()
    return "\n".join(block.text for block in blocks)


class _TextBlock(msgspec.Struct):
    text: str
