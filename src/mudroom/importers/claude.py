"""Claude Code's logs: `<session>.jsonl`, its children in `<session>/subagents/agent-*.jsonl` or as side chains in the same file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from .._core.events import StoredEvent
from .._core.messages import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from .._core.tools import canonical_tool_name
from ..errors import UsageError
from ._jsonl import (
    Row,
    as_count,
    as_object,
    as_objects,
    extract_text,
    find_log,
    is_injected_text,
    parse_time,
    read_object,
    read_rows,
)
from ._run_builder import RunBuilder, build_session

_LINES = ("user", "assistant", "system")


class _Side(Struct):
    """A child's lines: its agent id, what is known of it, and whether its parent's call was found."""

    agent: str
    lines: list[Row]
    meta: Row
    found: bool = False


def read_claude_log(path: Path) -> tuple[str, list[StoredEvent]]:
    """A session's id, and its events.

    Arguments:
        path: the session's file, or a folder; of a folder the newest session is taken.

    Raises UsageError when it is no such log.
    """
    path = find_log(path, lambda found: not found.name.startswith("agent-"), "Claude's")
    every = list(read_rows(path))
    lines = [row for row in every if _shown(row)]
    if not lines:
        raise UsageError("this is no session log of Claude's", where=str(path))
    reader = _Reader(_sides(path, lines))
    reader.conversation([row for row in every if not row.get("isSidechain")])
    first: Row = {key: value for row in reversed(lines) for key, value in row.items()}
    return build_session(
        str(first.get("sessionId") or path.stem),
        str(first.get("cwd", "")),
        f"Claude Code {first.get('version', '')}",
        reader.runs,
    )


def _shown(row: Row) -> bool:
    return row.get("type") in _LINES and ("message" in row or row["type"] == "system")


def _sides(path: Path, lines: list[Row]) -> list[_Side]:
    sides: dict[str, _Side] = {}
    for file in sorted((path.with_suffix("") / "subagents").glob("agent-*.jsonl")):
        agent = file.stem.removeprefix("agent-")
        sides[agent] = _Side(
            agent,
            [row for row in read_rows(file) if row.get("type") in _LINES],
            read_object(file.with_suffix(".meta.json")),
        )
    chains: dict[str, str] = {}
    for row in lines:
        if not row.get("isSidechain"):
            continue
        above = str(row.get("parentUuid") or "")
        agent = str(row.get("agentId") or chains.get(above) or row.get("uuid"))
        chains[str(row.get("uuid"))] = agent
        sides.setdefault(agent, _Side(agent, [], {})).lines.append(row)
    return [side for side in sides.values() if side.lines]


class _Reader:
    """Reads conversations, each child where its parent called it."""

    def __init__(self, sides: list[_Side]) -> None:
        self.runs: list[RunBuilder] = []
        self._sides = sides

    def conversation(self, lines: list[Row]) -> None:
        """The main thread: every prompt of a person begins a root run.

        A line says which it follows. Somebody who went back follows an earlier one than the last, and what was said in between
        is on no way to the end.
        """
        named, of = _named(lines), dict[str, RunBuilder]()
        run, roots = None, 0
        for row in lines:
            before = of.get(_above(row), run) if "parentUuid" not in row or _above(row) else None
            if _shown(row) and (run is None or _is_prompt(row)):
                roots += 1
                text = extract_text(as_object(row.get("message")).get("content"))
                run = RunBuilder(
                    str(roots),
                    text,
                    parse_time(row, run.at if run else 0.0),
                    continues=before.run_id if before else "",
                )
                self.runs.append(run)
            else:
                run = before or run
            if run and "uuid" in row:
                of[str(row["uuid"])] = run
            if run and _shown(row) and not _is_prompt(row):
                self._line(run, row, named, depth=0)
        for side in self._sides:
            if not side.found and run:
                self._child(
                    run,
                    side,
                    call=None,
                    run_id=f"{run.run_id}.{len(run.turns) + 1}.{len(self.runs)}",
                    depth=1,
                )

    def _line(self, run: RunBuilder, row: Row, named: dict[str, str], depth: int) -> None:
        now, message = parse_time(row, run.at), as_object(row.get("message"))
        content = message.get("content", row.get("content"))
        if row["type"] == "assistant":
            blocks = list(
                _blocks(as_objects(content) or [{"type": "text", "text": extract_text(content)}])
            )
            turn = run.add_answer(now, blocks, str(message.get("id", "")))
            turn.usage, run.model = (
                _usage(as_object(message.get("usage"))),
                run.model or str(message.get("model", "")),
            )
            for place, call in enumerate(turn.calls, 1):
                if (
                    call in blocks
                    and canonical_tool_name(call.name) == "task"
                    and (side := self._called(call, named))
                ):
                    self._child(run, side, call, f"{run.run_id}.{turn.number}.{place}", depth + 1)
            return
        results = [block for block in as_objects(content) if block.get("type") == "tool_result"]
        for block in results:
            text, call_id = extract_text(block.get("content", "")), str(block.get("tool_use_id"))
            run.add_result(now, call_id, text, error=bool(block.get("is_error")))
            self._reported(run, call_id, text, error=bool(block.get("is_error")))
        rest = (
            extract_text(
                [block for block in as_objects(content) if block.get("type") != "tool_result"]
            )
            if as_objects(content)
            else extract_text(content)
        )
        if rest.strip():
            run.add_note(
                now,
                rest,
                "person"
                if row["type"] == "user" and not row.get("isMeta") and not is_injected_text(rest)
                else "engine",
            )

    def _called(self, call: ToolCallBlock, named: dict[str, str]) -> _Side | None:
        """Whose call began it: as its description says, as the result says, or by the prompt."""
        free = [side for side in self._sides if not side.found]
        for side in free:
            if side.meta.get("toolUseId") == call.id or named.get(call.id) == side.agent:
                return side
        prompt = str(call.arguments.get("prompt", "")).strip()
        return next(
            (
                side
                for side in free
                if not side.meta.get("toolUseId") and _prompt(side).strip() == prompt
            ),
            None,
        )

    def _child(
        self, parent: RunBuilder, side: _Side, call: ToolCallBlock | None, run_id: str, depth: int
    ) -> None:
        side.found = True
        given: Row = call.arguments if call else {}
        run = RunBuilder(
            run_id,
            _prompt(side),
            max(parse_time(side.lines[0], parent.at), parent.at if call else 0.0),
            agent=str(given.get("subagent_type") or side.meta.get("agentType") or "agent"),
            description=str(given.get("description") or side.meta.get("description") or ""),
            parent=parent.run_id,
            call_id=call.id if call else "",
            depth=depth,
        )
        self.runs.append(run)
        named = _named(side.lines)
        for row in side.lines[1 if _is_prompt(side.lines[0]) else 0 :]:
            self._line(run, row, named, depth)

    def _reported(self, parent: RunBuilder, call_id: str, text: str, *, error: bool) -> None:
        """The child of a call ended with this report, or went wrong."""
        for run in self.runs:
            if run.parent_call == (parent.run_id, call_id):
                run.report_text, run.has_failed = text, error


def _above(row: Row) -> str:
    """The line it follows; where the past was shortened, the last one of it."""
    return str(row.get("parentUuid") or row.get("logicalParentUuid") or "")


def _named(lines: list[Row]) -> dict[str, str]:
    """Call id -> the agent id that its result names."""
    named: dict[str, str] = {}
    for row in lines:
        agent = as_object(row.get("toolUseResult")).get("agentId")
        for block in as_objects(as_object(row.get("message")).get("content")):
            if agent and block.get("type") == "tool_result":
                named[str(block.get("tool_use_id"))] = str(agent)
    return named


def _prompt(side: _Side) -> str:
    return extract_text(as_object(side.lines[0].get("message")).get("content"))


def _is_prompt(row: Row) -> bool:
    content = as_object(row.get("message")).get("content")
    answers = any(block.get("type") == "tool_result" for block in as_objects(content))
    return row["type"] == "user" and not (
        answers
        or row.get("isMeta")
        or row.get("isCompactSummary")
        or is_injected_text(extract_text(content))
    )


def _blocks(content: list[Row]) -> Iterator[TextBlock | ThinkingBlock | ToolCallBlock]:
    for block in content:
        match block.get("type"):
            case "text":
                yield TextBlock(str(block.get("text", "")))
            case "thinking":
                yield ThinkingBlock(str(block.get("thinking", "")))
            case "redacted_thinking":
                yield ThinkingBlock("", redacted="withheld")
            case "tool_use" | "server_tool_use":
                yield ToolCallBlock(
                    str(block.get("id", "")),
                    str(block.get("name", "")),
                    as_object(block.get("input")),
                )
            case _:
                continue


def _usage(given: dict[str, Any]) -> Usage:
    read, written = (
        as_count(given.get("cache_read_input_tokens")),
        as_count(given.get("cache_creation_input_tokens")),
    )
    return Usage(
        input_tokens=as_count(given.get("input_tokens")) + read + written,
        output_tokens=as_count(given.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
