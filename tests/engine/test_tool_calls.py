"""Tool calls of one answer: parallel where that is safe, errors as results for the model."""

from __future__ import annotations

import asyncio
import os
from operator import attrgetter
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.engine.conftest import Stage, block_texts

from mudroom import ApprovalDecision, ApprovalRequest, Budget, Effect, Tool, ToolCallBlock, tool
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._engine.tool_calls import ALL_FAILED, OUTPUT_CAP
from mudroom.events import ToolCallStarted
from mudroom.testing.clock import run_virtual


def make_meeting_tool(of: int, effect: Effect) -> Tool:
    """Return a tool whose calls end when `of` calls of it run at the same time."""
    barrier = asyncio.Barrier(of)

    @tool(effect=effect)
    async def meet(where: str) -> str:
        async with asyncio.timeout(60):
            await barrier.wait()
        return where

    return replace(meet, get_key=attrgetter("where")) if effect is Effect.KEYED else meet


async def test_keyed_calls_with_different_keys_run_at_the_same_time(stage: Stage) -> None:
    await stage.run(
        [[call("meet", where="a"), call("meet", where="b")], "end"],
        tools=[make_meeting_tool(2, Effect.KEYED)],
    )
    assert [result.error for result in stage.results] == [False] * 2


@pytest.mark.parametrize("name", ["reading", "*", "parallel 1", "task board"])
async def test_a_file_of_any_name_is_changed_by_one_call_at_a_time(stage: Stage, name: str) -> None:
    working: list[str] = []
    beside: set[tuple[str, ...]] = set()

    @tool(effect=Effect.KEYED)
    async def change(where: str) -> str:
        working.append(where)
        beside.add(tuple(sorted(working)))
        for _ in range(20):
            await asyncio.sleep(0)
        working.remove(where)
        return ""

    tools = [replace(change, get_key=attrgetter("where"))]
    await stage.run(
        [[call("change", where=each) for each in (name, name, "a")], "end"], tools=tools
    )
    assert beside == {(name,), tuple(sorted((name, "a")))}


async def test_effectful_calls_run_at_the_same_time_only_beside_others_that_may(
    stage: Stage,
) -> None:
    done: list[str] = []
    barrier = asyncio.Barrier(2)

    @tool
    async def meet(where: str) -> str:
        async with asyncio.timeout(60):
            await barrier.wait()
        done.append("meet")
        return where

    @tool
    async def work_alone(steps: int) -> str:
        for _ in range(steps):
            await asyncio.sleep(0)
        done.append("alone")
        return ""

    calls = [
        call("work_alone", steps=20),
        call("meet", where="a"),
        call("meet", where="b"),
        call("work_alone", steps=0),
    ]
    tools = [replace(meet, is_parallel=True), work_alone]
    await stage.run([calls, "end"], tools=tools)
    assert done == ["alone", "meet", "meet", "alone"]


async def test_results_are_sent_in_the_order_of_the_calls(stage: Stage) -> None:
    ends = [asyncio.Event() for _ in range(4)]
    ends[3].set()

    @tool(effect=Effect.PURE)
    async def last_first(n: int) -> str:
        await ends[n].wait()
        if n:
            ends[n - 1].set()
        return f"result {n}"

    await stage.run([[call("last_first", n=n) for n in range(4)], "end"], tools=[last_first])
    assert [result.text for result in stage.results] == [
        "result 3",
        "result 2",
        "result 1",
        "result 0",
    ]
    assert [result.text for result in stage.model.requests[-1].results] == [
        "result 0",
        "result 1",
        "result 2",
        "result 3",
    ]


@tool(effect=Effect.PURE)
async def broken() -> str:
    """Raise an exception."""
    raise RuntimeError("a spring came loose")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (call("raed", path="notes.txt"), ["no tool 'raed'", "Did you mean read"]),
        (call("compile"), ["no tool 'compile'", "Known: bash"]),
        (
            ToolCallBlock("", "read", {}, malformed='{"file_path": "no'),
            ["read were not a JSON object", "valid JSON"],
        ),
        (call("read", wrong=3), ["Invalid arguments for read", "file_path"]),
        (call("read", path="notes.txt", limit="many"), ["Invalid arguments for read", "limit"]),
        (call("read", path="nowhere.txt"), ["nowhere.txt"]),
        (call("read", path="../../etc/passwd"), ["outside"]),
        (call("broken"), ["broken failed", "RuntimeError", "a spring came loose"]),
        (call("task", prompt="  "), ["prompt: empty"]),
        (call("task", prompt="x", max_turns=0), ["max_turns"]),
    ],
    ids=lambda value: value.name if isinstance(value, ToolCallBlock) else "",
)
async def test_a_faulty_call_gets_an_error_result_and_the_run_continues(
    stage: Stage, wrong: ToolCallBlock, words: list[str]
) -> None:
    report = await stage.run([[wrong], "I go on."], tools=[broken])
    (result,) = stage.model.requests[-1].results
    assert result.error and all(word in result.text for word in words), result.text
    assert (report.text, report.failed) == ("I go on.", 1)


