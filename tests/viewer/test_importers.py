"""Tests of the importers of other programs' logs."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mudroom._core.events import (
    NoteInjected,
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    TurnFinished,
)
from mudroom._core.messages import ProviderBlock
from mudroom._core.runs import Reason
from mudroom.cli.output.transcript_lines import render_transcript
from mudroom.errors import UsageError
from mudroom.importers import read_claude_log, read_codex_log
from mudroom.projections.ledger import Ledger
from mudroom.projections.run_tree import RunTree
from mudroom.projections.run_view import RunState
from mudroom.projections.transcript import build_transcript

Row = dict[str, Any]


def write(path: Path, rows: Iterable[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def fold_events(events: list[StoredEvent]) -> RunTree:
    tree = RunTree()
    for event in events:
        tree.apply(event)
    return tree


class Lines:
    """Lines of Claude Code's, a second apart."""

    def __init__(self, **common: Any) -> None:
        self.rows: list[Row] = []
        self.common = {
            "sessionId": "c0ffee",
            "cwd": "/home/someone/garden",
            "version": "2.1.0",
            **common,
        }

    def add(self, kind: str, content: Any, at: int, **more: Any) -> "Lines":
        message = {"role": kind, "content": content} | more.pop("message", {})
        stamp = f"2026-09-01T10:00:{at:02}.000Z"
        row = {
            "type": kind,
            "uuid": f"u{len(self.rows)}",
            "timestamp": stamp,
            "message": message,
            **self.common,
            **more,
        }
        self.rows.append(row)
        return self

    def says(self, at: int, *blocks: Row, name: str = "m1", **usage: Any) -> "Lines":
        used = {
            "input_tokens": 10,
            "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 0,
            "output_tokens": 7,
        } | usage
        for block in blocks:  # one line a block, as they are written
            self.add(
                "assistant",
                [block],
                at,
                message={"id": name, "model": "claude-sonnet-4-5", "usage": used},
            )
        return self

    def result(self, at: int, call: str, text: Any, **more: Any) -> "Lines":
        error = more.pop("is_error", False)
        return self.add(
            "user",
            [{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": error}],
            at,
            **more,
        )


def use(call: str, name: str, **arguments: Any) -> Row:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def make_text_block(text: str) -> Row:
    return {"type": "text", "text": text}


def make_child_lines(prompt: str, agent: str, *, side: bool = True) -> list[Row]:
    lines = Lines(isSidechain=side, agentId=agent)
    lines.add("user", prompt, 3).says(4, use("r1", "Read", file_path="a.py"), name=f"{agent}1")
    lines.result(5, "r1", "1\timport pytest\n" * 40).says(
        6, make_text_block("It uses pytest."), name=f"{agent}2"
    )
    return lines.rows


def make_parent_lines() -> Lines:
    lines = Lines()
    asked = use("t1", "Task", prompt="Look.", subagent_type="Explore", description="look")
    lines.add("user", "Which testing framework?", 0).add(
        "user", "<system-reminder>be kind</system-reminder>", 0, isMeta=True
    )
    lines.says(1, {"type": "thinking", "thinking": "Hm."}, make_text_block("I ask a child."), asked)
    lines.result(
        8,
        "t1",
        [make_text_block("It uses pytest.")],
        toolUseResult={"agentId": "a1", "status": "completed"},
    )
    lines.says(9, make_text_block("pytest."), name="m2").add("user", "Thanks. And the version?", 20)
    return lines.says(21, use("b1", "Bash", command="pytest --version"), name="m3").result(
        22, "b1", "boom", is_error=True
    )


@pytest.mark.parametrize("layout", ["folder", "described", "same file", "by its prompt"])
def test_a_claude_session_with_a_child_is_read(tmp_path: Path, layout: str) -> None:
    rows = make_parent_lines().rows
    file = tmp_path / "c0ffee.jsonl"
    folder = tmp_path / "c0ffee" / "subagents"
    if layout == "same file":
        rows += make_child_lines("Look.", "a1")
    else:
        write(folder / "agent-a1.jsonl", make_child_lines("Look.", "a1"))
    if layout != "folder":
        rows = [
            {key: value for key, value in row.items() if key != "toolUseResult"} for row in rows
        ]
    if layout == "described":
        write(folder / "agent-a1.meta.json", [{"toolUseId": "t1", "agentType": "Explore"}])
    write(file, [{"type": "summary", "summary": "x"}, *rows])
    session, events = read_claude_log(file)
    tree = fold_events(events)
    assert (
        session == "c0ffee"
        and list(tree.runs) == ["1", "1.1.1", "2"]
        and tree.runs["2"].continues == "1"
    )
    child = tree.runs["1.1.1"]
    assert (child.parent, child.call_id, child.agent, child.description, child.state) == (
        "1",
        "t1",
        "Explore",
        "look",
        RunState.DONE,
    )
    assert child.report and child.report.text == "It uses pytest." and child.tool_call_count == 1
    assert (
        tree.runs["1"].turn == 2
        and tree.runs["1"].usage.input_tokens == 200
        and tree.runs["1"].usage.output_tokens == 14
    )
    assert tree.runs["2"].failed_calls == 1
    assert Ledger.from_events(events).children == 1 and Ledger.from_events(events).read_lines == 40


def test_the_log_of_a_claude_child_opens_without_its_parent(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c0ffee" / "subagents" / "agent-a1.jsonl", make_child_lines("Look.", "a1")
    )
    write(path.with_name("agent-a2.jsonl"), make_child_lines("Look elsewhere.", "a2"))
    session, events = read_claude_log(path)
    tree = fold_events(events)
    assert session == "c0ffee" and list(tree.runs) == ["1"]
    run = tree.runs["1"]
    assert (run.prompt, run.state, run.turn) == ("Look.", RunState.DONE, 2)
    report = next(event.report for event in events if isinstance(event, RunFinished))
    assert report.text == "It uses pytest."
    assert any(isinstance(event, ToolCallFinished) for event in events)


def test_each_claude_call_has_one_result_and_each_turn_its_blocks(tmp_path: Path) -> None:
    _, events = read_claude_log(write(tmp_path / "s.jsonl", make_parent_lines().rows))
    assert [event.at for event in events] == sorted(event.at for event in events)
    first = next(event for event in events if isinstance(event, TurnFinished))
    assert [type(block).__name__ for block in first.message.content] == [
        "ThinkingBlock",
        "TextBlock",
        "ToolCallBlock",
    ]
    assert [event.name for event in events if isinstance(event, ToolCallFinished)] == [
        "task",
        "bash",
    ]
    assert [event.origin for event in events if isinstance(event, NoteInjected)] == ["engine"]
    assert len(build_transcript(events, "1")) == 4


def test_a_damaged_log_is_read_as_far_as_possible(tmp_path: Path) -> None:
    file = write(
        tmp_path / "s.jsonl",
        [
            *make_parent_lines().rows,
            {"type": "user"},
            {"type": "assistant", "message": 7},
            {"type": "progress"},
        ],
    )
    with file.open("a") as log:
        log.write('[1]\nnull\n"x"\n{"type": "assistant", "mess')
    assert list(fold_events(read_claude_log(file)[1]).runs) == ["1", "2"]


def chain_lines(*lines: tuple[str, str | None, str, Any]) -> list[Row]:
    """Lines as (uuid, parentUuid, "user" or "assistant", content).

    Another kind is a line of the program's own.
    """
    rows: list[Row] = []
    for n, (uuid, parent, kind, content) in enumerate(lines):
        message = {"role": kind, "content": content} | (
            {"id": f"m-{uuid}"} if kind == "assistant" else {}
        )
        stamp = f"2026-09-01T10:00:{n:02}.000Z"
        rows.append(
            {
                "type": kind,
                "uuid": uuid,
                "parentUuid": parent,
                "timestamp": stamp,
                "sessionId": "c0ffee",
                "message": message,
            }
        )
    return rows


def test_a_prompt_after_going_back_continues_the_earlier_run(tmp_path: Path) -> None:
    rows = chain_lines(
        ("a", None, "user", "One."),
        ("b", "a", "assistant", [make_text_block("First.")]),
        ("c", "b", "user", "Two, a mistake."),
        ("d", "c", "assistant", [make_text_block("Wrong way."), use("t1", "Task", prompt="Look.")]),
        ("f", "b", "user", "Two, better."),
        ("e", "d", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "too late"}]),
        ("x", "f", "attachment", "a line of another kind"),
        ("g", "x", "assistant", [make_text_block("Right way.")]),
        ("h", "g", "user", "Three."),
    )
    tree = fold_events(read_claude_log(write(tmp_path / "s.jsonl", rows))[1])
    assert {run.run_id: (run.prompt, run.continues) for run in tree.walk()} == {
        "1": ("One.", ""),
        "2": ("Two, a mistake.", "1"),
        "3": ("Two, better.", "1"),
        "4": ("Three.", "3"),
    }
    assert (
        tree.runs["3"].report
        and tree.runs["3"].report.text == "Right way."
        and tree.runs["2"].tool_call_count == 1
    )


