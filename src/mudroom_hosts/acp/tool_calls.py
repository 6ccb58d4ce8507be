"""Tool calls in the protocol's terms: kind, title, content, diffs, locations.

`RunStream` sends a run's calls between its messages.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct, field

from mudroom import ApprovalRequest, ImageBlock, Tool, ToolCallBlock, ToolResult
from mudroom.events import Compacted, Delta, FileWriteIntended
from mudroom.ports import ToolCategory
from mudroom.views import (
    escape_line,
    find_builtin_tool,
    format_arguments,
    make_call_title,
    sanitize,
    sanitize_line,
)

from ..json_values import as_object

MAX_TEXT = 50_000  # characters of a result to send; the rest is counted

_KINDS = {
    ToolCategory.READ: "read",
    ToolCategory.WRITE: "edit",
    ToolCategory.RUN: "execute",
    ToolCategory.NETWORK: "fetch",
    ToolCategory.AGENT: "think",
}


def find_kind(name: str, view: str = "", category: ToolCategory | None = None) -> str:
    """Find a call's kind; `category` is for tools that are not built in."""
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
    about = title or make_call_title(arguments, find_builtin_tool(name))
    return sanitize_line(f"{name} {about}")


def make_text(text: str) -> dict[str, Any]:
    """Make a text block; long text is cut with a note."""
    text = sanitize(text)
    left_out = len(text) - MAX_TEXT
    if left_out > 0:
        text = f"{text[:MAX_TEXT]}\n[… {left_out:,} characters left out …]"
    return {"type": "text", "text": text}


def make_image(image: ImageBlock) -> dict[str, Any]:
    data = b64encode(image.data).decode()
    return {"type": "image", "mimeType": image.media_type, "data": data}


def make_content(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "content", "content": block}


def make_diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    """Make a file's change the content of a call. `old`: None for a new file."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def list_locations(name: str, arguments: Mapping[str, Any], cwd: str) -> list[dict[str, Any]]:
    """List the file a call is about, with an absolute path."""
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
        if isinstance(old := as_object(edit).get("old_string"), str)
        and isinstance(new := as_object(edit).get("new_string"), str)
    ]


def make_written(
    name: str, arguments: Mapping[str, Any], path: str, before: bytes | None
) -> list[dict[str, Any]]:
    """Make the diff of a whole file; `before` is b"" for no file, None if unknown."""
    tool = find_builtin_tool(name)
    content = tool.rename_arguments(arguments).get("content") if tool else None
    if not isinstance(content, str) or before is None:
        return []
    old = before.decode("utf-8", "replace") if before else None
    return [make_diff(path, old, content)]


def make_proposed(request: ApprovalRequest, cwd: str) -> list[dict[str, Any]]:
    """Show the change that a call would make, for the permission question."""
    tool = find_builtin_tool(request.tool)
    path = _get_path(tool, request.arguments)
    if tool and path and tool.view == "diff":
        return list_edits(tool.name, tool.view, request.arguments, cwd)
    if tool and path and tool.view == "content" and all(sign == "+" for sign, _ in request.change):
        return make_written(tool.name, request.arguments, os.path.join(cwd, path), b"")
    lines = "\n".join(f"{sign or ' '}{escape_line(text)}" for sign, text in request.change)
    # The title is cut and lacks hidden characters: the user must see all that would run.
    return [make_content(make_text(lines or format_arguments(request.arguments)))]


def make_result(result: ToolResult) -> list[dict[str, Any]]:
    blocks = [make_text(result.text)] if result.text else []
    blocks += map(make_image, result.images)
    return list(map(make_content, blocks))


def make_plan(arguments: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Make the entries of a plan; None if the arguments have none."""
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


_CHUNKS = {"text": "agent_message_chunk", "thinking": "agent_thought_chunk"}
"""Kind of text -> update."""
_OUTPUT_SECONDS = 0.2  # seconds between updates with a call's output


class OpenCall(Struct):
    id: str  # unique in the session
    block: ToolCallBlock  # the call as the model sent it, or as it runs
    view: str = ""
    content: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    write: FileWriteIntended | None = None
    is_detached: bool = False  # it has returned, and its child is still running
    shown_at: float = 0.0  # when its output was last sent, seconds since 1970


class RunStream:
    """Sends one run's output to its session, identified by its protocol id."""

    def __init__(
        self, run_id: str, session: str, send: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self.session = session
        self.calls: dict[str, OpenCall] = {}  # unfinished, by their ids in the record
        self._run_id = run_id
        self._send = send
        self._streamed = {"text": "", "thinking": ""}
        self._attempt = 0
        self._last: dict[str, OpenCall] = {}

    def send(self, update: str, /, **fields: Any) -> None:
        self._send(self.session, {"sessionUpdate": update, **fields})

    def add_delta(self, event: Delta) -> None:
        if event.kind == "output":
            self._show_output(event)
        if event.kind not in _CHUNKS or not event.text:
            return
        self._streamed[event.kind] += event.text
        self._send_chunk(event.kind, event.text, event.turn)

    def _show_output(self, event: Delta) -> None:
        call = self.calls.get(event.call_id)
        if call and event.text and event.at - call.shown_at >= _OUTPUT_SECONDS:
            call.shown_at = event.at
            output = make_content(make_text(event.text))
            self.send_call(call, content=[*call.content, output])

    def discard_streamed(self) -> None:
        """Begin a new message, so that the next text is separate from the last."""
        self._attempt += 1
        self._streamed = {"text": "", "thinking": ""}

    def complete_text(self, kind: str, text: str, turn: int) -> None:
        """Send the part of a text not yet streamed; if it differs, all of it as a new message."""
        streamed = self._streamed[kind]
        if text.startswith(streamed):
            rest = text[len(streamed) :]
        elif "".join(text.split()) == "".join(streamed.split()):
            rest = ""
        else:
            self._attempt += 1
            rest = text
        if rest.strip():
            self._send_chunk(kind, rest, turn)

    def open_call(self, block: ToolCallBlock, turn: int) -> OpenCall:
        call = OpenCall(f"{self._run_id}/{turn}/{block.id}", block)
        self.calls[block.id] = call
        self._last[block.id] = call
        return call

    def find_call(self, call_id: str) -> OpenCall | None:
        """Find the last call with this id, finished or not."""
        return self._last.get(call_id)

    def send_call(self, call: OpenCall, **fields: Any) -> None:
        self.send("tool_call_update", toolCallId=call.id, **fields)

    def close_call(self, call: OpenCall, **fields: Any) -> None:
        self.calls.pop(call.block.id, None)
        self.send_call(call, **fields)

    def end_calls(self) -> None:
        for call in list(self.calls.values()):
            self.close_call(call, status="failed")
        self._last.clear()

    def send_compaction(self, event: Compacted) -> None:
        identifier = f"{self._run_id}/{event.turn}/compaction"
        text = f"About {event.before:,} tokens became {event.after:,} ({event.cause})."
        self.send(
            "compaction_update",
            compactionId=identifier,
            status="completed",
            summary=[make_text(text)],
        )

    def _send_chunk(self, kind: str, text: str, turn: int) -> None:
        message = f"{self._run_id}/{turn}/{kind}/{self._attempt}"
        content = {"type": "text", "text": sanitize(text)}
        self.send(_CHUNKS[kind], content=content, messageId=message)
