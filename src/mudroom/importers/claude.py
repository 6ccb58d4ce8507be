"""Importer of Claude Code's logs.

A session is `<session>.jsonl`. Its children are `<session>/subagents/agent-*.jsonl`, or side chains
in the same file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from .._core.events import StoredEvent
from .._core.messages import AssistantBlock, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from .._core.run_ids import join_run_id
from ..errors import UsageError
from ..projections.web_searches import read_anthropic_step
from ._jsonl import (
    Row,
    extract_text,
    find_log,
    is_injected_text,
    parse_time,
    read_object,
    read_rows,
    to_count,
    to_object,
    to_objects,
)
from ._run_builder import RunBuilder, build_session, starts_run

_MESSAGE_TYPES = ("user", "assistant", "system")


class _ChildLog(Struct):
    """The log of one child.

    Arguments:
        agent_id: its id.
        rows: its messages.
        meta: its metadata file, {} if there is none.
        is_placed: the child has its place below another run.
    """

    agent_id: str
    rows: list[Row]
    meta: Row
    is_placed: bool = False


def read_claude_log(path: Path) -> tuple[str, list[StoredEvent]]:
    """Return the id and the events of a session.

    Arguments:
        path: the session's file, or a folder with the files; then the newest session is read.

    Raises UsageError when it is not a session log.
    """
    path = find_log(path, lambda file: not file.name.startswith("agent-"), "Claude Code")
    rows = list(read_rows(path))
    messages = [row for row in rows if _is_message(row)]
    if not messages:
        raise UsageError("this is no session log of Claude Code", where=str(path))
    main_rows = [row for row in rows if not row.get("isSidechain")]
    if any(_is_message(row) for row in main_rows):
        reader = _Reader(_read_children(path, messages))
        reader.read_conversation(main_rows)
    else:
        # The log of one child, opened without its parent's.
        reader = _Reader([])
        reader.read_conversation(rows)
    first: Row = {key: value for row in reversed(messages) for key, value in row.items()}
    return build_session(
        str(first.get("sessionId") or path.stem),
        str(first.get("cwd", "")),
        f"Claude Code {first.get('version', '')}",
        reader.runs,
    )


def _is_message(row: Row) -> bool:
    return row.get("type") in _MESSAGE_TYPES and ("message" in row or row["type"] == "system")


def _read_children(path: Path, messages: list[Row]) -> list[_ChildLog]:
    children: dict[str, _ChildLog] = {}
    for file in sorted((path.with_suffix("") / "subagents").glob("agent-*.jsonl")):
        agent_id = file.stem.removeprefix("agent-")
        rows = [row for row in read_rows(file) if row.get("type") in _MESSAGE_TYPES]
        children[agent_id] = _ChildLog(agent_id, rows, read_object(file.with_suffix(".meta.json")))
    agent_by_row: dict[str, str] = {}
    for row in messages:
        if not row.get("isSidechain"):
            continue
        previous = str(row.get("parentUuid") or "")
        agent_id = str(row.get("agentId") or agent_by_row.get(previous) or row.get("uuid"))
        agent_by_row[str(row.get("uuid"))] = agent_id
        children.setdefault(agent_id, _ChildLog(agent_id, [], {})).rows.append(row)
    return [child for child in children.values() if child.rows]


class _Reader:
    """Reader of a conversation; each child becomes a run below the call that started it."""

    def __init__(self, children: list[_ChildLog]) -> None:
        self.runs: list[RunBuilder] = []
        self._children = children

    def read_conversation(self, rows: list[Row]) -> None:
        """Read the main thread: each prompt of the user starts a root run.

        Each row names the row it follows. After the user went back in the conversation, a row
        follows an earlier row than the last one; no row follows the rows in between.
        """
        agent_by_call = _map_calls_to_agents(rows)
        run_by_row: dict[str, RunBuilder] = {}
        run: RunBuilder | None = None
        roots = 0
        for row in rows:
            previous = _find_previous_row(row)
            continued = None
            if previous or "parentUuid" not in row:
                continued = run_by_row.get(previous, run)
            if _is_message(row) and (run is None or _is_prompt(row)):
                roots += 1
                run = RunBuilder(
                    str(roots),
                    extract_text(_read_content(row)),
                    parse_time(row, run.last_at if run else 0.0),
                    continues=continued.run_id if continued else "",
                )
                self.runs.append(run)
            else:
                run = continued or run
            if run and "uuid" in row:
                run_by_row[str(row["uuid"])] = run
            if run and _is_message(row) and not _is_prompt(row):
                self._read_row(run, row, agent_by_call)
        if run:
            self._add_unplaced_children(run)

    def _add_unplaced_children(self, run: RunBuilder) -> None:
        for child in self._children:
            if not child.is_placed:
                run_id = join_run_id(run.run_id, len(run.turns) + 1, len(self.runs))
                self._add_child(run, child, call=None, run_id=run_id)

    def _read_row(self, run: RunBuilder, row: Row, agent_by_call: dict[str, str]) -> None:
        if row["type"] == "assistant":
            self._read_answer(run, row, agent_by_call)
        else:
            self._read_results_and_notes(run, row)

    def _read_answer(self, run: RunBuilder, row: Row, agent_by_call: dict[str, str]) -> None:
        message = to_object(row.get("message"))
        content = _read_content(row)
        entries = to_objects(content) or [{"type": "text", "text": extract_text(content)}]
        blocks = list(_to_blocks(entries))
        turn = run.add_answer(parse_time(row, run.last_at), blocks, str(message.get("id", "")))
        turn.usage = _to_usage(to_object(message.get("usage")))
        run.model = run.model or str(message.get("model", ""))
        for position, call in enumerate(turn.calls, 1):
            if call not in blocks or not starts_run(call):
                continue
            if child := self._find_child(call, agent_by_call):
                run_id = join_run_id(run.run_id, turn.number, position)
                self._add_child(run, child, call, run_id)

    def _read_results_and_notes(self, run: RunBuilder, row: Row) -> None:
        at = parse_time(row, run.last_at)
        content = _read_content(row)
        entries = to_objects(content)
        for block in entries:
            if block.get("type") != "tool_result":
                continue
            call_id = str(block.get("tool_use_id"))
            text = extract_text(block.get("content", ""))
            error = bool(block.get("is_error"))
            run.add_result(at, call_id, text, error=error)
            self._set_child_report(run, call_id, text, error=error)
        if entries:
            content = [block for block in entries if block.get("type") != "tool_result"]
        text = extract_text(content)
        if text.strip():
            is_typed = row["type"] == "user" and not row.get("isMeta")
            origin = "user" if is_typed and not is_injected_text(text) else "engine"
            run.add_note(at, text, origin)

    def _find_child(self, call: ToolCallBlock, agent_by_call: dict[str, str]) -> _ChildLog | None:
        """Return the child that a call started: by metadata, by the call's result, or by prompt."""
        unplaced = [child for child in self._children if not child.is_placed]
        for child in unplaced:
            if child.meta.get("toolUseId") == call.id:
                return child
            if agent_by_call.get(call.id) == child.agent_id:
                return child
        prompt = str(call.arguments.get("prompt", "")).strip()
        for child in unplaced:
            if not child.meta.get("toolUseId") and _find_child_prompt(child).strip() == prompt:
                return child
        return None

    def _add_child(
        self,
        parent: RunBuilder,
        child: _ChildLog,
        call: ToolCallBlock | None,
        run_id: str,
    ) -> None:
        child.is_placed = True
        arguments: Row = call.arguments if call else {}
        agent = arguments.get("subagent_type") or child.meta.get("agentType") or "agent"
        description = arguments.get("description") or child.meta.get("description") or ""
        run = RunBuilder(
            run_id,
            _find_child_prompt(child),
            max(parse_time(child.rows[0], parent.last_at), parent.last_at if call else 0.0),
            agent=str(agent),
            description=str(description),
            parent=parent.run_id,
            call_id=call.id if call else "",
        )
        self.runs.append(run)
        agent_by_call = _map_calls_to_agents(child.rows)
        rows = child.rows[1:] if _is_prompt(child.rows[0]) else child.rows
        for row in rows:
            self._read_row(run, row, agent_by_call)

    def _set_child_report(
        self, parent: RunBuilder, call_id: str, text: str, *, error: bool
    ) -> None:
        """Set the outcome of the child that a call started."""
        for run in self.runs:
            if run.parent_call == (parent.run_id, call_id):
                run.report_text = text
                run.has_failed = error