def test_parallel_calls_and_a_compaction_do_not_count_as_going_back(tmp_path: Path) -> None:
    rows = chain_lines(
        ("a", None, "user", "One."),
        ("b", "a", "assistant", [use("t1", "Bash", command="ls")]),
        ("c", "b", "assistant", [use("t2", "Bash", command="pwd")]),
        ("d", "b", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]),
        ("e", "c", "user", [{"type": "tool_result", "tool_use_id": "t2", "content": "y"}]),
        ("f", "e", "assistant", [make_text_block("Done.")]),
        ("g", None, "system", ""),
        ("h", "g", "user", "Two."),
    )
    rows[6] |= {
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "logicalParentUuid": "f",
    }
    tree = fold_events(read_claude_log(write(tmp_path / "s.jsonl", rows))[1])
    assert (
        list(tree.runs) == ["1", "2"]
        and tree.runs["2"].continues == "1"
        and tree.runs["1"].tool_call_count == 2
    )


def make_codex_rows(**meta: Any) -> list[Row]:
    def row(at: int, kind: str, payload: Row) -> Row:
        return {"timestamp": f"2026-09-01T10:00:{at:02}.000Z", "type": kind, "payload": payload}

    def item(at: int, kind: str, **payload: Any) -> Row:
        return row(at, "response_item", {"type": kind, **payload})

    def message(at: int, role: str, text: str) -> Row:
        return item(
            at,
            "message",
            role=role,
            content=[
                {"type": "output_text" if role == "assistant" else "input_text", "text": text}
            ],
        )

    used = {
        "input_tokens": 500,
        "cached_input_tokens": 400,
        "output_tokens": 20,
        "reasoning_output_tokens": 5,
    }
    return [
        row(
            0,
            "session_meta",
            {
                "id": "parent-id",
                "cwd": "/garden",
                "cli_version": "0.99.0",
                "instructions": "Be brief.",
            }
            | meta,
        ),
        message(0, "user", "<environment_context>linux</environment_context>"),
        message(0, "user", "Which testing framework?"),
        row(0, "turn_context", {"model": "gpt-5-codex"}),
        item(2, "reasoning", summary=[{"type": "summary_text", "text": "Look first."}]),
        item(
            3,
            "function_call",
            name="shell",
            arguments='{"command": ["bash", "-lc", "ls tests"]}',
            call_id="c1",
        ),
        item(3, "function_call", name="shell", arguments="{broken", call_id="c2"),
        row(3, "event_msg", {"type": "token_count", "info": {"last_token_usage": used}}),
        item(
            4,
            "function_call_output",
            call_id="c1",
            output='{"output": "test_a.py", "metadata": {"exit_code": 2}}',
        ),
        item(4, "function_call_output", call_id="c2", output="no such thing"),
        item(
            5,
            "function_call",
            name="spawn_agent",
            arguments='{"message": "Look deeper."}',
            call_id="c3",
        ),
        item(6, "function_call_output", call_id="c3", output='{"agent_id": "child-id"}'),
        message(9, "assistant", "pytest."),
    ]


