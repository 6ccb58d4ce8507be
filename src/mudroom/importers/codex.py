"""Codex's logs: `rollout-*.jsonl`, one a thread; a child's names its parent's id."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, cast

from .._core.events import StoredEvent
from .._core.messages import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from ..errors import UsageError
from ._jsonl import (
    Row,
    as_count,
    as_object,
    as_objects,
    extract_text,
    find_log,
    is_injected_text,
    parse_arguments,
    parse_time,
    read_rows,
)
from ._run_builder import RunBuilder, build_session

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


def read_codex_log(path: Path) -> tuple[str, list[StoredEvent]]:
    """A session's id, and its events.

    Arguments:
        path: a rollout file, or a folder; of a folder the newest that is no child is taken. Children are looked for beside it.

    Raises UsageError when it is no such log.
    """
    path = find_log(path, lambda found: bool(_meta(found)) and not _parent(_meta(found)), "Codex's")
    meta = _meta(path)
    if not meta:
        raise UsageError("this is no session log of Codex's", where=str(path))
    reader = _Reader(
        {
            file: found
            for file in sorted(path.parent.glob("*.jsonl"))
            if _parent(found := _meta(file))
        }
    )
    reader.thread(path, meta, None)
    return build_session(
        str(meta.get("id") or path.stem),
        str(meta.get("cwd", "")),
        f"Codex {meta.get('cli_version', '')}",
        reader.runs,
    )


class _Reader:
    """Reads threads, each child's after its parent's."""

    def __init__(self, children: dict[Path, Row]) -> None:
        self.runs: list[RunBuilder] = []
        self._children = children

    def thread(self, path: Path, meta: Row, child: RunBuilder | None) -> None:
        """One file: of the first thread every prompt begins a root run, a child is one run."""
        run, threads, kept = child, list[RunBuilder](), list[RunBuilder]()
        for row in read_rows(path):
            payload, now = as_object(row.get("payload")), parse_time(row, run.at if run else 0.0)
            prompt = (
                extract_text(payload.get("content"))
                if payload.get("type") == "message" and payload.get("role") == "user"
                else ""
            )
            begins = bool(prompt) and not is_injected_text(prompt)
            if begins and child and not child.prompt:
                child.prompt = prompt
            elif begins and child is None:
                before = kept[-1].run_id if kept else ""
                run = RunBuilder(
                    str(len(threads) + 1),
                    prompt,
                    now,
                    continues=before,
                    instructions=_instructions(meta),
                )
                for place in (self.runs, threads, kept):
                    place.append(run)
            elif payload.get("type") == "thread_rolled_back":
                del kept[max(0, len(kept) - as_count(payload.get("num_turns"))) :]
            elif run:
                _item(run, row, payload, now)
        for thread in [child] if child else threads:
            self._below(thread, str(meta.get("id", "")))

    def _below(self, parent: RunBuilder, thread: str) -> None:
        for path, meta in list(self._children.items()):
            name = str(meta.get("id", ""))
            call = next(
                (call_id for call_id, text in parent.results.items() if name and name in text), ""
            )
            if _parent(meta) != thread or not call:
                continue
            del self._children[path]
            turn = next(
                turn for turn in parent.turns if any(each.id == call for each in turn.calls)
            )
            place = next(place for place, each in enumerate(turn.calls, 1) if each.id == call)
            self.thread(
                path,
                meta,
                self._child(
                    parent, meta, call, f"{parent.run_id}.{turn.number}.{place}", turn.finished_at
                ),
            )

    def _child(
        self, parent: RunBuilder, meta: Row, call: str, run_id: str, began: float
    ) -> RunBuilder:
        spawn = _spawn(meta)
        run = RunBuilder(
            run_id,
            "",
            max(began, parse_time(meta, began)),
            agent=str(spawn.get("agent_role") or spawn.get("agent_nickname") or "agent"),
            description=str(spawn.get("agent_nickname") or ""),
            instructions=_instructions(meta),
            parent=parent.run_id,
            call_id=call,
            depth=run_id.count(".") // 2,
        )
        self.runs.append(run)
        return run


def _item(run: RunBuilder, row: Row, payload: Row, now: float) -> None:
    kind = str(payload.get("type", ""))
    if row.get("type") == "turn_context":
        run.model = run.model or str(payload.get("model", ""))
    elif kind == "token_count":
        if run.turns and (
            last := as_object(as_object(payload.get("info")).get("last_token_usage"))
        ):
            run.turns[-1].usage = _usage(last)
    elif row.get("type") != "response_item":
        return
    elif kind == "message" and payload.get("role") == "assistant":
        run.add_answer(now, [TextBlock(extract_text(payload.get("content")))])
    elif kind == "message":
        text = extract_text(payload.get("content"))
        run.add_note(
            now,
            text,
            "engine" if payload.get("role") != "user" or is_injected_text(text) else "person",
        )
    elif kind == "reasoning":
        run.add_answer(
            now,
            [
                ThinkingBlock(
                    extract_text(payload.get("summary")),
                    redacted="" if as_objects(payload.get("summary")) else "withheld",
                )
            ],
        )
    elif kind in _CALLS:
        run.add_answer(now, [_call(kind, payload)])
    elif kind.endswith("_call_output"):
        text, error = _output(payload.get("output"))
        run.add_result(now, str(payload.get("call_id")), text, error=error)


def _call(kind: str, payload: Row) -> ToolCallBlock:
    call_id = str(payload.get("call_id") or payload.get("id") or "")
    if kind == "custom_tool_call":
        return ToolCallBlock(
            call_id, str(payload.get("name", "")), {"input": str(payload.get("input", ""))}
        )
    given, malformed = parse_arguments(
        as_object(payload.get("action")) if kind == "local_shell_call" else payload.get("arguments")
    )
    command = given.get("command")
    if isinstance(command, list):
        argv = [str(word) for word in cast(list[Any], command)]
        given = {
            **given,
            "command": argv[2]
            if argv[1:2] in (["-lc"], ["-c"]) and len(argv) == 3
            else shlex.join(argv),
        }
    return ToolCallBlock(call_id, str(payload.get("name") or "shell"), given, malformed)


def _output(output: Any) -> tuple[str, bool]:
    """Text and whether it failed: plain, an object, or the JSON of one."""
    given, plain = parse_arguments(output)
    if plain or not given.keys() & {"output", "content"}:
        return extract_text(output) if isinstance(output, str | list) else str(output), False
    text = extract_text(given.get("output", given.get("content")))
    return text, given.get("success") is False or bool(
        as_object(given.get("metadata")).get("exit_code")
    )


def _usage(given: Row) -> Usage:
    return Usage(
        input_tokens=as_count(given.get("input_tokens")),
        output_tokens=as_count(given.get("output_tokens")),
        cache_read_tokens=as_count(given.get("cached_input_tokens")),
        reasoning_tokens=as_count(given.get("reasoning_output_tokens")),
    )


def _meta(path: Path) -> Row:
    for row in read_rows(path):
        return (
            {"timestamp": row.get("timestamp"), **as_object(row.get("payload"))}
            if row.get("type") == "session_meta"
            else {}
        )
    return {}


def _spawn(meta: Row) -> Row:
    return as_object(as_object(as_object(meta.get("source")).get("subagent")).get("thread_spawn"))


def _parent(meta: Row) -> str:
    return str(_spawn(meta).get("parent_thread_id") or "")


def _instructions(meta: Row) -> str:
    found = meta.get("base_instructions") or meta.get("instructions")
    return str(as_object(found).get("text", "")) or (found if isinstance(found, str) else "")
