"""The server's tools, as hosts send them to their models."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from mudroom import Reason

INSTRUCTIONS = (
    "Each task runs in a clean context of its own, with a budget, and is recorded. It sees its "
    "prompt and the files of this folder, not your conversation. Use task_many for parallel work."
)


class ToolDefinition(Struct, frozen=True):
    name: str
    description: str
    inputs: dict[str, Any]
    outputs: dict[str, Any] | None = None  # schema of the structured content
    reads_only: bool = False


def _make_object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed}


_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_INTEGER = {"type": "integer"}
_TEXTS = {"type": "array", "items": _TEXT}
_TASK_ID = {"task": _TEXT}
_WAIT = {
    "wait": {"type": "number", "description": "Seconds, then return; it goes on. See task_result."}
}
_TASK = {
    "prompt": {"type": "string", "description": "All that it must know."},
    "agent": {"type": "string", "description": "See agents."},
    "description": {"type": "string", "description": "3-5 words."},
    "model": _TEXT,
    "budget": {
        "type": "object",
        "properties": {
            "turns": _INTEGER,
            "tokens": _INTEGER,
            "seconds": _NUMBER,
            "usd": _NUMBER,
        },
    },
    "files": _TEXTS,
    "schema": {"type": "object", "description": "JSON Schema of the answer."},
}
_RESULT = _make_object(
    {
        "task": _TEXT,
        "state": {"enum": ["waiting", "working", "asking", "ended"]},
        "reason": {"enum": ["", *(reason.value for reason in Reason)]},
        "report": _TEXT,
    },
    "task",
    "state",
)
_RESULTS = _make_object({"results": {"type": "array", "items": {"type": "object"}}}, "results")

TOOLS = (
    ToolDefinition(
        "task",
        "Give a task to an agent with a clean context. Returns its report.",
        _make_object({**_TASK, **_WAIT}, "prompt"),
        _RESULT,
    ),
    ToolDefinition(
        "task_many",
        "Run tasks in parallel: objects as for task, without wait. Returns all reports.",
        _make_object(
            {
                "tasks": {"type": "array", "items": _make_object({"prompt": _TEXT}, "prompt")},
                "limit": {"type": "integer", "description": "At the same time."},
                **_WAIT,
            },
            "tasks",
        ),
        _RESULTS,
    ),
    ToolDefinition(
        "look",
        "Like task, but it only reads: find and explain.",
        _make_object({"prompt": _TEXT, "files": _TEXTS, **_WAIT}, "prompt"),
        _RESULT,
        reads_only=True,
    ),
    ToolDefinition("agents", "List the agents.", _make_object({}), reads_only=True),
    ToolDefinition(
        "task_result",
        "Wait for a task and return its report. Without task: list all.",
        _make_object({**_TASK_ID, **_WAIT}),
        reads_only=True,
    ),
    ToolDefinition(
        "task_cancel",
        "Stop a task. Returns its partial report.",
        _make_object(_TASK_ID, "task"),
    ),
)