def test_a_codex_session_with_a_child_is_read(tmp_path: Path) -> None:
    spawn = {
        "subagent": {
            "thread_spawn": {"parent_thread_id": "parent-id", "depth": 1, "agent_role": "explorer"}
        }
    }
    write(tmp_path / "rollout-2-child.jsonl", make_codex_rows(id="child-id", source=spawn))
    write(tmp_path / "rollout-1-parent.jsonl", make_codex_rows())
    session, events = read_codex_log(tmp_path)
    tree = fold_events(events)
    assert session == "parent-id" and list(tree.runs) == ["1", "1.2.1"]
    root = tree.runs["1"]
    child = tree.runs["1.2.1"]
    assert (
        root.model == "gpt-5-codex"
        and root.usage.input_tokens == 500
        and root.usage.cache_read_tokens == 400
    )
    assert (child.agent, child.parent, child.call_id, child.prompt) == (
        "explorer",
        "1",
        "c3",
        "Which testing framework?",
    )
    calls = [
        block
        for event in events
        if isinstance(event, TurnFinished) and event.run == "1"
        for block in event.message.tool_calls
    ]
    assert calls[0].arguments["command"] == "ls tests" and calls[1].malformed == "{broken"
    ended = [event for event in events if isinstance(event, ToolCallFinished) and event.run == "1"]
    assert [(event.name, event.result.error) for event in ended] == [
        ("bash", True),
        ("bash", False),
        ("task", False),
    ]
    assert (
        next(event for event in events if isinstance(event, RunStarted)).brief.agent.instructions
        == "Be brief."
    )
    last = [event for event in events if isinstance(event, RunFinished)][-1]
    assert last.report.text == "pytest." and last.report.reason is Reason.GOAL


