"""Importer of Codex's logs: `rollout-*.jsonl`, one per thread; a child names its parent's id."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from .._core.events import StoredEvent
from .._core.messages import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from .._core.run_ids import join_run_id
from ..errors import UsageError
from ..projections.web_searches import read_responses_search
from ._jsonl import (
    Row,
    extract_text,
    find_log,
    is_injected_text,
    parse_arguments,
    parse_time,
    read_rows,
    to_count,
    to_object,
    to_objects,
)
from ._run_builder import RunBuilder, build_session

_CALL_TYPES = ("function_call", "custom_tool_call", "local_shell_call")


def read_codex_log(path: Path) -> tuple[str, list[StoredEvent]]:
    """Return the id and the events of a session.

    Reads the logs of children in the same folder.

    Arguments:
        path: a rollout file, or a folder; then the newest rollout that is not a child is read.

    Raises UsageError when it is not a session log.
    """
    path = find_log(path, _is_root_thread, "Codex")
    meta = _read_meta(path)
    if not meta:
        raise UsageError("this is no session log of Codex", where=str(path))
    children: dict[Path, Row] = {}
    for file in sorted(path.parent.glob("*.jsonl")):
        child_meta = _read_meta(file)
        if _read_parent_thread(child_meta):
            children[file] = child_meta
    reader = _Reader(children)
    reader.read_root_thread(path, meta)
    return build_session(
        str(meta.get("id") or path.stem),
        str(meta.get("cwd", "")),
        f"Codex {meta.get('cli_version', '')}",
        reader.runs,
    )


class _Reader:
    """Reader of threads; the threads of children follow that of their parent."""

    def __init__(self, children: dict[Path, Row]) -> None:
        self.runs: list[RunBuilder] = []
        self._children = children

    def read_root_thread(self, path: Path, meta: Row) -> None:
        """Read the first thread: each prompt of the user starts a root run."""
        run: RunBuilder | None = None
        roots: list[RunBuilder] = []
        # Root runs that no rollback has removed from the conversation.
        current: list[RunBuilder] = []
        for row in _read_thread(path):
            payload = to_object(row.get("payload"))
            at = parse_time(row, run.last_at if run else 0.0)
            if prompt := _read_prompt(payload):
                run = RunBuilder(
                    str(len(roots) + 1),
                    prompt,
                    at,
                    continues=current[-1].run_id if current else "",
                    instructions=_read_instructions(meta),
                )
                self.runs.append(run)
                roots.append(run)
                current.append(run)
            elif payload.get("type") == "thread_rolled_back":
                kept = len(current) - to_count(payload.get("num_turns"))
                del current[max(0, kept) :]
            elif run:
                _add_item(run, row, payload, at)
        for root in roots:
            self._read_children(root, _read_thread_id(meta))

    def _read_child_thread(self, path: Path, meta: Row, run: RunBuilder) -> None:
        for row in _read_thread(path):
            payload = to_object(row.get("payload"))
            prompt = _read_prompt(payload)
            if prompt and not run.prompt:
                run.prompt = prompt
            elif payload.get("type") != "thread_rolled_back":
                _add_item(run, row, payload, parse_time(row, run.last_at))
        self._read_children(run, _read_thread_id(meta))

    def _read_children(self, parent: RunBuilder, thread: str) -> None:
        """Read the children whose id is in a result of the parent."""
        for path, meta in list(self._children.items()):
            call_id = _find_spawning_call(parent, _read_thread_id(meta))
            if _read_parent_thread(meta) != thread or not call_id:
                continue
            del self._children[path]
            self._read_child_thread(path, meta, self._add_child(parent, meta, call_id))

    def _add_child(self, parent: RunBuilder, meta: Row, call_id: str) -> RunBuilder:
        turn, position = next(
            (turn, position)
            for turn in parent.turns
            for position, call in enumerate(turn.calls, 1)
            if call.id == call_id
        )
        run_id = join_run_id(parent.run_id, turn.number, position)
        spawn = _read_spawn_info(meta)
        nickname = spawn.get("agent_nickname")
        run = RunBuilder(
            run_id,
            "",
            max(turn.finished_at, parse_time(meta, turn.finished_at)),
            agent=str(spawn.get("agent_role") or nickname or "agent"),
            description=str(nickname or ""),
            instructions=_read_instructions(meta),
            parent=parent.run_id,
            call_id=call_id,
        )
        self.runs.append(run)
        return run


def _find_spawning_call(parent: RunBuilder, thread: str) -> str:
    """Return the id of the call whose result contains a thread's id, "" if there is none."""
    if not thread:
        return ""
    return next((call_id for call_id, text in parent.results.items() if thread in text), "")


def _read_prompt(payload: Row) -> str:
    """Return the text of a prompt that the user wrote, "" for any other entry."""
    if payload.get("type") != "message" or payload.get("role") != "user":
        return ""
    text = extract_text(payload.get("content"))
    return "" if is_injected_text(text) else text


