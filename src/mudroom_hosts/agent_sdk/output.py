"""HostOutput: a session's lines for the host, in the order the SDKs expect."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from mudroom import AnyEvent, Report, Session, __version__
from mudroom.events import (
    Delta,
    ModelCallRetried,
    RunStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from mudroom.views import (
    LedgerBuilder,
    StreamJson,
    calculate_cost,
    get_claude_name,
    is_child_id,
    to_claude_arguments,
)

from .resume_point import make_message_id
from .setup import SdkOptions

PROTOCOL_LEVEL = "2.1.248"
"""Version of Claude Code whose protocol mudroom follows. The SDKs warn below 2.0.0."""

_OWN_NOTES = ("engine", "mudroom")
"""Origins of notes to the model that a host would show as its user's words."""

_CHILD_BLOCKS = ("tool_use", "tool_result")
"""Children's blocks that are sent; others only if the host asks for children's texts."""


class HostOutput:
    """Folds a session's events, across all its prompts, into lines for the host."""

    def __init__(
        self,
        send: Callable[[Mapping[str, Any]], None],
        options: SdkOptions,
        *,
        shows_child_text: bool,
    ) -> None:
        self._send = send
        self._options = options
        self._shows_child_text = shows_child_text
        self._session: Session | None = None
        self._lines: StreamJson | None = None
        self._parts: PartialMessages | None = None
        self._ledger = LedgerBuilder()
        self._costs: dict[str, float | None] = {}
        self._state = ""
        self._tasks: dict[str, str] = {}
        self.context_tokens = 0
        self.servers: Callable[[], list[dict[str, Any]]] = list

    def attach(self, session: Session) -> None:
        """Show an open session, which may be the same one reopened."""
        self._session = session
        session.watch(self._apply)
        if self._lines is None:
            self._lines = StreamJson.of_session(session, cost=calculate_cost)
        if self._options.streams_parts:
            self._parts = PartialMessages(session.id, session.model)

    @property
    def total_usd(self) -> float | None:
        """US dollars of all this process's prompts; None if a price is unknown."""
        costs = list(self._costs.values())
        return None if None in costs else sum(cast("list[float]", costs))

    def find_task(self, call_id: str) -> str:
        """Find the id of the child that a call started, else return the id as is."""
        return self._tasks.get(call_id, call_id)

    def set_state(self, state: str) -> None:
        """Tell the host whether the session is "running", "idle", or "requires_action"."""
        if state == self._state or self._session is None:
            return
        self._state = state
        marker = {"sdk_host_only": True} if self._options.marks_states else {}
        self._send_line("system", subtype="session_state_changed", state=state, **marker)

    def send_init(self, mode: str, commands: Iterable[str] = ()) -> None:
        """Send a turn's first line. `commands`: names of prompts from files."""
        assert self._session
        assert self._lines
        self._lines.start_prompt()
        line = self._lines.make_init_line()
        fields = {
            "model": self._session.model,
            "tools": [get_claude_name(tool) for tool in self._session.tools],
            "agents": [agent.name for agent in self._session.agents],
            "permissionMode": mode,
            "slash_commands": list(commands),
            "plugins": [{"name": each.name, "path": each.root} for each in self._session.plugins],
            "mcp_servers": self.servers(),
            "claude_code_version": PROTOCOL_LEVEL,
            "mudroom_version": __version__,
        }
        self._send({**line, **fields})

    def send_result(self, report: Report, uuids: list[str], *, has_value: bool) -> None:
        """Send a turn's last line. `uuids`: ids of the user's lines that it answers."""
        assert self._lines
        if report.run_id:
            self._costs[report.run_id] = report.usd
        ledger = msgspec.to_builtins(self._ledger.ledger)
        line = self._lines.make_result_line(report, ledger, has_value=has_value)
        line["total_cost_usd"] = self.total_usd
        if uuids:
            line |= {"user_message_uuid": uuids[-1], "user_message_uuids": uuids}
        self._send(self._translate(line))

    def send_user(self, raw: Mapping[str, Any]) -> None:
        if self._options.repeats_prompts and self._session:
            more = {"session_id": self._session.id, "uuid": raw.get("uuid") or str(uuid.uuid4())}
            self._send({**raw, **more, "isReplay": True})

    def send_hook(self, subtype: str, **fields: object) -> None:
        if self._options.shows_hooks and self._session:
            self._send_line("system", subtype=subtype, **fields)

    def _send_line(self, type: str, **fields: object) -> None:
        assert self._session
        ids = {"session_id": self._session.id, "uuid": str(uuid.uuid4())}
        self._send({"type": type, **fields, **ids})

    def _apply(self, event: AnyEvent) -> None:
        assert self._lines
        self._ledger.apply(event)
        if isinstance(event, RunStarted) and event.brief.call_id:
            self._tasks[event.brief.call_id] = event.run
        elif isinstance(event, TurnFinished) and not is_child_id(event.run):
            self.context_tokens = event.message.usage.total_tokens
        ids = {"uuid": make_message_id(event)} if isinstance(event, TurnFinished) else {}
        lines = [self._translate(line | ids) for line in self._lines.make_event_lines(event)]
        if self._parts:
            for line in self._parts.make_lines(event, lines):
                self._send(line)
        for line in lines:
            if shown := self._select(line):
                self._send(shown)

    def _select(self, line: dict[str, Any]) -> dict[str, Any] | None:
        """Reduce a line to what the host receives, None for nothing.

        Drops children's text, unless the host asked for it, and mudroom's notes to the model.
        """
        if line.get("isSynthetic") and line["origin"]["kind"] in _OWN_NOTES:
            return None
        is_message = line["type"] in ("assistant", "user")
        if self._shows_child_text or not is_message or not line.get("parent_tool_use_id"):
            return line
        message = line["message"]
        content = [block for block in message["content"] if block["type"] in _CHILD_BLOCKS]
        return {**line, "message": {**message, "content": content}} if content else None

    def _translate(self, line: dict[str, Any]) -> dict[str, Any]:
        assert self._session
        return to_host_line(line, self._session.cwd)


