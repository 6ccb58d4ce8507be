"""A session as the transcript files that viewers of terminal agents read: a JSONL file for the conversation, and one for each child.

PROJECT/SESSION.jsonl   PROJECT/SESSION/subagents/agent-RUN.jsonl   PROJECT/SESSION/subagents/agent-RUN.meta.json
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5
from zlib import crc32

from ..._core.agents import Brief
from ..._core.events import (
    NoteInjected,
    RunStarted,
    SessionOpened,
    StoredEvent,
    ToolCallFinished,
    TurnFinished,
)
from ..output.stream_json import to_anthropic_message, to_anthropic_stop_reason

_LONGEST = 200


class ClaudeTranscripts:
    """A fold of one session's events into files; the same record gives the same bytes. `files`: path -> lines."""

    def __init__(self, session: str) -> None:
        self.files: dict[str, list[str]] = {}
        self._session, self._cwd, self._version = session, "", ""
        self._briefs: dict[str, Brief] = {}
        self._last: dict[str, str] = {}
        self._count = 0

    def apply(self, event: StoredEvent) -> None:
        """Take in the next event."""
        if isinstance(event, SessionOpened):
            self._cwd, self._version = event.cwd, event.version
        elif isinstance(event, RunStarted):
            self._begin(event)
        elif brief := self._briefs.get(event.run):
            self._tell(brief, event)

    def _begin(self, event: RunStarted) -> None:
        brief = event.brief
        self._briefs[brief.run_id] = brief
        if brief.continues in self._last:
            self._last[brief.run_id] = self._last[brief.continues]
        if brief.depth:
            about = {
                "toolUseId": brief.call_id,
                "parentAgentId": brief.parent if self._is_child(brief.parent) else None,
            }
            about |= {
                "agentType": brief.agent.name,
                "description": brief.description,
                "spawnDepth": brief.depth,
                "model": brief.model,
            }
            self.files[self._path(brief).removesuffix(".jsonl") + ".meta.json"] = [
                _line({k: v for k, v in about.items() if v})
            ]
        self._add(brief, event, "user", message={"role": "user", "content": brief.prompt})

    def _tell(self, brief: Brief, event: StoredEvent) -> None:
        match event:
            case NoteInjected():
                said = {"role": "user", "content": [{"type": "text", "text": event.text}]}
                self._add(brief, event, "user", message=said, isMeta=event.origin == "engine")
            case TurnFinished():
                message = event.message
                self._add(
                    brief,
                    event,
                    "assistant",
                    message=to_anthropic_message(
                        message,
                        message.model or brief.model,
                        to_anthropic_stop_reason(message.stop_reason),
                    ),
                )
            case ToolCallFinished():
                block: dict[str, Any] = {
                    "type": "tool_result",
                    "tool_use_id": event.call_id,
                    "content": event.result.text,
                }
                if event.result.error:
                    block["is_error"] = True
                self._add(
                    brief,
                    event,
                    "user",
                    message={"role": "user", "content": [block]},
                    toolUseResult=event.result.text,
                )
            case _:
                pass

    def _add(self, brief: Brief, event: StoredEvent, kind: str, **fields: Any) -> None:
        self._count += 1
        child, own = self._is_child(brief.run_id), str(uuid5(UUID(self._session), str(self._count)))
        line = {
            "parentUuid": self._last.get(brief.run_id),
            "isSidechain": child,
            **({"agentId": brief.run_id} if child else {}),
            "userType": "external",
            "cwd": self._cwd,
            "sessionId": self._session,
            "version": self._version,
            "gitBranch": "",
            "type": kind,
            **fields,
            "uuid": own,
            "timestamp": datetime.fromtimestamp(event.at, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
        }
        self._last[brief.run_id] = own
        self.files.setdefault(self._path(brief), []).append(_line(line))

    def _is_child(self, run_id: str) -> bool:
        brief = self._briefs.get(run_id)
        return bool(brief and brief.depth)

    def _path(self, brief: Brief) -> str:
        stem = f"{project_folder_name(self._cwd)}/{self._session}"
        return f"{stem}/subagents/agent-{brief.run_id}.jsonl" if brief.depth else f"{stem}.jsonl"


def project_folder_name(cwd: str) -> str:
    """The name of a folder's folder of transcripts: its path with a dash for all that is no letter or digit."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", cwd)
    return (
        name
        if len(name) <= _LONGEST
        else f"{name[:_LONGEST]}-{crc32(cwd.encode('utf-8', 'surrogateescape')):x}"
    )


def write_transcripts(session: str, events: Iterable[StoredEvent], folder: Path) -> list[Path]:
    """Write a session's transcripts below a folder, for the user alone; the files."""
    from ...journals.sqlite.private_files import make_private_folder, write_private_file

    fold = ClaudeTranscripts(session)
    for event in events:
        fold.apply(event)
    paths = [folder / name for name in fold.files]
    for path, lines in zip(paths, fold.files.values(), strict=True):
        make_private_folder(path.parent)
        write_private_file(path, "".join(lines).encode("utf-8", "replace"))
    return paths


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"
