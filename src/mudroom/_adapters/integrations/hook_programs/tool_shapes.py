"""Tools as hooks know them, with Claude Code's names, inputs and responses."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from ...._core.messages import ToolCallBlock
from ...._core.tools import ToolResult
from ...._projections.claude import (
    get_claude_name,
    get_path_argument,
    to_claude_arguments,
    to_own_arguments,
)

_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)


class ToolInput(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any]


def to_hook_input(call: ToolCallBlock, folder: str) -> ToolInput:
    """Translate a call into the terms of hooks. Relative paths refer to `folder`."""
    arguments = to_claude_arguments(call.name, call.arguments, folder)
    return ToolInput(get_claude_name(call.name), arguments)


def from_hook_input(
    call: ToolCallBlock, sent: ToolInput, changed: dict[str, Any]
) -> dict[str, Any]:
    """Translate a hook's arguments into our own terms, keeping an unchanged path as it was."""
    arguments = to_own_arguments(call.name, changed)
    path = get_path_argument(call.name)
    if path in call.arguments and arguments.get(path) == sent.arguments.get(path):
        arguments[path] = call.arguments[path]
    return arguments


def to_hook_response(sent: ToolInput, result: ToolResult) -> dict[str, Any]:
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
