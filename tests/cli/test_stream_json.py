"""stream-json: every line is valid for the parser of another client."""

import itertools
import json
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom._cli.output.json_output import encode_line
from mudroom._core.agents import Agent
from mudroom._core.budgets import Budget, Limit, LimitState
from mudroom._core.events import (
    AnyEvent,
    Delta,
    MessageSent,
    ModelCallRetried,
    NoteInjected,
    PermissionDecided,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    TurnFinished,
    TurnStarted,
)
from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._core.runs import Brief, InboxMessage, Reason, Report
from mudroom._core.tools import ToolResult
from mudroom._projections.stream_json import StreamJson

USAGE = Usage(input_tokens=100, output_tokens=20, cache_read_tokens=30, cache_write_tokens=10)


def make_brief(run_id: str, **more: Any) -> Brief:
    agent = Agent(name="explore" if more else "main")
    return Brief(
        run_id=run_id,
        agent=agent,
        prompt=f"prompt of {run_id}",
        tools=("read",),
        model="openai:m",
        budget=Budget(),
        **more,
    )


def finish_turn(
    run: str, *content: TextBlock | ThinkingBlock | ToolCallBlock, stop: StopReason = StopReason.END
) -> TurnFinished:
    return TurnFinished(
        at=2.0,
        run=run,
        turn=1,
        seconds=1.5,
        message=AssistantMessage(content, stop, USAGE, "m-1", "openai", "msg_1"),
    )


def make_events(reason: Reason = Reason.GOAL) -> tuple[list[AnyEvent], Report]:
    task, read = (
        ToolCallBlock("c1", "task", {"prompt": "x"}),
        ToolCallBlock("c2", "read", {"file_path": "a"}),
    )
    child = Report(
        outputs=dict[str, Any](),
        text="seen",
        reason=Reason.MAX_TURNS,
        recovered=True,
        run_id="1.1.1",
        usage=USAGE,
        turns=2,
        agent="explore",
        files_read=("a",),
    )
    root = Report(
        outputs=dict[str, Any](),
        text="the end",
        reason=reason,
        run_id="1",
        usage=USAGE + USAGE,
        turns=2,
        seconds=4.0,
        error="" if reason is Reason.GOAL else "boom",
    )
    return [
        RunStarted(at=1.0, run="1", brief=make_brief("1")),
        TurnStarted(at=1.0, run="1", turn=1),
        Delta(at=1.0, run="1", turn=1, kind="text", text="I"),
        finish_turn(
            "1",
            ThinkingBlock("hm", "sig"),
            ThinkingBlock("", redacted="xx"),
            TextBlock("I delegate"),
            task,
            stop=StopReason.CALLS,
        ),
        RunStarted(
            at=2.0,
            run="1.1.1",
            brief=make_brief("1.1.1", parent="1", call_id="c1", depth=1, description="look"),
        ),
        ModelCallRetried(
            at=2.0, run="1.1.1", turn=1, attempt=1, delay=0.5, status=529, error="overloaded"
        ),
        finish_turn(
            "1.1.1", read, ToolCallBlock("c3", "read", {}, malformed="{nope"), stop=StopReason.CALLS
        ),
        ToolCallFinished(
            at=3.0, run="1.1.1", turn=1, call_id="c2", name="read", result=ToolResult("mud")
        ),
        ToolCallFinished(
            at=3.0,
            run="1.1.1",
            turn=1,
            call_id="c3",
            name="read",
            result=ToolResult("bad arguments", error=True),
        ),
        NoteInjected(at=3.0, run="1.1.1", turn=1, text="hurry up"),
        RunFinished(at=4.5, run="1.1.1", report=child),
        ToolCallFinished(
            at=5.0, run="1", turn=1, call_id="c1", name="task", result=ToolResult("seen")
        ),
        finish_turn("1", TextBlock("the end")),
        RunFinished(at=5.0, run="1", report=root),
    ], root


def list_output_lines(
    reason: Reason = Reason.GOAL, limit: LimitState | None = None, **changes: Any
) -> list[dict[str, Any]]:
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


def test_init_is_first_and_result_last_and_all_carry_session_and_uuid() -> None:
    output = list_output_lines()
    assert (output[0]["type"], output[0]["subtype"], output[0]["cwd"]) == ("system", "init", "/w")
    assert [line["type"] for line in output].count("result") == 1 and output[-1]["type"] == "result"
    assert {line["session_id"] for line in output} == {"s"}
    assert len({line["uuid"] for line in output}) == len(output)


