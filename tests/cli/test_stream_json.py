"""stream-json: lines that the parser of another client reads, of built and of real sessions."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.conftest import Stage

from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._cli.output.json_output import encode_line
from mudroom._core.budgets import Limit, LimitState
from mudroom._core.events import (
    AnyEvent,
    Delta,
    MessageSent,
    ModelCallRetried,
    NoteInjected,
    PermissionDecided,
    RunStarted,
    ToolCallFinished,
    TurnFinished,
)
from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._core.runs import InboxMessage, Reason, Report
from mudroom._core.tools import ToolResult
from mudroom._projections.stream_json import StreamJson
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_finished,
    turn_started,
)

USAGE = Usage(input_tokens=100, output_tokens=20, cache_read_tokens=30, cache_write_tokens=10)
Lines = list[dict[str, Any]]


def finish_turn(
    run: str, *content: TextBlock | ThinkingBlock | ToolCallBlock, stop: StopReason = StopReason.END
) -> TurnFinished:
    message = AssistantMessage(content, stop, USAGE, "m-1", "openai", "msg_1")
    return TurnFinished(at=2.0, run=run, turn=1, seconds=1.5, message=message)


def make_events(reason: Reason = Reason.GOAL) -> tuple[list[AnyEvent], Report]:
    task, read = tool_call("c1", "task", prompt="x"), tool_call("c2", file_path="a")
    malformed = ToolCallBlock("c3", "read", {}, malformed="{nope")
    thoughts = (ThinkingBlock("hm", "sig"), ThinkingBlock("", redacted="xx"))
    child = run_finished(
        "1.1.1", Reason.MAX_TURNS, text="seen", recovered=True, usage=USAGE, at=4.5
    )
    error = "" if reason is Reason.GOAL else "boom"
    root = run_finished("1", reason, text="the end", error=error, usage=USAGE + USAGE, at=5.0)
    report = replace(root.report, turns=2, seconds=4.0)
    return [
        run_started("1", agent="main", at=1.0),
        turn_started("1", at=1.0),
        Delta(at=1.0, run="1", turn=1, kind="text", text="I"),
        finish_turn("1", *thoughts, TextBlock("I delegate"), task, stop=StopReason.CALLS),
        run_started("1.1.1", "1", call_id="c1", description="look", at=2.0),
        ModelCallRetried(
            at=2.0, run="1.1.1", turn=1, attempt=1, delay=0.5, status=529, error="overloaded"
        ),
        finish_turn("1.1.1", read, malformed, stop=StopReason.CALLS),
        tool_call_finished("1.1.1", "c2", "mud"),
        tool_call_finished("1.1.1", "c3", "bad arguments", error=True),
        NoteInjected(at=3.0, run="1.1.1", turn=1, text="hurry up"),
        replace(child, report=replace(child.report, turns=2, files_read=("a",))),
        tool_call_finished("1", "c1", "seen", name="task", at=5.0),
        finish_turn("1", TextBlock("the end")),
        replace(root, report=report),
    ], report


def list_output_lines(
    reason: Reason = Reason.GOAL, limit: LimitState | None = None, **changes: Any
) -> Lines:
    counter = itertools.count()
    stream = StreamJson(
        session="s",
        cwd="/w",
        model="openai:m",
        tools=["read", "task"],
        agents=["explore"],
        new_id=lambda: f"u{next(counter)}",
    )
    events, root = make_events(reason)
    output = [
        stream.make_init_line(),
        *(line for event in events for line in stream.make_event_lines(event)),
        stream.make_result_line(replace(root, limit=limit, **changes), {"children": 1}),
    ]
    return [json.loads(encode_line(line)) for line in output]


def make_lines(events: Sequence[AnyEvent]) -> Lines:
    fold = StreamJson(session="s", cwd="/w", model="m", tools=(), agents=())
    return [line for event in events for line in fold.make_event_lines(event)]


def select(lines: Lines, subtype: str) -> Lines:
    return [line for line in lines if line.get("subtype") == subtype]


def test_every_line_is_read_by_the_parser_of_another_client() -> None:
    from claude_agent_sdk import types as sdk  # Its import takes two seconds.
    from claude_agent_sdk._internal.message_parser import parse_message

    failed = parse_message(list_output_lines(Reason.MAX_TURNS)[-1])
    assert isinstance(failed, sdk.ResultMessage) and failed.result == "the end"
    kinds = [type(parse_message(line)) for line in list_output_lines()]
    assert kinds[0] is sdk.SystemMessage and kinds[-1] is sdk.ResultMessage
    assert {
        sdk.AssistantMessage,
        sdk.UserMessage,
        sdk.TaskStartedMessage,
        sdk.TaskProgressMessage,
        sdk.TaskNotificationMessage,
    } < set(kinds)


def test_each_line_has_the_session_an_id_and_its_run() -> None:
    output = list_output_lines()
    assert (output[0]["type"], output[0]["subtype"], output[0]["cwd"]) == ("system", "init", "/w")
    assert [line["type"] for line in output].count("result") == 1 and output[-1]["type"] == "result"
    assert {line["session_id"] for line in output} == {"s"}
    assert len({line["uuid"] for line in output}) == len(output)
    talk = [line for line in output if line["type"] in ("assistant", "user")]
    root = [line for line in talk if line["parent_tool_use_id"] is None]
    child = [line for line in talk if line["parent_tool_use_id"] == "c1"]
    assert len(root) + len(child) == len(talk) and root and child
    names = ("agent_id", "parent_agent_id", "spawn_depth", "agent_type")
    assert {tuple(line[name] for name in names) for line in child} == {("1.1.1", "1", 1, "explore")}
    assert all("agent_id" not in line for line in root)


def test_messages_are_raw_messages_with_usage_that_excludes_the_cache() -> None:
    output = list_output_lines()
    first, second, *_ = [line["message"] for line in output if line["type"] == "assistant"]
    assert [block["type"] for block in first["content"]] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
    ]
    assert first["usage"]["input_tokens"] == 60 and first["usage"]["cache_read_input_tokens"] == 30
    assert (first["id"], first["model"], first["stop_reason"]) == ("msg_1", "m-1", "tool_use")
    assert second["content"][1]["input"] == {"INVALID_JSON": "{nope"}
    (retry,) = select(output, "api_retry")
    assert (retry["attempt"], retry["retry_delay_ms"], retry["error_status"]) == (1, 500, 529)
    users = [line for line in output if line["type"] == "user"]
    blocks: Lines = [block for line in users for block in line["message"]["content"]]
    failed = {"tool_use_id": "c3", "content": "bad arguments", "is_error": True}
    assert {"type": "tool_result", **failed} in blocks
    assert {"type": "text", "text": "hurry up"} in blocks


def test_a_child_has_lines_for_its_start_progress_and_end() -> None:
    tasks = [line for line in list_output_lines() if line.get("subtype", "").startswith("task_")]
    kinds = [line["subtype"].removeprefix("task_") for line in tasks]
    assert kinds == ["started", "progress", "progress", "notification"]
    assert all((line["task_id"], line["tool_use_id"]) == ("1.1.1", "c1") for line in tasks)
    assert tasks[1]["last_tool_name"] == "read"
    assert tasks[2]["usage"] == {"total_tokens": 120, "tool_uses": 2, "duration_ms": 1000}
    end = tasks[3]
    assert (end["status"], end["reason"], end["summary"]) == ("failed", "MAX_TURNS", "seen")


def test_the_result_has_the_fields_that_scripts_read() -> None:
    last = list_output_lines()[-1]
    assert (last["subtype"], last["is_error"], last["result"]) == ("success", False, "the end")
    assert (last["num_turns"], last["duration_ms"], last["duration_api_ms"]) == (2, 4000, 4500)
    assert last["usage"]["output_tokens"] == 40, "the main loop only"
    assert last["modelUsage"]["m-1"]["outputTokens"] == 60, "children included"
    assert (last["total_cost_usd"], last["permission_denials"]) == (None, [])
    assert (last["reason"], last["ledger"]) == ("GOAL", {"children": 1})
    (child,) = last["reports"]
    fields = ("run_id", "reason", "recovered", "files_read", "failed")
    assert [child[name] for name in fields] == ["1.1.1", "MAX_TURNS", True, ["a"], 0]


def test_the_result_lists_every_denied_call() -> None:
    from claude_agent_sdk import ResultMessage
    from claude_agent_sdk._internal.message_parser import parse_message

    events, report = make_events()
    why = {"verdict": "deny", "policy_reason": "a rule says deny", "rule": "r"}
    denied = PermissionDecided(
        at=2.5, run="1.1.1", turn=1, call_id="c2", name="read", allowed=False, **why
    )
    asked = PermissionDecided(
        at=2.5, run="1", turn=1, call_id="c1", name="task", verdict="ask", allowed=True
    )
    stream = StreamJson(
        session="s", cwd="/w", model="m", tools=[], agents=[], sandbox="full", mode="plan"
    )
    for event in [*events[:7], denied, asked, *events[7:]]:
        list(stream.make_event_lines(event))
    first = stream.make_init_line()
    assert (first["permissionMode"], first["sandbox"]) == ("plan", "full")
    last = stream.make_result_line(report, {})
    (denial,) = last["permission_denials"]
    fields = ("tool_name", "tool_use_id", "tool_input", "why", "rule", "agent_id")
    expected = ("read", "c2", {"file_path": "a"}, "a rule says deny", "r", "1.1.1")
    assert tuple(denial[name] for name in fields) == expected
    parsed = parse_message(last)
    assert isinstance(parsed, ResultMessage) and parsed.permission_denials == [denial]


@pytest.mark.parametrize(
    ("limit", "subtype"),
    [
        (Limit.USD, "error_max_budget_usd"),
        (Limit.TOTAL_TOKENS, "error_max_tokens"),
        (Limit.INPUT_TOKENS, "error_max_tokens"),
        (Limit.OUTPUT_TOKENS, "error_max_tokens"),
    ],
)
def test_the_subtype_names_the_limit(limit: Limit, subtype: str) -> None:
    last = list_output_lines(Reason.BUDGET, LimitState(limit, 5, 6))[-1]
    assert (last["subtype"], last["reason"]) == (subtype, "BUDGET")
    assert last["report"]["limit"] == {"limit": limit.value, "most": 5, "spent": 6}


def test_a_failure_has_errors_and_its_exact_reason() -> None:
    lines = {reason: list_output_lines(reason)[-1] for reason in Reason}
    subtypes = {reason: line["subtype"] for reason, line in lines.items()}
    assert subtypes[Reason.MAX_TURNS] == "error_max_turns"
    assert subtypes[Reason.BUDGET] == "error_max_budget_usd"
    assert subtypes[Reason.ERROR] == subtypes[Reason.CANCELLED] == "error_during_execution"
    line = lines[Reason.ERROR]
    assert line["is_error"] and line["errors"] == ["boom"]
    assert line["result"] == line["report"]["text"] == "the end"


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("text", ["the part that was done", ""])
def test_what_was_done_is_beside_the_errors(reason: Reason, text: str) -> None:
    line = list_output_lines(reason, text=text)[-1]
    assert ("errors" in line) == (reason is not Reason.GOAL)
    assert ("result" in line) == bool(text or reason is Reason.GOAL)
    assert line.get("result", "") == text


def test_invalid_unicode_does_not_break_the_line() -> None:
    assert encode_line({"a": "x\ud800y\n"}) == b'{"a":"x?y\\n"}\n'


def test_the_price_of_a_model_is_that_of_each_of_its_requests() -> None:
    """Some models cost more for each token of a long request."""

    def compute_cost(model: str, usage: Usage) -> float:
        assert model == "openai:m"
        return usage.input_tokens * (2.0 if usage.input_tokens > 150 else 1.0)

    fold = StreamJson(session="s", cwd="/w", model="m", tools=(), agents=(), cost=compute_cost)
    answer = finish_turn("1", TextBlock("Done."))
    start = run_started("1")
    brief = replace(start.brief, model="openai:m")
    for event in (replace(start, brief=brief), answer, answer):
        list(fold.make_event_lines(event))
    report = run_finished("1").report
    line = fold.make_result_line(report, {})
    (use,) = line["modelUsage"].values()
    assert (use["outputTokens"], use["costUSD"]) == (2 * USAGE.output_tokens, 200.0)


def test_the_end_of_a_background_command_names_its_output() -> None:
    bash = tool_call("t2", "bash", command="make", background=True)
    started = ToolResult("Started", detail={"command": "1.1.2", "background": True})
    end = InboxMessage("1.1.2#end", "<status>failed</status>", "1.1.2", "notification")
    lines = make_lines(
        [
            run_started("1"),
            finish_turn("1", bash),
            ToolCallFinished(at=3, run="1", call_id="t2", name="bash", result=started),
            MessageSent(at=4, run="1", message=end, result=ToolResult("", True, spill="/s/1.txt")),
        ]
    )
    (start,) = select(lines, "task_started")
    assert (start["task_id"], start["task_type"]) == ("1.1.2", "local_bash")
    (end_line,) = select(lines, "task_notification")
    assert (end_line["task_id"], end_line["status"]) == ("1.1.2", "failed")
    assert end_line["output_file"] == "/s/1.txt"


def test_a_run_that_a_message_begins_is_in_the_background() -> None:
    child = run_started("1.1.1~2", "1", name="alice", message_ids=("1.1.2.1.1",))
    (line,) = select(make_lines([run_started("1"), child]), "task_started")
    assert (line["task_id"], line["is_backgrounded"]) == ("1.1.1~2", True)


def check_pairs(lines: Lines, tasks: set[str]) -> None:
    """Check that each task has one start and, after it, one end."""
    for task in tasks:
        own = [line["subtype"] for line in lines if line.get("task_id") == task]
        assert (own[0], own[-1]) == ("task_started", "task_notification"), task
        assert own.count("task_started") == own.count("task_notification") == 1, task
    assert {line["task_id"] for line in select(lines, "task_started")} == tasks


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_each_child_and_command_has_one_start_and_one_end(stage: Stage) -> None:
    go = asyncio.Event()

    async def wait_for_go(_: Request) -> Answer:
        await go.wait()
        return "detached and done"

    def parent(request: Request) -> Answer:
        if request.turn == 0:
            return [
                call("task", prompt="DETACHED"),
                call("task", prompt="OUTER", background=True),
                call("task", prompt="ALICE", name="alice", description="look"),
            ]
        if request.turn == 1:
            go.set()
            sending = call("send_message", to="alice", message="And the window?")
            return [sending, call("bash", command="sleep 600", background=True)]
        return "the end"

    script = {
        "PARENT": [parent],
        "DETACHED": [wait_for_go],
        "OUTER": [[call("task", prompt="INNER")], "outer done"],
        "INNER": ["inner done"],
        "ALICE": ["the door", "the window"],
    }
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: "1.1.3" in stage.reports and "1.1.2" in stage.reports)
        assert session.runs.detach("1.1.1")
        report = await running
    assert report.ok and report.stopped_commands
    lines = make_lines(stage.events)
    check_pairs(lines, {*stage.runs[1:], "1.2.2"})
    detached = [each for each in lines if each.get("task_id") == "1.1.1"]
    assert [line.get("is_backgrounded") for line in detached] == [False, None, True]
    assert detached[1]["patch"] == {"is_backgrounded": True}
    assert [line["task_id"] for line in select(lines, "task_updated")] == ["1.1.1"]
    ends = {line["task_id"]: line for line in select(lines, "task_notification")}
    in_background = {task for task, line in ends.items() if line.get("is_backgrounded")}
    assert in_background == {"1.1.1", "1.1.2", "1.2.1"}
    start = next(each for each in select(lines, "task_started") if each["task_id"] == "1.2.2")
    end = ends["1.2.2"]
    assert (end["status"], end["tool_use_id"]) == ("stopped", start["tool_use_id"])


async def test_the_lines_of_a_named_child_have_its_name(stage: Stage) -> None:
    script = {
        "PARENT": [[call("task", prompt="ALICE", name="alice", description="look")], "the end"],
        "ALICE": [[call("todo", todos=[])], "the door"],
    }
    await stage.run(script)
    start = next(e for e in stage.events if isinstance(e, RunStarted) and e.run != "1")
    lines = make_lines([*stage.events, start])
    check_pairs(lines, {"1.1.1"})  # also if a start is recorded twice
    for subtype in ("task_started", "task_progress"):
        (line,) = select(lines, subtype)
        assert (line["name"], line["description"]) == ("alice", "alice: look")
    assert select(lines, "task_notification")[0]["name"] == "alice"
