"""Tool calls in the terms of the protocol: kind, title, content, differences, locations."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, cast

from mudroom import ApprovalRequest, ImageBlock, Tool, ToolResult
from mudroom.ports import ToolCategory
from mudroom.views import (
    escape_line,
    find_builtin_tool,
    format_arguments,
    make_call_title,
    sanitize,
    sanitize_line,
)

MAX_TEXT = 50_000
"""Characters of a result that are sent; the rest is counted."""

_KINDS = {
    ToolCategory.READ: "read",
    ToolCategory.WRITE: "edit",
    ToolCategory.RUN: "execute",
    ToolCategory.NETWORK: "fetch",
    ToolCategory.AGENT: "think",
}


def find_kind(name: str, view: str = "", category: ToolCategory | None = None) -> str:
    """Return the kind of a call.

    Arguments:
        category: of a tool that is not built in, if it is known.
    """
    tool = find_builtin_tool(name)
    if tool and tool.is_search:
        return "search"
    if (view or (tool and tool.view)) in ("run", "todos"):
        return "think"
    if tool:
        is_reader = tool.has_category(ToolCategory.READ)
        category = tool.category or (ToolCategory.READ if is_reader else None)
    return _KINDS.get(category, "other") if category else "other"


def describe_title(name: str, arguments: Mapping[str, Any], title: str = "") -> str:
    """Return a call as one line: the tool and what the call is about."""
    about = title or make_call_title(arguments, find_builtin_tool(name))
    return sanitize_line(f"{name} {about}")


def make_text(text: str) -> dict[str, Any]:
    """Return a text block; a long text is cut with a note."""
    text = sanitize(text)
    left_out = len(text) - MAX_TEXT
    if left_out > 0:
        text = f"{text[:MAX_TEXT]}\n[… {left_out:,} characters left out …]"
    return {"type": "text", "text": text}


def make_image(image: ImageBlock) -> dict[str, Any]:
    """Return an image block."""
    data = b64encode(image.data).decode()
    return {"type": "image", "mimeType": image.media_type, "data": data}


def make_content(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block as content of a call."""
    return {"type": "content", "content": block}


def make_diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    """Return the change of a file as content of a call. `old`: None for a new file."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def list_locations(name: str, arguments: Mapping[str, Any], cwd: str) -> list[dict[str, Any]]:
    """Return the file that a call is about, with an absolute path."""
    tool = find_builtin_tool(name)
    path = _get_path(tool, arguments)
    if not tool or not path or tool.is_search:
        return []
    location: dict[str, Any] = {"path": os.path.join(cwd, path)}
    line = tool.rename_arguments(arguments).get("offset")
    if isinstance(line, int) and line > 0:
        location["line"] = line
    return [location]


def list_edits(
    name: str, view: str, arguments: Mapping[str, Any], cwd: str
) -> list[dict[str, Any]]:
    """Return the replacements that a call asks for."""
    tool = find_builtin_tool(name)
    path = _get_path(tool, arguments)
    if view != "diff" or not tool or not path:
        return []
    fields = tool.rename_arguments(arguments)
    listed = fields.get("edits")
    edits = cast("list[Any]", listed) if isinstance(listed, list) else [fields]
    full = os.path.join(cwd, path)
    return [
        make_diff(full, old, new)
        for edit in edits
        if isinstance(edit, dict)
        and isinstance(old := cast("dict[str, Any]", edit).get("old_string"), str)
        and isinstance(new := cast("dict[str, Any]", edit).get("new_string"), str)
    ]


def make_written(
    name: str, arguments: Mapping[str, Any], path: str, before: bytes | None
) -> list[dict[str, Any]]:
    """Return the change of a call that writes a whole file.

    Arguments:
        path: absolute path of the file.
        before: its content before; b"" for no file, None if it is not known.
    """
    tool = find_builtin_tool(name)
    content = tool.rename_arguments(arguments).get("content") if tool else None
    if not isinstance(content, str) or before is None:
        return []
    old = before.decode("utf-8", "replace") if before else None
    return [make_diff(path, old, content)]


def make_proposed(request: ApprovalRequest, cwd: str) -> list[dict[str, Any]]:
    """Return the change that a call would make, for the question whether it may."""
    tool = find_builtin_tool(request.tool)
    path = _get_path(tool, request.arguments)
    if tool and path and tool.view == "diff":
        return list_edits(tool.name, tool.view, request.arguments, cwd)
    if tool and path and tool.view == "content" and all(sign == "+" for sign, _ in request.change):
        return make_written(tool.name, request.arguments, os.path.join(cwd, path), b"")
    lines = "\n".join(f"{sign or ' '}{escape_line(text)}" for sign, text in request.change)
    # The title is cut, and without hidden characters: the user must see all that would run.
    return [make_content(make_text(lines or format_arguments(request.arguments)))]


def make_result(result: ToolResult) -> list[dict[str, Any]]:
    """Return the content of a finished call."""
    blocks = [make_text(result.text)] if result.text else []
    blocks += map(make_image, result.images)
    return list(map(make_content, blocks))


def make_plan(arguments: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the entries of a plan; None if the arguments have none."""
    todos = arguments.get("todos")
    if not isinstance(todos, list):
        return None
    items = [cast("dict[str, Any]", item) for item in cast("list[Any]", todos)]
    return [
        {
            "content": sanitize(str(item.get("content") or item.get("text") or "")),
            "priority": "medium",
            "status": item.get("status", "pending"),
        }
        for item in items
    ]


def _get_path(tool: Tool | None, arguments: Mapping[str, Any]) -> str:
    if tool is None or not tool.path_argument:
        return ""
    path = tool.rename_arguments(arguments).get(tool.path_argument)
    return path if isinstance(path, str) else ""