_KINDS = {
    "text": ({"type": "text", "text": ""}, "text_delta", "text"),
    "thinking": (
        {"type": "thinking", "thinking": "", "signature": ""},
        "thinking_delta",
        "thinking",
    ),
}
"""Kind of delta -> its empty block, the type of its part, and the field with the text."""


class PartialMessages:
    """Folds root runs' events into `stream_event` lines.

    Text and thinking are streamed; a tool call follows whole once the answer is complete.
    """

    def __init__(self, session: str, model: str) -> None:
        self._session = session
        self._model = model
        self._is_open = False
        self._kind = ""
        self._index = -1

    def make_lines(
        self, event: AnyEvent, whole: Sequence[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yield an event's lines, often none. `whole`: its lines without parts."""
        if not event.run or is_child_id(event.run):
            return
        match event:
            case TurnStarted():
                self._is_open = False
                self._kind = ""
            case Delta(kind="text" | "thinking") if event.text:
                yield from self._add_text(event)
            case TurnFinished() if whole:
                yield from self._finish(whole[0]["message"])
            case TurnFinished() | TurnFailed() | ModelCallRetried():
                yield from self._close_block()
                if self._is_open:
                    yield self._make_line({"type": "message_stop"})
                self._is_open = False
            case _:
                pass

    def _open(self, message_id: str = "") -> Iterator[dict[str, Any]]:
        if self._is_open:
            return
        self._is_open = True
        self._index = -1
        message: dict[str, Any] = {
            "id": message_id or f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        yield self._make_line({"type": "message_start", "message": message})

    def _add_text(self, event: Delta) -> Iterator[dict[str, Any]]:
        yield from self._open()
        empty, part, field = _KINDS[event.kind]
        if self._kind != event.kind:
            yield from self._close_block()
            yield from self._open_block(empty)
            self._kind = event.kind
        yield self._make_block_line("delta", delta={"type": part, field: event.text})

    def _finish(self, message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._open(message["id"])
        yield from self._close_block()
        for block in message["content"]:
            if block["type"] == "tool_use":
                yield from self._add_call(block)
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield self._make_line({"type": "message_delta", "delta": delta, "usage": message["usage"]})
        yield self._make_line({"type": "message_stop"})
        self._is_open = False

    def _add_call(self, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._open_block({**call, "input": {}})
        part = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
        yield self._make_block_line("delta", delta=part)
        yield self._make_block_line("stop")

    def _open_block(self, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        self._index += 1
        yield self._make_block_line("start", content_block=block)

    def _close_block(self) -> Iterator[dict[str, Any]]:
        if self._kind:
            self._kind = ""
            yield self._make_block_line("stop")

    def _make_block_line(self, step: str, **fields: object) -> dict[str, Any]:
        return self._make_line({"type": f"content_block_{step}", "index": self._index, **fields})

    def _make_line(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "type": "stream_event",
            "event": event,
            "parent_tool_use_id": None,
            "session_id": self._session,
            "uuid": str(uuid.uuid4()),
        }


def to_host_arguments(tool: str, arguments: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """Translate a call's arguments to the host's, leaving out unset ones."""
    result = to_claude_arguments(tool, arguments, cwd)
    if result.get("run_in_background") is False:
        del result["run_in_background"]
    return {key: value for key, value in result.items() if value is not None}


def to_host_line(line: dict[str, Any], cwd: str) -> dict[str, Any]:
    for block in _list_blocks(line):
        if block.get("type") == "tool_use":
            block["input"] = to_host_arguments(block["name"], block["input"], cwd)
            block["name"] = get_claude_name(block["name"])
    for denial in line.get("permission_denials", ()):
        denial["tool_input"] = to_host_arguments(denial["tool_name"], denial["tool_input"], cwd)
        denial["tool_name"] = get_claude_name(denial["tool_name"])
    if name := line.get("last_tool_name"):
        line["last_tool_name"] = get_claude_name(name)
    return line


def _list_blocks(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = line.get("message")
    if line.get("type") != "assistant" or not isinstance(message, dict):
        return []
    return cast("list[dict[str, Any]]", cast("dict[str, Any]", message)["content"])
