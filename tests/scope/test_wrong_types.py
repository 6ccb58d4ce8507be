"""Values of wrong Python types in the configuration of a scope: refused before any model call."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mudroom import (
    ContextState,
    ModelConfig,
    OutputConfig,
    PromptConfig,
    RunConfig,
    SubAgentScope,
    ToolConfig,
)
from mudroom.errors import UsageError

from .conftest import Open

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