def test_parent_tool_use_id_is_null_for_the_root_and_the_task_call_for_a_child() -> None:
    talk = [line for line in list_output_lines() if line["type"] in ("assistant", "user")]
    root, child = (
        [t for t in talk if t["parent_tool_use_id"] is None],
        [t for t in talk if t["parent_tool_use_id"] == "c1"],
    )
    assert len(root) + len(child) == len(talk) and root and child
    assert all(
        (t["agent_id"], t["parent_agent_id"], t["spawn_depth"], t["agent_type"])
        == ("1.1.1", "1", 1, "explore")
        for t in child
    )
    assert all("agent_id" not in t for t in root)


def test_messages_are_raw_messages_with_usage_that_excludes_the_cache() -> None:
    first = next(line for line in list_output_lines() if line["type"] == "assistant")["message"]
    assert [block["type"] for block in first["content"]] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
    ]
    assert first["usage"]["input_tokens"] == 60 and first["usage"]["cache_read_input_tokens"] == 30
    assert (first["id"], first["model"], first["stop_reason"]) == ("msg_1", "m-1", "tool_use")


def test_arguments_that_are_not_json_are_passed_on_unchanged() -> None:
    second = [line for line in list_output_lines() if line["type"] == "assistant"][1]["message"]
    assert second["content"][1]["input"] == {"INVALID_JSON": "{nope"}


def test_a_child_has_lines_for_its_start_progress_and_end() -> None:
    tasks = [line for line in list_output_lines() if line.get("subtype", "").startswith("task_")]
    assert [t["subtype"] for t in tasks] == [
        "task_started",
        "task_progress",
        "task_progress",
        "task_notification",
    ]
    assert all((t["task_id"], t["tool_use_id"]) == ("1.1.1", "c1") for t in tasks)
    assert (tasks[1]["last_tool_name"], tasks[2]["usage"]) == (
        "read",
        {"total_tokens": 120, "tool_uses": 2, "duration_ms": 1000},
    )
    assert (tasks[3]["status"], tasks[3]["reason"], tasks[3]["summary"]) == (
        "failed",
        "MAX_TURNS",
        "seen",
    )


def test_errors_retries_and_notes_of_the_engine_are_lines_too() -> None:
    output = list_output_lines()
    retry = next(line for line in output if line.get("subtype") == "api_retry")
    assert (retry["attempt"], retry["retry_delay_ms"], retry["error_status"]) == (1, 500, 529)
    blocks = [
        block for line in output if line["type"] == "user" for block in line["message"]["content"]
    ]
    assert {
        "type": "tool_result",
        "tool_use_id": "c3",
        "content": "bad arguments",
        "is_error": True,
    } in blocks
    assert {"type": "text", "text": "hurry up"} in blocks


def test_the_result_has_the_fields_that_scripts_read() -> None:
    last = list_output_lines()[-1]
    assert (
        last["subtype"],
        last["is_error"],
        last["result"],
        last["num_turns"],
        last["duration_ms"],
    ) == (
        "success",
        False,
        "the end",
        2,
        4000,
    )
    assert last["usage"]["output_tokens"] == 40, "the main loop only"
    assert last["modelUsage"]["m-1"]["outputTokens"] == 60, "children included"
    assert (
        last["total_cost_usd"] is None
        and last["permission_denials"] == []
        and last["duration_api_ms"] == 4500
    )
    assert (last["reason"], last["ledger"]) == ("GOAL", {"children": 1})
    assert [
        (r["run_id"], r["reason"], r["recovered"], r["files_read"], r["failed"])
        for r in last["reports"]
    ] == [("1.1.1", "MAX_TURNS", True, ["a"], 0)]


