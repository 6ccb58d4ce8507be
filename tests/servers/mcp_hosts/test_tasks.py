"""Tasks of MCP hosts: results, progress, waits, cancels, budgets and isolation."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp.shared.exceptions import MCPError
from tests.servers.acp.trees import act, make_tree

from mudroom import Budget, Reason
from mudroom._projections.run_tree import RunTree
from mudroom.errors import ModelRefused
from mudroom.events import AnyEvent, Delta, RunFinished, TurnFinished
from mudroom.testing import Request, call
from mudroom_hosts.mcp.tool_definitions import TOOLS

from ..gate import Gate
from .conftest import ERAS, MakeHost, get_text, get_values

MAX_BYTES = 3_000
"""Of all tool definitions together: the models of hosts read them in each request."""
CALLS = 1_000 if os.environ.get("MUDROOM_LONG") else 100
"""Calls that wait at the same time."""
TREES = 200 if os.environ.get("MUDROOM_LONG") else 8


def get_schema(tool: str) -> dict[str, Any]:
    schema = next(each for each in TOOLS if each.name == tool).outputs
    assert schema
    return schema


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_returns_its_report_as_text_and_values(make_host: MakeHost, era: str) -> None:
    host = make_host(["It is about mud."])
    async with host.connect(era) as client:
        result = await client.call_tool("task", {"prompt": "What is it about?"})
    assert not result.is_error
    assert get_text(result).startswith("It is about mud.\n\n[evidence: ")
    values = get_values(result)
    jsonschema.validate(values, get_schema("task"))
    assert (values["reason"], values["report"]) == ("GOAL", "It is about mud.")
    assert values["session"] == host.sessions[0].id
    assert values["usage"]["requests"] == 1
    assert [request.prompt for request in host.model.requests] == ["What is it about?"]


async def test_the_tool_definitions_are_short(make_host: MakeHost) -> None:
    async with make_host([]).connect() as client:
        tools = (await client.list_tools()).tools
    sent = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
    assert [tool["name"] for tool in sent] == [tool.name for tool in TOOLS]
    assert len(json.dumps(sent, separators=(",", ":"))) <= MAX_BYTES
    only_read = [tool["name"] for tool in sent if tool.get("annotations", {}).get("readOnlyHint")]
    assert only_read == ["look", "agents", "task_result"]


async def test_many_tasks_run_in_parallel_up_to_the_limit(make_host: MakeHost) -> None:
    working = 0
    most = 0
    four_work = asyncio.Event()

    async def answer(request: Request) -> str:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if working == 4:
            four_work.set()
        await four_work.wait()
        await asyncio.sleep(0)
        working -= 1
        return request.prompt

    host = make_host(answer, parallel=4)
    async with host.connect() as client:
        calls = [client.call_tool("task", {"prompt": f"Say {n}."}) for n in range(CALLS)]
        results = await asyncio.gather(*calls)
        many = await client.call_tool(
            "task_many", {"tasks": [{"prompt": f"Many {n}."} for n in range(9)], "limit": 2}
        )
    reports = [get_values(result)["report"] for result in results]
    assert reports == [f"Say {n}." for n in range(CALLS)]
    assert most == 4
    values = get_values(many)
    jsonschema.validate(values, get_schema("task_many"))
    assert [each["report"] for each in values["results"]] == [f"Many {n}." for n in range(9)]
    assert get_text(many).count("[evidence: ") == 9


async def test_a_look_cannot_change_anything(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(["Nothing."])
    (tmp_path / "project" / "paper.md").write_text("Mud.")
    async with host.connect() as client:
        await client.call_tool("look", {"prompt": "Look.", "files": ["paper.md"]})
        agents = get_text(await client.call_tool("agents", {}))
        with pytest.raises(MCPError, match="Unknown tool: tusk"):
            await client.call_tool("tusk", {})
    (request,) = host.model.requests
    assert request.prompt == "Look.\n\nFiles:\n- paper.md"
    assert "read" in request.tools
    assert not {*request.tools} & {"write", "edit", "bash", "task"}
    assert agents.startswith("general: ")


@pytest.mark.parametrize("era", ERAS)
async def test_progress_rises_with_each_turn_and_while_nothing_happens(
    make_host: MakeHost, era: str
) -> None:
    released = asyncio.Event()

    async def answer(request: Request) -> Any:
        if not request.results:
            return call("glob", pattern="*")
        await released.wait()
        return "Done."

    seen: list[tuple[float, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        seen.append((progress, message))
        if len(seen) == 5:
            released.set()

    host = make_host(answer, heartbeat=0.05)
    async with host.connect(era) as client:
        await client.call_tool("task", {"prompt": "Work."}, progress_callback=report)
    values = [progress for progress, _ in seen]
    assert values == sorted(set(values))
    assert seen[0][1] == "waiting"
    assert any("0 child runs, 1 request, " in (text or "") for _, text in seen)


async def test_a_call_without_a_token_gets_no_progress(make_host: MakeHost) -> None:
    host = make_host(["Done."], heartbeat=0.01)
    async with host.connect_raw() as raw:
        await raw.call(1, "task", prompt="Work.")
        await raw.finish(1)
        assert [message for message in raw.lines if "method" in message] == []


async def test_a_host_with_a_time_limit_waits_in_steps(make_host: MakeHost) -> None:
    gate = Gate(lambda _: "Late.")
    host = make_host(gate)
    async with host.connect() as client:
        first = await client.call_tool("task", {"prompt": "Work long.", "wait": 0})
        assert not first.is_error
        assert 'task_result with {"task": "t1"}' in get_text(first)
        await gate.asked.wait()
        again = await client.call_tool("task_result", {"task": "t1", "wait": 0.01})
        assert get_values(again)["state"] == "working"
        listed = await client.call_tool("task_result", {})
        assert get_text(listed).endswith("Work long.")
        gate.opened.set()
        last = await client.call_tool("task_result", {"task": "t1"})
        assert get_values(last)["report"] == "Late."
        assert (await client.call_tool("task_result", {"task": "t1"})) == last


async def test_a_cancelled_call_ends_its_task_and_no_other(make_host: MakeHost) -> None:
    started = asyncio.Semaphore(0)
    released = asyncio.Event()

    async def answer(request: Request) -> str:
        started.release()
        await released.wait()
        return request.prompt

    host = make_host(answer)
    async with host.connect() as client:
        finished: list[RunFinished] = []
        await client.list_tools()  # the session is open then
        host.sessions[0].watch(
            lambda event: finished.append(event) if isinstance(event, RunFinished) else None
        )
        stopped = asyncio.create_task(client.call_tool("task", {"prompt": "Stop."}))
        other = asyncio.create_task(client.call_tool("task", {"prompt": "Stay."}))
        await started.acquire()
        await started.acquire()
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        result = await client.call_tool("task_result", {"task": "t1"})
        assert get_values(result)["reason"] == "CANCELLED"
        released.set()
        assert get_values(await other)["report"] == "Stay."
    assert [event.report.reason for event in finished] == [Reason.CANCELLED, Reason.GOAL]


async def test_task_cancel_returns_when_the_task_has_ended(make_host: MakeHost) -> None:
    host = make_host(wait_for_ever, parallel=1)
    async with host.connect() as client:
        await client.call_tool("task", {"prompt": "Work.", "wait": 0.01})
        await client.call_tool("task", {"prompt": "Wait for a slot.", "wait": 0})
        waiting = await client.call_tool("task_cancel", {"task": "t2"})
        assert waiting.is_error
        assert "cancelled before it started" in get_text(waiting)
        assert get_values(waiting)["reason"] == "CANCELLED"
        working = await client.call_tool("task_cancel", {"task": "t1"})
        assert get_values(working)["reason"] == "CANCELLED"


async def wait_for_ever(_: Request) -> str:
    await asyncio.Event().wait()
    return ""


ENDINGS: dict[str, dict[str, Any]] = {
    "GOAL": {},
    "ERROR": {},
    "MAX_TURNS": {"budget": {"turns": 1}},
    "BUDGET": {"budget": {"tokens": 40}},
    "LOOP": {},
    "TIMEOUT": {"budget": {"seconds": 0.01}},
}
"""Arguments of a task that ends so; its prompt is the reason."""


async def end_so(request: Request) -> Any:
    if request.prompt == "TIMEOUT":
        await asyncio.Event().wait()
    ends = {"GOAL": "Done.", "ERROR": ModelRefused("the key is wrong")}
    return ends.get(request.prompt, call("glob", pattern="*"))


async def test_values_of_each_reason_fit_the_schema(make_host: MakeHost) -> None:
    async with make_host(end_so).connect() as client:
        for reason, arguments in ENDINGS.items():
            result = await client.call_tool("task", {"prompt": reason, **arguments})
            values = get_values(result)
            jsonschema.validate(values, get_schema("task"))
            assert values["reason"] == reason
            assert result.is_error == (reason != "GOAL")
            assert get_text(result)


async def test_a_long_report_is_cut_and_the_whole_is_in_a_file(make_host: MakeHost) -> None:
    whole = "word " * 20_000
    host = make_host([whole])
    async with host.connect() as client:
        text = get_text(await client.call_tool("task", {"prompt": "Write."}))
    assert len(text) < 25_000
    path = text.split("characters, is in ")[1].partition("]")[0]
    with open(path) as file:
        assert file.read() == whole.strip()


async def test_an_argument_only_lowers_the_budget_of_the_server(make_host: MakeHost) -> None:
    host = make_host([call("glob", pattern="*")] * 9, limits=Budget(turns=2))
    async with host.connect() as client:
        more = await client.call_tool("task", {"prompt": "Work.", "budget": {"turns": 50}})
        fewer = await client.call_tool("task", {"prompt": "Work.", "budget": {"turns": 1}})
    for result, turns in ((more, 2), (fewer, 1)):
        assert get_values(result)["reason"] == "MAX_TURNS"
        assert f"stopped after {turns} turns" in get_text(result)


async def test_the_budget_of_all_tasks_is_that_of_the_session(make_host: MakeHost) -> None:
    host = make_host(["Done."], session={"budget": Budget(total_tokens=1)})
    async with host.connect() as client:
        await client.call_tool("task", {"prompt": "Work."})
        second = await client.call_tool("task", {"prompt": "Work again."})
    assert second.is_error
    assert get_values(second)["reason"] == "BUDGET"


async def test_an_answer_by_schema_is_a_value(make_host: MakeHost) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def answer(request: Request) -> Any:
        if request.results:
            return "Done."
        tool = next(tool for tool in request.tools if "emit" in tool)
        return call(tool, emit_variable_name="n", emit_variable_value=4)

    host = make_host(answer)
    async with host.connect() as client:
        result = await client.call_tool("task", {"prompt": "Count.", "schema": schema})
    assert get_values(result)["output"] == {"n": 4}


async def test_no_byte_of_one_task_is_in_requests_of_another(make_host: MakeHost) -> None:
    def answer(request: Request) -> str:
        return f"Report of {request.prompt}"

    host = make_host(answer)
    async with host.connect() as client:
        marks = [f"mark{n}x" for n in range(3)]
        calls = [client.call_tool("task", {"prompt": mark}) for mark in marks]
        await asyncio.gather(*calls)
    for request in host.model.requests:
        text = f"{request.system} {request.messages}"
        assert [mark for mark in marks if mark in text] == [request.prompt]


async def test_servers_that_work_for_each_other_stop_at_the_third(make_host: MakeHost) -> None:
    host = make_host([], nesting=3)
    async with host.connect() as client:
        result = await client.call_tool("task", {"prompt": "Work."})
    assert result.is_error
    assert "3 servers of mudroom work for each other already" in get_text(result)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("task", {}, "prompt: required"),
    ("task", {"prompt": "Work.", "agent": "exporer"}, "Did you mean explore?"),
    ("task", {"prompt": "Work.", "color": 1}, "color: unknown"),
    (
        "task",
        {"prompt": "Work.", "budget": {"turns": 0}},
        "turns: is out of bounds; expected integer >= 1",
    ),
    ("task", {"prompt": "Work.", "files": ["none.md"]}, "no such file (none.md)"),
    ("task", {"prompt": "Work.", "model": "nobody:nothing"}, "nobody"),
    ("task", {"prompt": "Work.", "schema": {"type": 5}}, "outputs: "),
    ("task_many", {"tasks": []}, "length >= 1"),
    ("task_many", {"tasks": [{"prompt": "a"}, {"prompt": "b", "agent": "x"}]}, "unknown agent"),
    ("task_result", {"task": "t9"}, "unknown task 't9'"),
]


async def test_wrong_arguments_are_an_error_result(make_host: MakeHost) -> None:
    host = make_host([])
    async with host.connect() as client:
        for tool, arguments, text in WRONG:
            result = await client.call_tool(tool, arguments)
            assert result.is_error, arguments
            assert text in get_text(result)
    assert host.model.requests == []


async def test_a_host_gets_the_totals_of_the_run_tree(make_host: MakeHost) -> None:
    host = make_host(act, limits=Budget(depth=4))
    events: list[AnyEvent] = []
    found = 0
    async with host.connect() as client:
        host.sessions[0].watch(events.append)
        for seed in range(TREES):
            node = make_tree(random.Random(seed)) | {"end": "answer"}
            result = await client.call_tool("task", {"prompt": json.dumps(node)})
            values = get_values(result)
            tree = RunTree.from_events([each for each in events if not isinstance(each, Delta)])
            runs = {name: run for name, run in tree.runs.items() if is_below(name, values["run"])}
            usage = tree.runs[values["run"]].total_usage
            assert values["usage"]["input_tokens"] == usage.input_tokens, seed
            assert values["usage"]["output_tokens"] == usage.output_tokens, seed
            answers = [each for each in events if isinstance(each, TurnFinished)]
            ours = [each for each in answers if is_below(each.run, values["run"])]
            assert values["usage"]["requests"] == len(ours), seed
            assert len(values["children"]) == len(runs) - 1, seed
            found += len(runs) - 1
    assert found > TREES


def is_below(run: str, root: str) -> bool:
    return run == root or run.startswith(f"{root}.")
