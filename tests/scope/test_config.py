"""The configuration of a scope: values of wrong types, and tools; refused before any model call."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from mudroom import (
    ApprovalDecision,
    ApprovalRequest,
    ContextState,
    ModelConfig,
    OutputConfig,
    PromptConfig,
    RunConfig,
    SubAgentScope,
    Tool,
    ToolConfig,
    ToolResult,
    UsageError,
    tool,
)
from mudroom._adapters.models.scripted import call
from mudroom.errors import UnknownName
from mudroom.permissions.rules import Permissions
from mudroom.ports import ToolContext

from .conftest import Open, create_scope, run_scope

PROMPT = PromptConfig(system_prompt="Read it.")


def nest(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


DECLARATION = {"name": "clock", "parameters": "object"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "prompt": ({"prompt_config": "Read it."}, "must be PromptConfig.*, not str"),
    "model": ({"model_config": "offline"}, "must be ModelConfig.*, not str"),
    "limits": ({"run_config": {"max_turns": 3}}, "must be RunConfig.*, not dict"),
    "tools": ({"tool_config": ["read"]}, "must be ToolConfig.*, not list"),
    "outputs": ({"output_config": {"a": "b"}}, "must be OutputConfig.*, not dict"),
    "on_message": ({"on_message": "print"}, "on_message must be Callable.* or None, not str"),
    "parameters": ({"tool_config": ToolConfig(tools=[DECLARATION])}, "no JSON Schema of an object"),
    "name": ({"name": 5}, "name must be str, not int"),
    "session": ({"runtime_context": 5}, "runtime_context must be an open Session, not int"),
    "no prompt": ({"prompt_config": PromptConfig()}, "initial_messages, not neither"),
    "two prompts": (
        {"prompt_config": PromptConfig(system_prompt="a", initial_messages=[])},
        "system_prompt and initial_messages, not both",
    ),
    "role": (
        {"prompt_config": PromptConfig(initial_messages=[{"role": "king", "content": "Q"}])},
        "initial_messages: .*king",
    ),
    "instructions": (
        {"prompt_config": PromptConfig(system_prompt=5)},  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "system_prompt of PromptConfig must be str or None, not int",
    ),
    "temperature": ({"model_config": ModelConfig(temp=99.0)}, "temperature must be .* from 0 to 2"),
    "top_p": ({"model_config": ModelConfig(top_p=math.nan)}, "top_p must be .* from 0 to 1"),
    "deep tool": ({"tool_config": ToolConfig(tools=[nest(10_000)])}, "item 1 of tools"),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    "deep key": ({"tool_config": ToolConfig(tools=[{"nmae": nest(10_000)}])}, "key 'nmae'"),
    "deep role": (
        {"prompt_config": PromptConfig(initial_messages=[{"role": "x" * 1_000_000}])},
        "has no role",
    ),
    "deep value": (
        {
            "prompt_config": PromptConfig(system_prompt="${a}"),
            "context": ContextState(a=nest(10_000)),
        },
        "the value of 'a' cannot be written as text",
    ),
    "empty list": ({"tool_config": ToolConfig(tools=[{"name": "a", "parameters": []}])}, "Schema"),
    "handler": (
        {"tool_config": ToolConfig(tools=[{"name": "a", "handler": 5}])},
        "handler must be Callable",
    ),
    "output": ({"output_config": OutputConfig(outputs={"a": 5})}, "not a type"),
    "context": ({"context": {"a": "b"}}, "context must be ContextState, not dict"),
    "messages": (
        {"prompt_config": PromptConfig(initial_messages="hello")},  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "initial_messages of PromptConfig must be .*, not str",
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_type_in_the_configuration_of_a_scope_is_refused(
    name: str, scripted: Open
) -> None:
    wrong, message = WRONG[name]
    values: dict[str, Any] = {
        "prompt_config": PROMPT,
        "model_config": ModelConfig(),
        "run_config": RunConfig(),
        "context": ContextState(),
        **wrong,
    }
    context = values.pop("context")
    async with scripted([]) as (session, model):
        values = {"name": "reader", "runtime_context": session, **values}
        with pytest.raises(UsageError, match=message) as error:
            scope = await SubAgentScope.create(**values)
            await scope.run(context)
    assert len(str(error.value)) < 1_000
    assert model.requests == []


REQUIRED_CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


def launch_tool(parameters: dict[str, Any] | None = None) -> Tool:
    """Return a tool that needs a confirmation, without parameters by default."""

    async def run(_: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult("launched")

    return Tool(
        name="launch",
        description="Launch it.",
        parameters=parameters or {"type": "object"},
        parse=dict,
        run=run,
        needs_confirmation=True,
    )


async def test_tools_may_be_names_of_other_systems_objects_or_declarations(scripted: Open) -> None:
    @tool
    def double(n: int) -> int:
        "Twice a number."
        return 2 * n

    def halve(arguments: dict[str, float]) -> float:
        return arguments["n"] / 2

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    half: dict[str, Any] = {
        "name": "half",
        "description": "Half a number.",
        "parameters": schema,
        "handler": halve,
    }
    third = {"name": "third", "description": "A third.", "parameters": schema}
    script = [
        [call("double", n=4), call("half", n=5), call("third", n=9), call("half", n="x")],
        "Done.",
    ]
    config = ToolConfig(tools=["Read_File", double, half, third])
    async with scripted(script) as (session, model):
        await run_scope(session, tool_config=config)
    assert model.requests[0].tools == ("read", "double", "half", "third")
    results = model.requests[1].results
    assert [result.text for result in results[:2]] == ["8", "2.5"]
    assert results[2].error
    assert "has no implementation here" in results[2].text
    assert results[3].error
    assert "n:" in results[3].text


async def test_a_declaration_needs_only_a_name(scripted: Open) -> None:
    clock: dict[str, Any] = {"name": "clock", "handler": lambda _: "noon"}  # pyright: ignore
    bare = {"name": "bare", "description": "No parameters.", "parameters": None}
    script = [[call("clock"), call("bare")], "Done."]
    async with scripted(script) as (session, model):
        await run_scope(session, tool_config=ToolConfig(tools=[clock, bare]))
    assert model.requests[0].tools == ("clock", "bare")
    results = model.requests[1].results
    assert results[0].text == "noon"
    assert "has no implementation here" in results[1].text


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"description": "no name"}, "no name"),
        ({"name": ""}, "no name"),
        ({"name": 5}, "no name"),
        ({"name": "a", "parametres": {}}, "unknown key 'parametres'"),
        ({"name": "a", "parameters": {"type": "object", "required": 5}}, "not a JSON Schema"),
        ({"name": "a", "parameters": {"type": "nothing"}}, "no JSON Schema of an object"),
        ({"name": "a", "parameters": {"type": "array"}}, "no JSON Schema of an object"),
        ({"name": "self.emitvalue"}, "reserved"),
        (5, "must be str or Tool or Mapping"),
        (len, "which a model cannot send"),
        ("task", "starts no child runs"),
        ("Agent", "starts no child runs"),
    ],
    ids=str,
)
async def test_a_tool_that_a_scope_cannot_use_is_refused_at_creation(
    item: Any, problem: str, scripted: Open
) -> None:
    async with scripted([]) as (session, _):
        with pytest.raises(UsageError, match=problem) as raised:
            await create_scope(session, tool_config=ToolConfig(tools=["read", item]))
    assert raised.value.remedy or "JSON Schema" in problem


async def test_two_tools_of_one_name_are_refused(scripted: Open) -> None:
    async with scripted([]) as (session, _):
        with pytest.raises(UsageError, match="two tools have the name 'read'"):
            await create_scope(session, tool_config=ToolConfig(tools=["read", {"name": "read"}]))
        await create_scope(session, tool_config=ToolConfig(tools=["read", "Read"]))


async def test_an_unknown_tool_is_an_error_that_lists_the_known_ones(scripted: Open) -> None:
    async with scripted([]) as (session, _):
        with pytest.raises(UnknownName, match="unknown tool 'warp'") as raised:
            await create_scope(session, tool_config=ToolConfig(tools=["warp"]))
    assert {"read", "bash", "grep"} <= set(raised.value.known)


async def test_a_scope_without_a_tool_config_has_no_tools(scripted: Open) -> None:
    async with scripted(["Done."]) as (session, model):
        await run_scope(session)
    assert model.requests[0].tools == ()


async def test_a_tool_that_needs_confirmation_is_refused_at_creation(scripted: Open) -> None:
    message = (
        'Tool "launch" requires user confirmation and cannot be used in a non-interactive subagent.'
    )
    async with scripted([], tools=[launch_tool()]) as (session, _):
        for item in ("launch", launch_tool()):
            with pytest.raises(UsageError) as raised:
                await create_scope(session, tool_config=ToolConfig(tools=[item]))
            assert str(raised.value) == message


async def test_a_tool_with_required_parameters_gets_a_warning_and_is_denied_when_it_asks(
    scripted: Open, caplog: pytest.LogCaptureFixture
) -> None:
    asking = [call("launch", code="0"), call("read", file_path="secret.txt")]
    script = [asking, "I could not."]
    # Not of `read`: a tool that changes nothing asks only if a rule or a hook says so.
    config = ToolConfig(tools=[launch_tool(REQUIRED_CODE), "read"])
    permissions = Permissions.of(ask=["read(secret.txt)"])
    with caplog.at_level(logging.WARNING, "mudroom"):
        async with scripted(script, permissions=permissions) as (session, model):
            await run_scope(session, tool_config=config)
    warning = (
        'Cannot check tool "launch" for interactivity because it requires parameters. '
        "Assuming it is safe for non-interactive use."
    )
    assert [record.getMessage() for record in caplog.records] == [warning]
    results = model.requests[1].results
    assert [result.error for result in results] == [True, True]
    assert all("not allowed" in result.text for result in results)


async def test_the_approver_of_the_session_is_not_asked(scripted: Open) -> None:
    class Approver:
        async def decide(self, request: ApprovalRequest, /) -> ApprovalDecision:
            raise AssertionError("asked")

    script = [[call("launch", code="0")], "Done."]
    config = ToolConfig(tools=[launch_tool(REQUIRED_CODE)])
    async with scripted(script, approver=Approver()) as (session, model):
        await run_scope(session, tool_config=config)
    assert model.requests[1].results[0].error


def double(number: int) -> int:
    "Double a number."
    return 2 * number


def double_by_name(arguments: dict[str, int]) -> int:
    return 2 * arguments["number"]


GEMINI: dict[str, Any] = {
    "name": "double",
    "description": "Double a number.",
    "parameters": {
        "type": "OBJECT",
        "properties": {
            "number": {"type": "INTEGER"},
            "type": {"type": "STRING", "enum": ["STRING"]},
            "more": {"type": "ARRAY", "items": {"type": "OBJECT", "properties": {}}},
        },
        "required": ["number"],
    },
    "handler": double_by_name,
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"number": {"type": "integer"}}}


@pytest.mark.parametrize(
    "item",
    [
        double,
        GEMINI,
        {"name": "double", "parametersJsonSchema": SCHEMA, "handler": GEMINI["handler"]},
    ],
    ids=["a function", "types of Gemini", "parametersJsonSchema"],
)
async def test_declarations_of_gemini_and_functions_are_tools(scripted: Open, item: Any) -> None:
    script = [[call("double", number="4")], "Done."]
    async with scripted(script) as (session, model):
        await run_scope(session, tool_config=ToolConfig(tools=[item]))
    assert model.requests[1].results[0].text == "8"
