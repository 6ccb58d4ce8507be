"""Values of wrong Python types from tools and hooks: a clear error that names the value."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.conftest import Stage

from mudroom import Effect, Integrations, Tool, ToolResult, ToolResultBlock
from mudroom._adapters.models.scripted import call
from mudroom.errors import UsageError
from mudroom.ports import Hooks, ToolHookDecision

WRONG: dict[str, Any] = {"text": "text", "number": 5, "list": ["a"], "object": object()}
FIELDS: list[tuple[str, Any]] = [
    *(("text", value) for value in (5, None, ["a"])),
    *(("display", value) for value in (5, None)),
    *(("error", value) for value in ("yes", None)),
    *(("detail", value) for value in ("text", 5, None)),
    *(("reads", value) for value in ("a.txt", 5, [5], None)),
    *(("changes", value) for value in ("a.txt", [None])),
    ("spill", 5),
]


def make_tool(returned: Any, **fields: Any) -> Tool:
    async def run(_: object, arguments: object) -> Any:
        values: dict[str, Any] = {"text": "done", **fields}
        return ToolResult(**values) if fields else returned

    return Tool(
        name="probe",
        description="A tool.",
        parameters={"type": "object"},
        parse=dict,
        run=run,
        effect=Effect.PURE,
    )


async def run_probe(stage: Stage, tool: Tool, hooks: Hooks | None = None) -> ToolResultBlock:
    """Let a model call the tool, and return the result that the model reads."""
    integrations = Integrations(hooks=hooks)
    await stage.run([[call("probe")], "Done.", "Done."], tools=[tool], integrations=integrations)
    (result,) = stage.model.requests[1].results
    return result


@pytest.mark.parametrize("name", WRONG)
async def test_a_tool_that_returns_no_tool_result_gives_an_error_result(
    name: str, stage: Stage
) -> None:
    result = await run_probe(stage, make_tool(WRONG[name]))
    kind = type(WRONG[name]).__name__
    assert result.error
    assert result.text == f"probe failed: TypeError: it returned {kind}, not ToolResult"


@pytest.mark.parametrize(("field", "value"), FIELDS, ids=str)
async def test_a_tool_result_with_a_field_of_a_wrong_type_is_an_error_result(
    field: str, value: Any, stage: Stage
) -> None:
    result = await run_probe(stage, make_tool(None, **{field: value}))
    assert result.error
    assert result.text.startswith("probe failed: TypeError: ")


@pytest.mark.parametrize("hook", ["on_prompt", "before_tool", "after_tool", "before_finish"])
@pytest.mark.parametrize("name", ["number", "list", "object"])
async def test_a_hook_that_returns_a_wrong_type_raises_a_usage_error(
    hook: str, name: str, stage: Stage
) -> None:
    async def give(*_: object) -> Any:
        return WRONG[name]

    hooks = type("WrongHooks", (Hooks,), {hook: give})()
    with pytest.raises(UsageError, match=f"the hook {hook} gave a value of type"):
        await run_probe(stage, make_tool(ToolResult("done")), hooks)


@pytest.mark.parametrize("fields", [{"denial": 5}, {"arguments": "text"}, {"arguments": [1]}])
def test_a_hook_decision_with_a_field_of_a_wrong_type_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the hook before_tool gave a value of type"):
        ToolHookDecision(**fields)
