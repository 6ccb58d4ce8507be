"""Wrong types, for each parameter of a tool and each entry of a wire: the place and both types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from mudroom import MudroomError, Session, SessionOptions
from mudroom._adapters.agent_files.agents import parse_agent_keys
from mudroom._adapters.integrations.mcp_servers.load import parse_servers
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.tools import make_builtin_tools
from mudroom._core.schemas import explain_mismatch
from mudroom._core.tools import Tool
from mudroom._engine.children.task_tool import make_task_tool
from mudroom._engine.run_tools import RUN_TOOLS
from mudroom._engine.run_tools.merge_tool import MERGE_TOOL
from mudroom._engine.structured_output import parse_output_type
from mudroom._session.config import SETTING_NAMES, validate_value
from mudroom._session.options import gather_options, list_places, make_options
from mudroom_hosts.acp import params as acp_params
from mudroom_hosts.acp.json_rpc import RequestError as AcpError
from mudroom_hosts.mcp import host_tasks
from mudroom_serve import request_bodies
from mudroom_serve.request_errors import RequestError as HttpError

RAW = re.compile(r"Expected `|got `|at `|\$\.|Object (?:contains|missing)|validation error")
"""Texts of the packages that check types; they know neither the reader nor its words."""

WRONG: dict[str, list[Any]] = {
    "string": [5, 1.5, True, ["a"], {"a": 1}],
    "integer": ["x", 1.5, ["a"], {"a": 1}],
    "number": ["x", ["a"], {"a": 1}],
    "boolean": ["perhaps", 5, ["a"], {"a": 1}],
    "array": [5, True, {"a": 1}],
    "object": [5, "x", True, ["a"]],
}
TOOLS = {
    **make_builtin_tools(),
    **RUN_TOOLS,
    "merge": MERGE_TOOL,
    "task": make_task_tool({}),
}


def fill(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that a schema accepts."""
    texts: dict[str, Any] = {
        "string": "a",
        "integer": 1,
        "number": 1,
        "boolean": True,
        "array": [],
        "object": {},
    }
    properties = schema.get("properties", {})
    return {
        name: properties[name].get("enum", [texts.get(properties[name].get("type"), "a")])[0]
        for name in schema.get("required", ())
    }


def list_cases() -> Iterator[tuple[str, str, Any]]:
    for tool in TOOLS.values():
        for name, schema in tool.parameters.get("properties", {}).items():
            for wrong in WRONG.get(schema.get("type", ""), []):
                yield tool.name, name, wrong


def explain(tool: Tool, arguments: dict[str, Any]) -> str:
    try:
        tool.parse(tool.read_arguments(arguments))
    except (ValueError, TypeError) as error:
        return explain_mismatch(error, tool.parameters)
    return ""


def test_each_wrong_type_of_each_parameter_is_explained() -> None:
    refused = 0
    for name, parameter, wrong in list_cases():
        tool = TOOLS[name]
        text = explain(tool, {**fill(tool.parameters), parameter: wrong})
        case = f"{name}({parameter}={wrong!r}): {text}"
        assert not RAW.search(text), case
        assert not text or text.startswith((parameter, *tool.parameters["properties"])), case
        refused += bool(text)
    assert refused > 150


def test_unknown_and_missing_arguments_are_explained() -> None:
    for tool in TOOLS.values():
        for arguments in ({**fill(tool.parameters), "no_such": 1}, {}):
            assert not RAW.search(explain(tool, arguments)), (tool.name, arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"prompt": {"a": 1}}, "prompt: is object; expected string"),
        ({"prompt": "x", "max_turns": ["a"]}, "max_turns: is array; expected integer"),
        ({"prompt": "x", "no_such": 1}, "no_such: unknown; the arguments are "),
    ],
)
async def test_the_model_reads_what_is_wrong_with_a_task(
    tmp_path: Path, arguments: dict[str, Any], text: str
) -> None:
    read: list[str] = []

    def answer(request: Request) -> Answer:
        read.extend(result.text for result in request.results)
        return "done" if request.turn else call("task", **arguments)

    model, home = ScriptedModel(answer), str(tmp_path / "home")
    async with Session(model=model, cwd=str(tmp_path), home=home, sandbox="off") as session:
        await session.run("x")
    assert f"Invalid arguments for task: {text}" in read[0]