@pytest.mark.parametrize("counts_first", [True, False])
def test_codex_tokens_belong_to_their_answer_in_either_order(
    tmp_path: Path, *, counts_first: bool
) -> None:
    """Codex 0.40 writes the tokens of an answer before its items, later versions after them."""
    total = 0

    def count(tokens: int) -> Row:
        nonlocal total
        total += tokens
        used = {"input_tokens": tokens, "output_tokens": 1}
        info = {"total_token_usage": {"input_tokens": total}, "last_token_usage": used}
        return event("token_count", info=info, rate_limits=None)

    def event(kind: str, **payload: Any) -> Row:
        return row("event_msg", {"type": kind, **payload})

    def item(kind: str, **payload: Any) -> Row:
        return row("response_item", {"type": kind, **payload})

    def row(kind: str, payload: Row) -> Row:
        return {"timestamp": "2025-09-24T10:00:00.000Z", "type": kind, "payload": payload}

    def message(role: str, text: str) -> Row:
        return item("message", role=role, content=[{"type": "text", "text": text}])

    def answer(tokens: int, *items: Row) -> list[Row]:
        counted = count(tokens)
        return [counted, *items] if counts_first else [*items, counted]

    def call(name: str) -> list[Row]:
        reasoning = item("reasoning", summary=[], encrypted_content="x")
        used = item("function_call", name="shell", arguments='{"command": ["ls"]}', call_id=name)
        return [reasoning, used]

    def result(name: str) -> Row:
        return item("function_call_output", call_id=name, output='{"output": "a.py"}')

    rows = [
        row("session_meta", {"id": "t", "cwd": "/garden", "cli_version": "0.40.0"}),
        event("token_count", info=None),
        message("user", "List."),
        row("turn_context", {"model": "gpt-5-codex"}),
        *answer(100, *call("c1")),
        result("c1"),
        *answer(200, *call("c2")),
        result("c2"),
        *answer(300, message("assistant", "One file.")),
        message("user", "Thanks."),
        *answer(400, message("assistant", "Good.")),
    ]
    repeated = [again for row in rows for again in ([row] * (1 + ("info" in row["payload"])))]
    for logged in (rows, repeated):
        path = write(tmp_path / "rollout-1.jsonl", logged)
        answers = [e for e in read_codex_log(path)[1] if isinstance(e, TurnFinished)]
        assert [e.message.usage.input_tokens for e in answers] == [100, 200, 300, 400]