def test_the_result_lists_every_denied_call() -> None:
    from claude_agent_sdk import ResultMessage
    from claude_agent_sdk._internal.message_parser import parse_message

    events, report = make_events()
    denied = PermissionDecided(
        at=2.5,
        run="1.1.1",
        turn=1,
        call_id="c2",
        name="read",
        verdict="deny",
        allowed=False,
        policy_reason="a rule says deny",
        rule="r",
    )
    asked = PermissionDecided(
        at=2.5, run="1", turn=1, call_id="c1", name="task", verdict="ask", allowed=True
    )
    stream = StreamJson(
        session="s", cwd="/w", model="m", tools=[], agents=[], sandbox="full", mode="plan"
    )
    texts = [
        line
        for event in [*events[:7], denied, asked, *events[7:]]
        for line in stream.make_event_lines(event)
    ]
    assert (
        stream.make_init_line()["permissionMode"] == "plan"
        and stream.make_init_line()["sandbox"] == "full"
    )
    last = stream.make_result_line(report, {})
    (denial,) = last["permission_denials"]
    assert (denial["tool_name"], denial["tool_use_id"], denial["tool_input"]) == (
        "read",
        "c2",
        {"file_path": "a"},
    )
    assert (denial["why"], denial["rule"], denial["agent_id"]) == ("a rule says deny", "r", "1.1.1")
    parsed = parse_message(last)
    assert isinstance(parsed, ResultMessage) and parsed.permission_denials == [denial] and texts


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
    subtypes = {reason: (line := list_output_lines(reason)[-1])["subtype"] for reason in Reason}
    assert (
        subtypes[Reason.MAX_TURNS] == "error_max_turns"
        and subtypes[Reason.BUDGET] == "error_max_budget_usd"
    )
    assert subtypes[Reason.ERROR] == subtypes[Reason.CANCELLED] == "error_during_execution"
    assert (
        line["errors"] == ["boom"]
        and line["is_error"]
        and line["result"] == line["report"]["text"] == "the end"
    )


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
    for event in (RunStarted(at=0, run="1", brief=make_brief("1")), answer, answer):
        list(fold.make_event_lines(event))
    outputs: dict[str, Any] = {}
    report = Report(text="Done.", reason=Reason.GOAL, run_id="1", outputs=outputs)
    line = fold.make_result_line(report, {})
    (use,) = line["modelUsage"].values()
    assert (use["outputTokens"], use["costUSD"]) == (2 * USAGE.output_tokens, 200.0)


def list_system_lines(events: list[AnyEvent], subtype: str) -> list[dict[str, Any]]:
    """Return the system lines of events with a subtype."""
    fold = StreamJson(session="s", cwd="/w", model="m", tools=(), agents=())
    lines = [line for event in events for line in fold.make_event_lines(event)]
    return [line for line in lines if line.get("subtype") == subtype]


def test_a_background_child_and_a_background_command_have_one_start_and_one_end() -> None:
    task = ToolCallBlock("t1", "task", {"prompt": "Look.", "background": True})
    bash = ToolCallBlock("t2", "bash", {"command": "make", "background": True})
    started = ToolResult("Started", detail={"command": "1.1.2", "background": True})
    end = InboxMessage("1.1.2#end", "<status>failed</status>", "1.1.2", "notification")
    child = make_brief("1.1.1", parent="1", call_id="t1", depth=1)
    outputs: dict[str, Any] = {}
    report = Report(text="done", reason=Reason.GOAL, run_id="1.1.1", outputs=outputs)
    events: list[AnyEvent] = [
        RunStarted(at=0, run="1", brief=make_brief("1")),
        TurnFinished(at=1, run="1", turn=1, message=AssistantMessage((task, bash))),
        RunStarted(at=2, run="1.1.1", brief=child),
        ToolCallFinished(at=3, run="1", call_id="t2", name="bash", result=started),
        MessageSent(at=4, run="1", message=end, result=ToolResult("", True, spill="/s/1.txt")),
        RunFinished(at=5, run="1.1.1", report=report),
        MessageSent(at=6, run="1", message=InboxMessage("1.1.1#end", "x", "1.1.1")),
    ]
    starts = list_system_lines(events, "task_started")
    assert [(line["task_id"], line["task_type"]) for line in starts] == [
        ("1.1.1", "local_agent"),
        ("1.1.2", "local_bash"),
    ]
    assert all(line["is_backgrounded"] for line in starts)
    ends = list_system_lines(events, "task_notification")
    assert [(line["task_id"], line["status"]) for line in ends] == [
        ("1.1.2", "failed"),
        ("1.1.1", "completed"),
    ]
    assert ends[0]["output_file"] == "/s/1.txt"


def test_a_run_that_a_message_begins_is_in_the_background() -> None:
    child = make_brief("1.1.1~2", parent="1", depth=1, name="alice", message_ids=("1.1.2.1.1",))
    events: list[AnyEvent] = [
        RunStarted(at=0, run="1", brief=make_brief("1")),
        RunStarted(at=1, run="1.1.1~2", brief=child),
    ]
    (line,) = list_system_lines(events, "task_started")
    assert (line["task_id"], line["is_backgrounded"]) == ("1.1.1~2", True)