def _add_item(run: RunBuilder, row: Row, payload: Row, at: float) -> None:
    kind = str(payload.get("type", ""))
    if row.get("type") == "turn_context":
        run.model = run.model or str(payload.get("model", ""))
    elif kind == "token_count":
        counts = to_object(to_object(payload.get("info")).get("last_token_usage"))
        if counts:
            run.set_usage(_to_usage(counts))
    elif row.get("type") == "response_item":
        _add_response_item(run, payload, kind, at)


def _add_response_item(run: RunBuilder, payload: Row, kind: str, at: float) -> None:
    if kind == "message":
        text = extract_text(payload.get("content"))
        if payload.get("role") == "assistant":
            run.add_answer(at, [TextBlock(text)])
        else:
            is_typed = payload.get("role") == "user" and not is_injected_text(text)
            run.add_note(at, text, "user" if is_typed else "engine")
    elif kind == "reasoning":
        summary = payload.get("summary")
        redacted = "" if to_objects(summary) else "withheld"
        run.add_answer(at, [ThinkingBlock(extract_text(summary), redacted=redacted)])
    elif kind == "web_search_call":
        run.add_answer(at, [read_responses_search(payload)])
    elif kind in _CALL_TYPES:
        run.add_answer(at, [_to_call(kind, payload)])
    elif kind.endswith("_call_output"):
        text, error = _parse_output(payload.get("output"))
        run.add_result(at, str(payload.get("call_id")), text, error=error)


def _to_call(kind: str, payload: Row) -> ToolCallBlock:
    call_id = str(payload.get("call_id") or payload.get("id") or "")
    if kind == "custom_tool_call":
        arguments = {"input": str(payload.get("input", ""))}
        return ToolCallBlock(call_id, str(payload.get("name", "")), arguments)
    raw = payload.get("arguments")
    if kind == "local_shell_call":
        raw = to_object(payload.get("action"))
    arguments, malformed = parse_arguments(raw)
    command = arguments.get("command")
    if isinstance(command, list):
        arguments = {**arguments, "command": _join_command(cast(list[Any], command))}
    return ToolCallBlock(call_id, str(payload.get("name") or "shell"), arguments, malformed)


def _join_command(command: list[Any]) -> str:
    """Return an argument list as one command line, without the shell that runs it."""
    argv = [str(word) for word in command]
    if len(argv) == 3 and argv[1] in ("-lc", "-c"):
        return argv[2]
    return shlex.join(argv)


def _parse_output(output: object) -> tuple[str, bool]:
    """Return the text of an output and whether the call failed.

    The output is a text, an object, or an object as JSON.
    """
    fields, raw = parse_arguments(output)
    if raw or not fields.keys() & {"output", "content"}:
        if isinstance(output, str | list):
            return extract_text(cast(object, output)), False
        return raw or str(fields), False
    text = extract_text(fields.get("output", fields.get("content")))
    exit_code = to_object(fields.get("metadata")).get("exit_code")
    return text, fields.get("success") is False or bool(exit_code)


def _to_usage(counts: Row) -> Usage:
    return Usage(
        input_tokens=to_count(counts.get("input_tokens")),
        output_tokens=to_count(counts.get("output_tokens")),
        cache_read_tokens=to_count(counts.get("cached_input_tokens")),
        reasoning_tokens=to_count(counts.get("reasoning_output_tokens")),
    )


def _read_thread(path: Path) -> Iterator[Row]:
    """Yield the rows of a thread, without token counts that only repeat the one before them."""
    last_info: object = None
    for row in read_rows(path):
        payload = to_object(row.get("payload"))
        if payload.get("type") == "token_count":
            if payload.get("info") == last_info:
                continue
            last_info = payload.get("info")
        yield row


def _read_meta(path: Path) -> Row:
    """Return the metadata in the first row of a log, {} if there is none."""
    for row in read_rows(path):
        if row.get("type") != "session_meta":
            return {}
        return {"timestamp": row.get("timestamp"), **to_object(row.get("payload"))}
    return {}


def _is_root_thread(path: Path) -> bool:
    meta = _read_meta(path)
    return bool(meta) and not _read_parent_thread(meta)


def _read_thread_id(meta: Row) -> str:
    return str(meta.get("id", ""))


def _read_spawn_info(meta: Row) -> Row:
    subagent = to_object(to_object(meta.get("source")).get("subagent"))
    return to_object(subagent.get("thread_spawn"))


def _read_parent_thread(meta: Row) -> str:
    return str(_read_spawn_info(meta).get("parent_thread_id") or "")


def _read_instructions(meta: Row) -> str:
    instructions = meta.get("base_instructions") or meta.get("instructions")
    if isinstance(instructions, str):
        return instructions
    return str(to_object(instructions).get("text", ""))