def _read_content(row: Row) -> object:
    return to_object(row.get("message")).get("content", row.get("content"))


def _find_previous_row(row: Row) -> str:
    """Return the id of the row that a row follows; after a compaction the last one before it."""
    return str(row.get("parentUuid") or row.get("logicalParentUuid") or "")


def _map_calls_to_agents(rows: list[Row]) -> dict[str, str]:
    """Return the agent id that the result of each call names, by call id."""
    agent_by_call: dict[str, str] = {}
    for row in rows:
        agent_id = to_object(row.get("toolUseResult")).get("agentId")
        if not agent_id:
            continue
        for block in to_objects(to_object(row.get("message")).get("content")):
            if block.get("type") == "tool_result":
                agent_by_call[str(block.get("tool_use_id"))] = str(agent_id)
    return agent_by_call


def _find_child_prompt(child: _ChildLog) -> str:
    return extract_text(to_object(child.rows[0].get("message")).get("content"))


def _is_prompt(row: Row) -> bool:
    if row["type"] != "user" or row.get("isMeta") or row.get("isCompactSummary"):
        return False
    content = to_object(row.get("message")).get("content")
    has_results = any(block.get("type") == "tool_result" for block in to_objects(content))
    return not has_results and not is_injected_text(extract_text(content))


def _to_blocks(entries: list[Row]) -> Iterator[AssistantBlock]:
    for entry in entries:
        match kind := entry.get("type"):
            case "text":
                yield TextBlock(str(entry.get("text", "")))
            case "thinking":
                yield ThinkingBlock(str(entry.get("thinking", "")))
            case "redacted_thinking":
                yield ThinkingBlock("", redacted="withheld")
            case "tool_use":
                call_id = str(entry.get("id", ""))
                name = str(entry.get("name", ""))
                yield ToolCallBlock(call_id, name, to_object(entry.get("input")))
            case str() if kind.endswith(("_tool_use", "_tool_result")):
                yield read_anthropic_step(entry)
            case _:
                continue


def _to_usage(counts: Row) -> Usage:
    cache_read = to_count(counts.get("cache_read_input_tokens"))
    cache_written = to_count(counts.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=to_count(counts.get("input_tokens")) + cache_read + cache_written,
        output_tokens=to_count(counts.get("output_tokens")),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_written,
        searches=to_count(to_object(counts.get("server_tool_use")).get("web_search_requests")),
    )
