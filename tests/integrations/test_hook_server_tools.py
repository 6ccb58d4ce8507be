"""Hooks of type mcp_tool: real servers, their answers as outputs of hooks, and their failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integrations.hook_helpers import make_set, make_spec
from tests.integrations.mcp_servers.servers import count_starts, make_quick
from tests.integrations.test_hook_functions import make_options

from mudroom import Integrations, Reason, Session
from mudroom._adapters.integrations.hook_programs.remote_hooks import fill_places
from mudroom._adapters.integrations.hook_programs.spec import HookSpec
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call

FIELDS = {"tool_input": {"file_path": "/a/b.py", "count": 3, "flags": ["x"]}, "empty": None}
DECISION = {
    "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "no ${tool_input.command} here",
    }
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${tool_input.file_path}", "/a/b.py"),
        ("in ${tool_input.file_path}, ${tool_input.count} times", "in /a/b.py, 3 times"),
        ("${tool_input.flags}", '["x"]'),
        ("[${empty}][${none}][${tool_input.count.x}]", "[][][]"),
        ({"a": ["${tool_input.count}", 5, None]}, {"a": ["3", 5, None]}),
        ("$tool_input ${} ${a b}", "$tool_input ${} ${a b}"),
    ],
)
def test_parts_of_the_input_replace_their_places(value: Any, expected: Any) -> None:
    assert fill_places(value, FIELDS) == expected


def make_hook(event: str, tool: str, given: object, server: str = "quick") -> HookSpec:
    options = {"server": server, "tool": tool, "input": given}
    return make_spec(event, "", kind="mcp_tool", options=options, shown=f"{server} {tool}")


async def test_a_tool_of_a_server_decides_and_adds_text(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.turn == 0:
            return [call("bash", command="touch made")]
        return str(request.messages)

    server = make_quick(fault="echoes", log=tmp_path / "log")
    hooks = [
        make_hook("PreToolUse", "echo", DECISION),
        make_hook("UserPromptSubmit", "add", {"a": 2, "b": 3}),
        make_hook("UserPromptSubmit", "add", {"a": 40, "b": 2}),
        make_hook("UserPromptSubmit", "add", {"a": 40, "b": 2}),
    ]
    options = make_options(tmp_path, model=ScriptedModel(answer))
    async with Session(
        **options, integrations=Integrations(mcp_servers=[server], hook_programs=hooks)
    ) as session:
        report = await session.run("Work.")
    assert report.reason is Reason.GOAL
    assert "no touch made here" in report.text
    assert "[hook UserPromptSubmit] 5" in report.text
    assert report.text.count("42") == 1
    assert not (tmp_path / "made").exists()
    assert count_starts(tmp_path / "log") == 1


async def test_a_tool_that_fails_or_does_not_exist_is_a_failed_hook(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = [
        make_hook("UserPromptSubmit", "echo", {"text": "bad"}),
        make_hook("UserPromptSubmit", "ad", {}),
        make_hook("UserPromptSubmit", "add", {}, server="quack"),
        make_hook("UserPromptSubmit", "add", ["no object"]),
    ]
    options = make_options(tmp_path, model=ScriptedModel(["end"]))
    servers = [make_quick(fault="echoes")]
    async with Session(
        **options, integrations=Integrations(mcp_servers=servers, hook_programs=hooks)
    ) as session:
        assert (await session.run("Work.")).text == "end"
    for reason in ("the tool failed", "unknown tool 'ad'", "'quack'", "its input is not an object"):
        assert reason in caplog.text
    outcome = await make_set(tmp_path, hooks[0]).fire("UserPromptSubmit", {})
    assert outcome.decision == ""
    assert "its MCP server is used in a session only" in caplog.text