REFUSALS = (MudroomError, AcpError, HttpError)
WIRES: dict[ModuleType, Callable[[Any, Any], object]] = {
    acp_params: lambda kind, values: acp_params.parse_params(values, kind),
    request_bodies: lambda kind, values: request_bodies.parse_body(
        kind, msgspec.json.encode(values)
    ),
    host_tasks: lambda kind, values: host_tasks.parse_arguments(kind, values, "task"),
}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.__name__)
def test_each_wrong_type_of_each_entry_of_a_wire_is_explained(wire: ModuleType) -> None:
    kinds: list[Any] = [
        each
        for each in vars(wire).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    refused = 0
    for kind in kinds:
        names = [field.encode_name for field in msgspec.structs.fields(kind)]
        for name in [*names, "no_such"]:
            for wrong in (5, -1.5, True, None, [1], {"a": 1}, "", "x", [[{"a": 1}]]):
                try:
                    WIRES[wire](kind, {name: wrong})
                except REFUSALS as error:
                    text = str(error)
                    assert not RAW.search(text), (kind, name, wrong, text)
                    refused += 1
    assert refused > 20
    with pytest.raises(REFUSALS) as caught:
        WIRES[wire](kinds[0], [1])
    assert not RAW.search(str(caught.value))


VALUES: tuple[Any, ...] = (5, -1.5, True, [1], {"a": 1}, "x", [[{"a": 1}]], {"a": {"b": []}})


def declare_server(name: str, value: object) -> list[str]:
    entries: dict[str, Any] = {"web": {"command": "x", name: value}}
    loaded = parse_servers(entries, origin="f.json", folder="/", environ={})
    return [f"{each.text} {each.remedy}" for each in loaded.findings]


def declare_agent(name: str, value: object) -> list[str]:
    _, draft = parse_agent_keys({"description": "d", name: value}, "a", "a.md", ["read"])
    return [each.text for each in draft.diagnostics.items]


def set_option(name: str, value: object) -> list[str]:
    make_options(gather_options({name: value}, SessionOptions()))
    return []


def set_setting(name: str, value: object) -> list[str]:
    validate_value(name, value, "config.toml:1")
    return []


SERVER_KEYS = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "type",
    "disabled",
    "timeout",
    "oauth",
]
AGENT_KEYS = [
    "name",
    "description",
    "tools",
    "model",
    "mode",
    "max_turns",
    "skills",
    "budget",
    "outputs",
    "children",
    "hooks",
]
ENTRIES: dict[str, tuple[Callable[[str, object], list[str]], Sequence[str]]] = {
    "server": (declare_server, SERVER_KEYS),
    "agent": (declare_agent, AGENT_KEYS),
    "option": (set_option, [*list_places(SessionOptions), *SessionOptions.__struct_fields__]),
    "setting": (set_setting, sorted(SETTING_NAMES)),
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_each_wrong_type_of_each_declared_entry_is_explained(kind: str) -> None:
    declare, names = ENTRIES[kind]
    told = 0
    for name in names:
        for value in VALUES:
            try:
                texts = declare(name, value)
            except MudroomError as error:
                texts = [str(error)]
            assert not RAW.search("".join(texts)), (name, value, texts)
            told += bool(texts)
    assert told > 15


class Found(msgspec.Struct):
    name: str
    lines: list[int] = []


@pytest.mark.parametrize("wrong", [{}, {"name": 5}, {"name": "a", "lines": ["x"]}, {"name": None}])
def test_an_emitted_value_of_a_struct_is_explained(wrong: dict[str, Any]) -> None:
    output = parse_output_type(Found)
    assert output is not None
    with pytest.raises(Exception) as caught:
        msgspec.convert(wrong, Found)
    text = explain_mismatch(caught.value)
    assert not RAW.search(text) and text.startswith(("name: ", "lines"))