def test_a_codex_prompt_after_a_rollback_continues_the_remaining_run(tmp_path: Path) -> None:
    one = make_codex_rows()[:3]
    two = make_codex_rows()[2:]
    back = {
        "timestamp": "2026-09-01T10:00:20.000Z",
        "type": "event_msg",
        "payload": {"type": "thread_rolled_back", "num_turns": 2},
    }
    tree = fold_events(
        read_codex_log(write(tmp_path / "rollout-1.jsonl", [*one, *two, *two, back, *two]))[1]
    )
    assert {run.run_id: run.continues for run in tree.walk()} == {
        "1": "",
        "2": "1",
        "3": "2",
        "4": "1",
    }


@pytest.mark.parametrize("read", [read_claude_log, read_codex_log])
def test_a_file_that_is_no_log_is_a_usage_error(tmp_path: Path, read: Any) -> None:
    with pytest.raises(UsageError, match="this is no session log"):
        read(write(tmp_path / "x.jsonl", [{"a": 1}]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no session log of"):
        read(tmp_path / "empty")


def get_provider_texts(events: list[StoredEvent]) -> list[str]:
    return [
        block.text
        for event in events
        if isinstance(event, TurnFinished)
        for block in event.message.content
        if isinstance(block, ProviderBlock)
    ]


def test_steps_of_claude_servers_are_shown(tmp_path: Path) -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search"}
    page = {"type": "web_search_result", "title": "On Mud", "url": "https://mud.example/"}
    fetch = {"type": "server_tool_use", "id": "s2", "name": "code_execution"}
    output = {"type": "code_execution_result", "stdout": "7"}
    lines = Lines()
    lines.add("user", "How deep is mud?", 0).says(
        1,
        search | {"input": {"query": "depth of mud"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [page]},
        fetch | {"input": {"code": "3 + 4"}},
        {"type": "code_execution_tool_result", "tool_use_id": "s2", "content": output},
        make_text_block("Deep."),
        server_tool_use={"web_search_requests": 1},
    )
    _, events = read_claude_log(write(tmp_path / "c0ffee.jsonl", lines.rows))
    assert get_provider_texts(events) == [
        "searched the web: depth of mud",
        "found:\nOn Mud https://mud.example/",
        'code_execution: {"code":"3 + 4"}',
        'result: {"type":"code_execution_result","stdout":"7"}',
    ]
    (report,) = [event.report for event in events if isinstance(event, RunFinished)]
    assert (report.text, report.usage.searches) == ("Deep.", 1)
    assert "searched the web: depth of mud" in render_transcript(events, "1")


def test_searches_of_codex_are_shown(tmp_path: Path) -> None:
    action = {"type": "search", "query": "depth of mud"}
    payload = {"type": "web_search_call", "status": "completed", "action": action}
    rows = make_codex_rows()
    search = rows[-1] | {"payload": payload}
    _, events = read_codex_log(write(tmp_path / "rollout.jsonl", [*rows[:-1], search, rows[-1]]))
    assert get_provider_texts(events) == ["searched the web: depth of mud"]
