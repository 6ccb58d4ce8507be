"""Replay of runs with tools that are there only at times: of servers, of programs, on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace
from tests.integrations.mcp_servers.servers import make_quick

from mudroom import (
    Agent,
    Children,
    Integrations,
    Output,
    Permissions,
    ServerSpec,
    Session,
    Tool,
    ToolResult,
)
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import (
    RunStarted,
    StoredEvent,
    ToolCallFinished,
)
from mudroom._engine.structured_output import EMIT_TOOL
from mudroom._replay import replay
from mudroom.permissions.rules import Rule, Verdict

Script = Mapping[str, Sequence[Answer]]
"""The answers of each run, by the last word of its prompt."""


class Case(Struct, frozen=True):
    """A session with a kind of tools.

    Arguments:
        script: the calls of its runs; the last answer of each is added.
        make_options: takes the folder, returns options of the session.
        is_repeated: true if it runs a second time, when tools of servers are known.
        expected: texts that results must hold.
    """

    script: Script
    make_options: Callable[[Path], dict[str, Any]] = lambda folder: {}
    is_repeated: bool = False
    expected: tuple[str, ...] = ()


def with_servers(*servers: ServerSpec, **more: Any) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: {"integrations": Integrations(mcp_servers=servers), **more}


MANY = make_quick(env={"ADD_TEXT": "Add two numbers. " + "x" * 4_000})
"""A server with tools that are too long to be given in full."""

FIND = call("mcp_find", query="add numbers")
ADD = call("mcp_call", tool="mcp__quick__add", arguments={"a": 1, "b": 2})
TASK = call("task", prompt="the CHILD", agent="helper")


def make_tool(name: str, **more: Any) -> Tool:
    async def run(_: object, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(f"{name} of {arguments}", reads=("a.txt",))

    def parse(arguments: dict[str, Any]) -> dict[str, Any]:
        if "what" not in arguments:
            raise ValueError("what: is missing")
        return {"what": int(arguments["what"])}

    parameters = {"type": "object", "properties": {"what": {"type": "integer"}, "why": {}}}
    fields: dict[str, Any] = {"title_argument": "why", "description": name} | more
    return Tool(name=name, parameters=parameters, parse=parse, run=run, **fields)


def weigh(what: int, why: str = "no reason") -> str:
    """Weigh a thing."""
    return f"{what} kg: {why}"


HELPER = Agent(name="helper", description="Helps.", instructions="Help.")
OWN = [call("own", what="3", why="to see"), call("own", why="for nothing"), call("own", what="x")]

CASES = {
    "tools that are found": Case(
        {"go": [[ADD, call("mcp__quick__add", a=1, b=2)], [FIND], [ADD, ADD], [FIND, TASK]]}
        | {"CHILD": [[FIND], [ADD]]},
        with_servers(MANY, agents=[HELPER]),
        expected=("not known yet", "Adds numbers quickly", "3"),
    ),
    "wrong calls of found tools": Case(
        {
            "go": [
                [FIND],
                [
                    call("mcp_call", tool="quick__add", arguments='{"a": 1, "b": 5}'),
                    call("mcp_call", tool="mcp__quick__add", arguments={"a": "one"}),
                    call("mcp_call", tool="mcp__quick__ad", arguments={}),
                    call("mcp_call", tool="mcp__none__add", arguments={}),
                    call("mcp_call", arguments={}),
                    call("mcp_call", tool="mcp__quick__add", arguments=[1]),
                    call("mcp_find", query=["x"]),
                    call("mcp__quick__nothing"),
                    call("mcp__quick__pid"),
                ],
                [call("mcp_call", tool="mcp__quick__die", arguments={})],
            ]
        },
        with_servers(MANY),
        expected=("6", "arguments: is not an object", "there is no 'mcp__none__add'"),
    ),
    "a denied tool that was found": Case(
        {"go": [[FIND], [ADD]]},
        with_servers(MANY, permissions=Permissions(rules=(Rule(Verdict.ASK, "mcp__quick__add"),))),
        expected=("was not allowed",),
    ),
    "tools that are known from before": Case(
        {"go": [[FIND], [call("mcp__quick__add", a=2, b=2), TASK]]}
        | {"CHILD": [[call("mcp__quick__add", a=2, b=3)]]},
        with_servers(make_quick(), agents=[HELPER]),
        is_repeated=True,
        expected=("4", "5"),
    ),
    "tools that change": Case(
        {"go": [[FIND], [call("mcp_call", tool="mcp__quick__change", arguments={})], [FIND, ADD]]},
        with_servers(MANY),
    ),
    "a tool of a server that the agent names": Case(
        {"go": [[TASK]], "CHILD": [[call("mcp__quick__add", a=1, b=1), call("read")]]},
        with_servers(make_quick(), agents=[replace(HELPER, tools=("mcp__quick__add",))]),
        expected=("2",),
    ),
    "a server of the agent's own": Case(
        {"go": [[TASK, FIND]], "CHILD": [[FIND], [ADD, call("mcp__quick__pid")]]},
        with_servers(
            make_quick(agent="helper"), agents=[replace(HELPER, tools=("task", "mcp__quick"))]
        ),
    ),
    "a server that is missing": Case(
        {"go": [[TASK]], "CHILD": [[call("mcp__absent__add", a=1)]]},
        lambda folder: {"agents": [replace(HELPER, tools=("read", "mcp__absent"))]},
        expected=("There is no tool",),
    ),
    "a server that does not start": Case(
        {"go": [[TASK, FIND]], "CHILD": [[call("mcp__quick__add", a=1, b=1)]]},
        with_servers(
            replace(make_quick(), command="/nowhere"),
            agents=[replace(HELPER, tools=("mcp__quick__add",))],
        ),
    ),
    "a tool of a program, called wrongly": Case(
        {"go": [OWN, [TASK]], "CHILD": [OWN]},
        lambda folder: {"tools": [make_tool("own")], "agents": [HELPER]},
        expected=("what: is missing", "own of {'what': 3}"),
    ),
    "a function": Case(
        {"go": [[call("weigh", what="3"), call("weigh"), call("weigh", what=[]), TASK]]}
        | {"CHILD": [[call("weigh", what=1, why="so")]]},
        lambda folder: {"tools": [weigh], "agents": [HELPER]},
        expected=("3 kg: no reason", "1 kg: so"),
    ),
    "a tool of root runs": Case(
        {"go": [OWN, [TASK]], "CHILD": [OWN]},
        lambda folder: {"tools": [make_tool("own", offered_to="root")], "agents": [HELPER]},
        expected=("There is no tool 'own'",),
    ),
    "a tool on request": Case(
        {"go": [OWN, [TASK]], "CHILD": [OWN]},
        lambda folder: {
            "tools": [make_tool("own", offered_to="request")],
            "agents": [replace(HELPER, tools=("own", "read"))],
        },
        expected=("There is no tool 'own'", "own of {'what': 3}"),
    ),
    "a tool with a name of the engine's": Case(
        {"go": [[call("read", what="4"), call("read", file_path="x")], [TASK]]}
        | {"CHILD": [[call("read", what="5")]]},
        lambda folder: {"tools": [make_tool("read")], "agents": [HELPER]},
        expected=("read of {'what': 4}", "read of {'what': 5}"),
    ),
    "tools under the names of other programs": Case(
        {
            "go": [
                [call("TaskCreate", subject="one"), call("Read", what="4")],
                [call("claim_task", task_id=1), call("read_file", what="5"), call("own", what=1)],
                [call("complete_task", task_id=1), call("Own", what=1)],
            ]
        },
        lambda folder: {
            "children": Children(board=True),
            "tools": [make_tool("read"), make_tool("own")],
        },
        expected=("read of {'what': 4}", "read of {'what': 5}", "own of {'what': 1}"),
    ),
    "a task board": Case(
        {
            "go": [
                [call("task_create", subject="one"), call("task_create")],
                [call("task_update", id="1", status="in_progress"), call("task_list")],
                [call("task_get", id="1"), call("task_get", id="99"), TASK],
                *[[call("todo", todos=[])]] * 12,
            ],
            "CHILD": [[call("task_list"), call("task_update", id="7", status="completed")]],
        },
        lambda folder: {"children": Children(board=True), "agents": [HELPER]},
        expected=("one",),
    ),
    "the web": Case(
        {"go": [[call("web_fetch", url="http://127.0.0.1:9/x"), call("web_fetch"), TASK]]}
        | {"CHILD": [[call("web_fetch", url="no address")]]},
        lambda folder: {"allow_net": True, "agents": [HELPER]},
    ),
    "a team": Case(
        {
            "go": [
                [
                    call("task", prompt="the CHILD", agent="helper", name="ann", background=True),
                    call("wait", until="all", timeout=60),
                ],
                [call("send_message", to="ann", message="more"), call("wait", timeout=0)],
                [call("task_stop", to="ann", how="now"), call("task_stop", to="bob")],
            ],
            "CHILD": [[call("send_message", to="parent", message="hello"), call("task_stop")]],
        },
        lambda folder: {"agents": [HELPER]},
    ),
    "typed outputs": Case(
        {
            "go": [[TASK]],
            "CHILD": [
                [call(EMIT_TOOL, emit_variable_name="n", emit_variable_value="many")],
                [call(EMIT_TOOL, emit_variable_name="n", emit_variable_value=3)],
            ],
        },
        lambda folder: {
            "agents": [replace(HELPER, outputs={"n": Output("how many", {"type": "integer"})})]
        },
    ),
}


async def record(folder: Path, case: Case) -> list[StoredEvent]:
    """Run the session of a case and return its record, or that of its second session."""

    def answer(request: Request) -> Answer:
        steps = case.script.get(request.prompt.split()[-1], ())
        return steps[request.turn] if request.turn < len(steps) and request.tools else "done"

    (folder / "work").mkdir()
    journals = [MemoryJournal() for _ in range(2 if case.is_repeated else 1)]
    for journal in journals:
        async with Session(
            model=ScriptedModel(answer),
            cwd=str(folder / "work"),
            home=str(folder / "home"),
            environ={},
            sandbox="off",
            journal=journal,
            **case.make_options(folder),
        ) as session:
            await session.run("go")
    return journals[-1].events


def list_results(events: Sequence[StoredEvent]) -> str:
    ends = [event for event in events if isinstance(event, ToolCallFinished)]
    return "\n".join(event.result.text for event in ends)


@pytest.mark.parametrize("name", CASES)
async def test_a_record_replays_without_what_its_tools_need(tmp_path: Path, name: str) -> None:
    events = await record(tmp_path, CASES[name])
    results = list_results(events)
    assert [text for text in CASES[name].expected if text not in results] == []
    assert await replay(events) == events


def without_heads(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Return a record as older versions made it, which did not say what requests had."""
    return [
        replace(event, head=None) if isinstance(event, RunStarted) else event for event in events
    ]


@pytest.mark.parametrize("name", ["tools that are found", "a tool of a program, called wrongly"])
async def test_a_record_of_an_older_version_replays(tmp_path: Path, name: str) -> None:
    calls: dict[str, Sequence[Answer]] = {
        "tools that are found": [[FIND], [ADD]],
        "a tool of a program, called wrongly": [OWN],
    }
    events = await record(tmp_path, replace(CASES[name], script={"go": calls[name]}))
    events = without_heads(events)
    assert await replay(events) == events
