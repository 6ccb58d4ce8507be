"""Claude Code's terms for tools, and a session as JSONL transcripts that viewers read.

There is one file for the conversation and one for each child run:

  PROJECT/SESSION.jsonl
  PROJECT/SESSION/subagents/agent-RUN.jsonl
  PROJECT/SESSION/subagents/agent-RUN.meta.json
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5
from zlib import crc32

from .._core.events import (
    NoteInjected,
    RunStarted,
    SessionOpened,
    StoredEvent,
    ToolCallFinished,
    TurnFinished,
)
from .._core.messages import TextBlock, append_placeholders
from .._core.runs import Brief
from .._core.tool_names import normalize_tool_name
from .anthropic_shapes import to_anthropic_message, to_anthropic_stop_reason

# Longer names, in characters, are cut and end with a checksum.
_MAX_FOLDER_NAME = 200


class ClaudeTranscripts:
    """Folds a session's events into lines by relative path; the same events give the same bytes."""

    def __init__(self, session_id: str) -> None:
        self.files: dict[str, list[str]] = {}
        self._session_id = session_id
        self._cwd = ""
        self._version = ""
        self._briefs: dict[str, Brief] = {}
        self._last_uuids: dict[str, str] = {}
        self._line_count = 0

    def apply(self, event: StoredEvent) -> None:
        if isinstance(event, SessionOpened):
            self._cwd = event.cwd
            self._version = event.version
        elif isinstance(event, RunStarted):
            self._start_run(event)
        elif brief := self._briefs.get(event.run):
            self._add_event(brief, event)

    def _start_run(self, event: RunStarted) -> None:
        brief = event.brief
        self._briefs[brief.run_id] = brief
        if brief.continues in self._last_uuids:
            self._last_uuids[brief.run_id] = self._last_uuids[brief.continues]
        if brief.depth:
            meta = {
                "toolUseId": brief.call_id,
                "parentAgentId": brief.parent if self._is_child(brief.parent) else None,
                "agentType": brief.agent.name,
                "description": brief.description,
                "spawnDepth": brief.depth,
                "model": brief.model,
            }
            path = self.make_path(brief.run_id).removesuffix(".jsonl") + ".meta.json"
            self.files[path] = [_encode_line({key: value for key, value in meta.items() if value})]
        message = {"role": "user", "content": _encode_prompt(brief)}
        self._add_line(brief, event, "user", message=message)

    def _add_event(self, brief: Brief, event: StoredEvent) -> None:
        match event:
            case NoteInjected():
                message = {"role": "user", "content": [{"type": "text", "text": event.text}]}
                is_meta = event.origin == "engine"
                self._add_line(brief, event, "user", message=message, isMeta=is_meta)
            case TurnFinished():
                answer = event.message
                message = to_anthropic_message(
                    answer, answer.model or brief.model, to_anthropic_stop_reason(answer)
                )
                self._add_line(brief, event, "assistant", message=message)
            case ToolCallFinished():
                text = append_placeholders(event.result.text, event.result.images)
                block = {
                    "type": "tool_result",
                    "tool_use_id": event.call_id,
                    "content": text,
                    **({"is_error": True} if event.result.error else {}),
                }
                message = {"role": "user", "content": [block]}
                self._add_line(brief, event, "user", message=message, toolUseResult=text)
            case _:
                pass

    def _add_line(self, brief: Brief, event: StoredEvent, kind: str, **fields: object) -> None:
        self._line_count += 1
        is_child = self._is_child(brief.run_id)
        line_uuid = str(uuid5(UUID(self._session_id), str(self._line_count)))
        time_text = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds")
        line = {
            "parentUuid": self._last_uuids.get(brief.run_id),
            "isSidechain": is_child,
            **({"agentId": brief.run_id} if is_child else {}),
            "userType": "external",
            "cwd": self._cwd,
            "sessionId": self._session_id,
            "version": self._version,
            "gitBranch": "",
            "type": kind,
            **fields,
            "uuid": line_uuid,
            "timestamp": time_text.replace("+00:00", "Z"),
        }
        self._last_uuids[brief.run_id] = line_uuid
        self.files.setdefault(self.make_path(brief.run_id), []).append(_encode_line(line))

    def _is_child(self, run_id: str) -> bool:
        brief = self._briefs.get(run_id)
        return bool(brief and brief.depth)

    def make_path(self, run_id: str) -> str:
        stem = f"{make_folder_name(self._cwd)}/{self._session_id}"
        is_child = self._is_child(run_id)
        return f"{stem}/subagents/agent-{run_id}.jsonl" if is_child else f"{stem}.jsonl"


def make_folder_name(cwd: str) -> str:
    """Name the folder for a project's transcripts: its path, with dashes for special characters."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", cwd)
    if len(name) <= _MAX_FOLDER_NAME:
        return name
    checksum = crc32(cwd.encode("utf-8", "surrogateescape"))
    return f"{name[:_MAX_FOLDER_NAME]}-{checksum:x}"


def _encode_prompt(brief: Brief) -> str | list[dict[str, Any]]:
    if not brief.content:
        return brief.prompt
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": block.media_type,
                "data": b64encode(block.data).decode(),
            },
        }
        for block in brief.content
    ]


def _encode_line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


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
