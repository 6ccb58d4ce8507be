"""Claude Code's logs: `<session>.jsonl`, its children in `<session>/subagents/agent-*.jsonl` or as side chains in the same file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from .._core.events import Stored
from .._core.messages import Call, Text, Thinking, Usage
from .._core.tools import canonical
from ..errors import UsageError
from ._jsonl import Row, at, entries, entry, log, number, rows, surrounding, whole, words
from ._run_builder import Run, session

_LINES = ("user", "assistant", "system")


class _Side(Struct):
    """A child's lines: its agent id, what is known of it, and whether its parent's call was found."""

    agent: str
    lines: list[Row]
    meta: Row
    found: bool = False


def claude(path: Path) -> tuple[str, list[Stored]]:
    """A session's id, and its events.

    Arguments:
        path: the session's file, or a folder; of a folder the newest session is taken.

    Raises UsageError when it is no such log.
    """
    path = log(path, lambda found: not found.name.startswith("agent-"), "Claude's")
    every = list(rows(path))
    lines = [row for row in every if _shown(row)]
    if not lines:
        raise UsageError("this is no session log of Claude's", where=str(path))
    reader = _Reader(_sides(path, lines))
    reader.conversation([row for row in every if not row.get("isSidechain")])
    first: Row = {key: value for row in reversed(lines) for key, value in row.items()}
    return session(
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
            [row for row in rows(file) if row.get("type") in _LINES],
            whole(file.with_suffix(".meta.json")),
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
        self.runs: list[Run] = []
        self._sides = sides

    def conversation(self, lines: list[Row]) -> None:
        """The main thread: every prompt of a person begins a root run.

        A line says which it follows. Somebody who went back follows an earlier one than the last, and what was said in between
        is on no way to the end.
        """
        named, of = _named(lines), dict[str, Run]()
        run, roots = None, 0
        for row in lines:
            before = of.get(_above(row), run) if "parentUuid" not in row or _above(row) else None
            if _shown(row) and (run is None or _is_prompt(row)):
                roots += 1
                text = words(entry(row.get("message")).get("content"))
                run = Run(
                    str(roots),
                    text,
                    at(row, run.at if run else 0.0),
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

    def _line(self, run: Run, row: Row, named: dict[str, str], depth: int) -> None:
        now, message = at(row, run.at), entry(row.get("message"))
        content = message.get("content", row.get("content"))
        if row["type"] == "assistant":
            blocks = list(_blocks(entries(content) or [{"type": "text", "text": words(content)}]))
            turn = run.say(now, blocks, str(message.get("id", "")))
            turn.usage, run.model = (
                _usage(entry(message.get("usage"))),
                run.model or str(message.get("model", "")),
            )
            for place, call in enumerate(turn.calls, 1):
                if (
                    call in blocks
                    and canonical(call.name) == "task"
                    and (side := self._called(call, named))
                ):
                    self._child(run, side, call, f"{run.run_id}.{turn.number}.{place}", depth + 1)
            return
        results = [block for block in entries(content) if block.get("type") == "tool_result"]
        for block in results:
            text, call_id = words(block.get("content", "")), str(block.get("tool_use_id"))
            run.answered(now, call_id, text, error=bool(block.get("is_error")))
            self._reported(run, call_id, text, error=bool(block.get("is_error")))
        rest = (
            words([block for block in entries(content) if block.get("type") != "tool_result"])
            if entries(content)
            else words(content)
        )
        if rest.strip():
            run.told(
                now,
                rest,
                "person"
                if row["type"] == "user" and not row.get("isMeta") and not surrounding(rest)
                else "engine",
            )

    def _called(self, call: Call, named: dict[str, str]) -> _Side | None:
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

    def _child(self, parent: Run, side: _Side, call: Call | None, run_id: str, depth: int) -> None:
        side.found = True
        given: Row = call.arguments if call else {}
        run = Run(
            run_id,
            _prompt(side),
            max(at(side.lines[0], parent.at), parent.at if call else 0.0),
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

    def _reported(self, parent: Run, call_id: str, text: str, *, error: bool) -> None:
        """The child of a call ended with this report, or went wrong."""
        for run in self.runs:
            if run.place == (parent.run_id, call_id):
                run.result, run.failed = text, error


def _above(row: Row) -> str:
    """The line it follows; where the past was shortened, the last one of it."""
    return str(row.get("parentUuid") or row.get("logicalParentUuid") or "")


def _named(lines: list[Row]) -> dict[str, str]:
    """Call id -> the agent id that its result names."""
    named: dict[str, str] = {}
    for row in lines:
        agent = entry(row.get("toolUseResult")).get("agentId")
        for block in entries(entry(row.get("message")).get("content")):
            if agent and block.get("type") == "tool_result":
                named[str(block.get("tool_use_id"))] = str(agent)
    return named


def _prompt(side: _Side) -> str:
    return words(entry(side.lines[0].get("message")).get("content"))


def _is_prompt(row: Row) -> bool:
    content = entry(row.get("message")).get("content")
    answers = any(block.get("type") == "tool_result" for block in entries(content))
    return row["type"] == "user" and not (
        answers or row.get("isMeta") or row.get("isCompactSummary") or surrounding(words(content))
    )


def _blocks(content: list[Row]) -> Iterator[Text | Thinking | Call]:
    for block in content:
        match block.get("type"):
            case "text":
                yield Text(str(block.get("text", "")))
            case "thinking":
                yield Thinking(str(block.get("thinking", "")))
            case "redacted_thinking":
                yield Thinking("", redacted="withheld")
            case "tool_use" | "server_tool_use":
                yield Call(
                    str(block.get("id", "")), str(block.get("name", "")), entry(block.get("input"))
                )
            case _:
                continue


def _usage(given: dict[str, Any]) -> Usage:
    read, written = (
        number(given.get("cache_read_input_tokens")),
        number(given.get("cache_creation_input_tokens")),
    )
    return Usage(
        input_tokens=number(given.get("input_tokens")) + read + written,
        output_tokens=number(given.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
