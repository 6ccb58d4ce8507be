"""Values that no record and no request can hold: they become clean values or clear errors."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.conftest import Stage

from mudroom import (
    AssistantMessage,
    Effect,
    Integrations,
    Reason,
    Report,
    Tool,
    ToolResult,
)
from mudroom._adapters.models._errors import extract_error_text
from mudroom._adapters.models.scripted import Answer, Request, Script, call
from mudroom._core.events import (
    MessageDelivered,
    ToolCallFinished,
    TurnFinished,
    decode_event,
    encode_event,
)
from mudroom._core.json_values import MAX_DEPTH, clean_json, clean_text, find_json_fault
from mudroom._core.messages import TextBlock, ThinkingBlock, ToolCallBlock
from mudroom._core.ports import Hooks, ToolHookDecision
from mudroom._core.runs import Brief
from mudroom._engine.model_call import MAX_CALLS
from mudroom.errors import ModelRefused, UsageError

LONG = bool(os.environ.get("MUDROOM_LONG"))
LONE = "caf\udce9"
CLEAN = "caf\ufffd"


def make_nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels - 1):
        value = [value]
    return value


BAD_NUMBERS = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "400 digits": 10**400,
    "5,000 digits": -(10**5_000),
}
TOO_DEEP = {f"{levels} levels": make_nested(levels) for levels in (300, 900, 100_000)}
OTHER = {"object": object(), "bad keys": {1: LONE}, "set": {"a"}, "bytes": b"\xff"}
HOSTILE: dict[str, object] = {**BAD_NUMBERS, **TOO_DEEP, **OTHER}


async def run(
    stage: Stage, script: Script, *tools: Tool, hooks: Hooks | None = None, **options: Any
) -> Report:
    """Run a prompt. Its record must keep the promises and replay, its requests be JSON."""
    report = await stage.run_checked(
        script, tools=tools, integrations=Integrations(hooks=hooks), **options
    )
    for request in stage.model.requests:
        msgspec.json.encode(request.messages)
    return report


def make_tool(name: str, run: Callable[[], ToolResult]) -> Tool:
    async def run_tool(_: object, arguments: object) -> ToolResult:
        return run()

    return Tool(
        name=name,
        description="A tool.",
        parameters={"type": "object"},
        parse=dict,
        run=run_tool,
        effect=Effect.PURE,
    )


async def test_lone_surrogates_of_a_model_are_replaced(stage: Stage) -> None:
    first: list[TextBlock | ThinkingBlock | ToolCallBlock] = [
        TextBlock(LONE),
        ThinkingBlock(LONE, signature=LONE),
        ToolCallBlock(LONE, LONE, {LONE: [LONE, {LONE: LONE}]}),
        call("bash", command=f"echo {LONE}"),
        call("read", file_path=LONE),
        call("write", file_path="a.txt", content=LONE),
        ToolCallBlock("x", "read", {}, malformed=LONE),
    ]
    report = await run(stage, [first, LONE])
    assert (report.reason, report.text) == (Reason.GOAL, CLEAN)
    (answer, _) = stage.select(TurnFinished)
    assert answer.message.tool_calls[0].arguments == {CLEAN: [CLEAN, {CLEAN: CLEAN}]}
    assert any(f"There is no tool {CLEAN!r}" in result.text for result in stage.results)


@pytest.mark.parametrize("name", BAD_NUMBERS)
async def test_a_number_that_json_lacks_is_an_error_result(stage: Stage, name: str) -> None:
    report = await run(stage, [[call("read", file_path="a", limit=BAD_NUMBERS[name])], "end"])
    assert report.reason is Reason.GOAL
    assert stage.results[0].error
    assert "number" in stage.results[0].text


@pytest.mark.parametrize("name", TOO_DEEP)
async def test_arguments_that_nest_too_deeply_are_an_error_result(stage: Stage, name: str) -> None:
    value = TOO_DEEP[name]
    calls = [call("read", file_path="a", other=value), call("none", other=value)]
    report = await run(stage, [calls, "end"])
    assert report.reason is Reason.GOAL
    assert "nests deeper than 200 levels" in stage.results[0].text
    assert stage.results[1].error


async def test_an_output_that_nests_too_deeply_is_an_error_result(stage: Stage) -> None:
    name, value = "emit_variable_name", "emit_variable_value"
    answers: list[Answer] = [
        [call("self.emitvalue", **{name: "a", value: make_nested(100_000)})],
        [call("self.emitvalue", **{name: "a", value: LONE})],
    ]
    async with stage.open(answers) as session:
        report = await session.run("PARENT", outputs={"a": "a text"})
        await stage.check_record()
    assert report.reason is Reason.GOAL
    assert report.outputs == {"a": CLEAN}
    assert stage.results[0].error


async def test_too_many_calls_in_one_answer_end_the_run_with_an_error(stage: Stage) -> None:
    many = [ToolCallBlock("", "todo", {"todos": []})] * (1_000_000 if LONG else MAX_CALLS + 1)
    report = await run(stage, [many])
    assert report.reason is Reason.ERROR
    assert f"{len(many):,} tool calls; at most {MAX_CALLS:,}" in report.error


async def test_a_long_text_is_recorded(stage: Stage) -> None:
    long = "é" * (50_000_000 if LONG else 1_000_000)
    report = await run(stage, [[call("write", file_path="long.txt", content=long)], "end"])
    assert report.reason is Reason.GOAL
    assert (stage.folder / "long.txt").stat().st_size == 2 * len(long)


async def test_nul_is_kept_in_the_record_and_refused_in_paths(stage: Stage) -> None:
    calls = [call("read", file_path="a\0b"), call("bash", command="echo a\0b"), call("a\0b")]
    report = await run(stage, [["text\0", *calls], "end\0"])
    assert report.text == "end\0"
    assert [result.error for result in stage.results] == [True, True, True]


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_result_that_cannot_be_recorded_is_cleaned(stage: Stage, name: str) -> None:
    tool = make_tool(
        "hostile",
        lambda: ToolResult(
            LONE, display=LONE, detail={LONE: HOSTILE[name]}, reads=(LONE,), changes=(LONE,)
        ),
    )
    report = await run(stage, [[call("hostile")], "end"], tool)
    assert report.reason is Reason.GOAL
    [result] = stage.results
    assert (result.text, result.display, list(result.detail)) == (CLEAN, CLEAN, [CLEAN])
    assert report.files_read == (CLEAN,)
    assert not find_json_fault(result.detail)


async def test_an_exception_with_a_lone_surrogate_is_an_error_result(stage: Stage) -> None:
    def fail() -> ToolResult:
        raise ValueError(LONE)

    await run(stage, [[call("hostile")], "end"], make_tool("hostile", fail))
    assert stage.results[0].text.endswith(CLEAN)


async def test_prompts_and_messages_with_lone_surrogates_are_cleaned(stage: Stage) -> None:
    def answer(request: Request) -> Answer:
        if request.turn:
            return LONE
        assert stage.session.runs.send("1", LONE)
        return [call("todo", todos=[])]

    report = await run(stage, answer, prompt=LONE)
    assert report.text == CLEAN
    texts = [event.text for event in stage.select(MessageDelivered)]
    assert set(texts) == {CLEAN}


async def test_an_error_of_a_model_with_a_lone_surrogate_is_reported(stage: Stage) -> None:
    report = await run(stage, [ModelRefused(LONE)])
    assert (report.reason, report.error) == (Reason.ERROR, CLEAN)


class HostileHooks(Hooks):
    async def on_prompt(self, brief: Brief) -> str:
        return LONE

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        if call.id == "denied":
            return ToolHookDecision(denial=LONE)
        return ToolHookDecision(arguments={"file_path": LONE})

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        return ToolResult(LONE)

    async def before_finish(self, brief: Brief, text: str) -> str:
        return "" if text == "end" else LONE


async def test_texts_of_hooks_are_cleaned(stage: Stage) -> None:
    calls = [ToolCallBlock("denied", "glob", {"pattern": "*"}), call("read", file_path="a")]
    report = await run(stage, [calls, "almost", "end"], hooks=HostileHooks())
    assert report.text == "end"
    finished = stage.select(ToolCallFinished)
    texts = {event.call_id: event.result.text for event in finished}
    assert f"not allowed: {CLEAN}" in texts.pop("denied")
    assert list(texts.values()) == [CLEAN]


class DeepHooks(Hooks):
    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        return ToolHookDecision(arguments={"deep": make_nested(100_000)})


async def test_arguments_of_a_hook_that_cannot_be_recorded_raise_a_usage_error(
    stage: Stage,
) -> None:
    with pytest.raises(UsageError, match="a hook gave arguments that cannot be recorded"):
        await run(stage, [[call("todo", todos=[])], "end"], hooks=DeepHooks())


async def test_file_names_that_are_not_utf_8_are_readable(stage: Stage) -> None:
    (stage.folder / LONE).write_text("content")
    (stage.folder / "a.txt").write_text("content")
    calls = [call("glob", pattern="*"), call("grep", pattern="content"), call("bash", command="ls")]
    report = await run(stage, [calls, "end"])
    assert report.reason is Reason.GOAL
    assert not any(result.error for result in stage.results)


hostile_texts = st.text(st.characters(codec=None), max_size=20)
hostile_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | hostile_texts | st.binary(max_size=9),
    lambda inner: st.lists(inner) | st.dictionaries(hostile_texts, inner) | st.tuples(inner),
    max_leaves=20,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(hostile_values)
def test_a_cleaned_value_has_no_fault_and_survives_the_record(value: object) -> None:
    cleaned = clean_json(value)
    assert not find_json_fault(cleaned)
    event = ToolCallFinished(
        at=0.0, run="1", call_id="c", name="x", result=ToolResult("", detail={"value": cleaned})
    )
    assert decode_event(encode_event(event)) == event


@given(hostile_texts)
def test_a_cleaned_text_is_utf_8_and_only_surrogates_change(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode()
    assert clean_text(cleaned) == cleaned
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert cleaned == text


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hostile_values, hostile_texts)
def test_any_event_can_be_recorded_and_read(value: object, text: str) -> None:
    event = ToolCallFinished(
        at=0.0,
        run=text,
        call_id=text,
        name=text,
        result=ToolResult(text, detail={text: value}),
    )
    decode_event(encode_event(event))


def test_the_limit_of_depth_is_exact() -> None:
    assert not find_json_fault(make_nested(MAX_DEPTH))
    assert find_json_fault(make_nested(MAX_DEPTH + 1))


@pytest.mark.parametrize(
    "arguments",
    [None, [1], "text", 5, make_nested(100_000)],
    ids=["none", "list", "text", "number", "deep list"],
)
async def test_arguments_that_are_no_object_give_an_error_result(
    stage: Stage, arguments: object
) -> None:
    wrong = AssistantMessage((ToolCallBlock("c", "read", arguments),))  # pyright: ignore[reportArgumentType]
    report = await stage.run([wrong, "Done."])
    assert report.text == "Done."
    assert "not a JSON object" in stage.model.requests[1].results[0].text


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"error":' * 100_000], ids=["list", "object"])
def test_an_error_body_that_nests_too_deeply_is_a_short_text(body: bytes) -> None:
    assert len(extract_error_text(body)) < 1_000
