"""Values of wrong Python types in the configuration of a scope: refused before any model call."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom import ContextState, ModelConfig, PromptConfig, RunConfig, SubAgentScope, ToolConfig
from mudroom.errors import UsageError

from .conftest import Open

PROMPT = PromptConfig(system_prompt="Read it.")
DECLARATION = {"name": "clock", "parameters": "object"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "prompt": ({"prompt_config": "Read it."}, "takes PromptConfig here, not str"),
    "model": ({"model_config": "offline"}, "takes ModelConfig here, not str"),
    "limits": ({"run_config": {"max_turns": 3}}, "takes RunConfig here, not dict"),
    "tools": ({"tool_config": ["read"]}, "takes ToolConfig here, not list"),
    "outputs": ({"output_config": {"a": "b"}}, "takes OutputConfig here, not dict"),
    "on_message": ({"on_message": "print"}, "on_message is str, not a function"),
    "parameters": ({"tool_config": ToolConfig(tools=[DECLARATION])}, "no JSON Schema of an object"),
    "context": ({"context": {"a": "b"}}, "takes ContextState here, not dict"),
    "messages": (
        {"prompt_config": PromptConfig(initial_messages="hello")},  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "takes Mapping here, not str",
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
        with pytest.raises(UsageError, match=message):
            scope = await SubAgentScope.create("reader", session, **values)
            await scope.run(context)
    assert model.requests == []