async def test_the_model_gets_a_note_when_all_calls_of_a_turn_failed(stage: Stage) -> None:
    await stage.run(
        [
            [call("read", path="no"), call("nothing")],
            [call("read", path="no"), call("read", path="notes.txt")],
            "end",
        ]
    )
    assert stage.list_notes() == [ALL_FAILED]
    assert block_texts(stage.model.requests[1].messages[-1])[-1] == ALL_FAILED


async def test_refused_calls_are_not_counted_as_evidence(stage: Stage) -> None:
    report = await stage.run([[call("read", wrong=1), call("nothing")], "end"])
    assert (report.calls, report.failed) == ({}, 2)


async def test_long_output_is_cut_and_the_whole_text_can_be_read(stage: Stage) -> None:
    @tool(effect=Effect.PURE)
    async def flood() -> str:
        return "".join(f"line {n:05} of the flood\n" for n in range(10_000))

    def read_the_rest(request: Request) -> Answer:
        path = request.results[0].text.partition("the whole is in ")[2].partition(":")[0]
        return [call("read", path=path, offset=5_001, limit=1)]

    await stage.run({"PARENT": [[call("flood")], read_the_rest, "end"]}, tools=[flood])
    capped, read = stage.results
    assert (
        len(capped.text) <= OUTPUT_CAP
        and "line 00000" in capped.text
        and "line 09999" in capped.text
        and "line 05000" not in capped.text
    )
    assert "line 05000 of the flood" in read.text and not read.error
    assert Path(capped.spill).read_text().count("\n") == 10_000
    assert os.stat(capped.spill).st_mode & 0o777 == 0o600


class SlowApprover:
    """Approver that decides after one hour."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.asked: list[ApprovalRequest] = []

    async def decide(self, question: ApprovalRequest) -> ApprovalDecision:
        self.asked.append(question)
        await asyncio.sleep(3600)
        return ApprovalDecision(self.allowed, "" if self.allowed else "not on a Friday")


@tool(needs_confirmation=True)
async def deploy(where: str) -> str:
    """Deploy something."""
    return f"deployed to {where}"


async def test_confirmation_is_denied_when_no_user_is_present(stage: Stage) -> None:
    report = await stage.run([[call("deploy", where="moon")], "end"], tools=[deploy])
    assert (
        stage.results[0].error
        and "no user is present" in stage.results[0].text
        and report.calls == {}
    )


@pytest.mark.parametrize("allowed", [True, False])
def test_time_waiting_for_the_approver_does_not_count(stage: Stage, allowed: bool) -> None:
    person = SlowApprover(allowed)
    story = [[call("deploy", where="moon")], "end"]
    report = run_virtual(
        stage.run(story, tools=[deploy], approver=person, budget=Budget(seconds=60))
    )
    assert report.reason == "GOAL" and report.seconds < 60
    assert person.asked[0].tool == "deploy" and person.asked[0].arguments == {"where": "moon"}
    assert (
        stage.results[0].text == "deployed to moon"
        if allowed
        else "not on a Friday" in stage.results[0].text
    )


async def test_the_start_of_a_call_has_the_title_and_the_view_of_its_tool(stage: Stage) -> None:
    calls = [
        call("read_file", path="notes.txt", limit=1),
        call("grep", path=".", pattern="one\n\x1b[2J"),
        call("deploy", where="moon"),
        call("no_such_tool", number=1, where="here"),
    ]
    await stage.run({"PARENT": [calls, "end"]}, tools=[deploy])
    started = {event.call.name: event for event in stage.select(ToolCallStarted)}
    assert {name: (event.title, event.view) for name, event in started.items()} == {
        "read_file": ("notes.txt", "lines"),
        "grep": ("one", ""),
        "deploy": ("moon", ""),
        "no_such_tool": ("here", ""),
    }
    assert started["read_file"].call.arguments == {"file_path": "notes.txt", "limit": 1}
