"""Evidence of what nothing watches: no report says "no changed file seen" where nothing looked."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Stage

from mudroom import Effect, Integrations, ToolCallBlock, ToolResult, tool
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, call
from mudroom._adapters.sandboxes.linux.kernel import get_landlock_version
from mudroom._core.tools import Tool, ToolCategory
from mudroom._engine.changes.watch import explain_unwatched, select_outside
from mudroom._replay import replay
from mudroom.permissions import Permissions
from mudroom.permissions.rules import Rule, Verdict
from mudroom.ports import HookCallback, Hooks, ToolContext

from ..integrations.mcp_servers.servers import make_quick

OUTSIDE = "ran without a sandbox, and files outside the folder were not compared"
HOOKS = "hooks ran, and nothing compared the files before and after them"

TIERS = ("full", "file", "ask", "refuse", "off", "a tier of the future")


def make_tool(effect: Effect, category: ToolCategory | None) -> Tool:
    async def run(_: ToolContext, __: object) -> ToolResult:
        return ToolResult("")

    return Tool(
        name="t", description="", parameters={}, parse=dict, run=run, effect=effect,
        category=category,
    )  # fmt: skip


@pytest.mark.parametrize(("tier", "effect"), list(itertools.product(TIERS, Effect)))
def test_only_a_confined_or_harmless_call_needs_no_reason(tier: str, effect: Effect) -> None:
    command = explain_unwatched(make_tool(Effect.EFFECTFUL, ToolCategory.RUN), tier)
    assert bool(command) == (tier not in ("full", "file", "refuse"))
    own = explain_unwatched(make_tool(effect, None), tier)
    assert bool(own) == (effect is not Effect.PURE)
    assert {select_outside(reason) for reason in (command, own)} == {command, own}
    file_tool = make_tool(Effect.KEYED, ToolCategory.WRITE)
    assert not explain_unwatched(file_tool, tier), "it writes through its context only"


@tool
def deploy(ctx: ToolContext) -> str:
    """Deploy."""
    return "deployed"


@tool(effect=Effect.KEYED)
def keep() -> str:
    """Keep."""
    return "kept"


@tool
def start(ctx: ToolContext) -> ToolResult:
    """Start work that goes on in the background."""

    async def work() -> ToolResult:
        return ToolResult("ended")

    return ctx.run_in_background("work", work())


class OwnHooks(Hooks):
    async def on_run_start(self, brief: object) -> str:
        return ""


async def look(hook_input: dict[str, Any]) -> None:
    """Do nothing that anyone sees."""


def hook(event: str) -> dict[str, Any]:
    return {"integrations": Integrations(hooks={event: [HookCallback(look)]})}


BASH = call("bash", command="true")
READ = call("read", file_path="notes.txt")

ROWS: dict[str, tuple[ToolCallBlock, dict[str, Any], str]] = {
    "command": (BASH, {}, f"commands {OUTSIDE}"),
    "failing command": (call("bash", command="false"), {}, f"commands {OUTSIDE}"),
    "command that goes on": (
        call("bash", command="true", background=True),
        {},
        f"commands {OUTSIDE}",
    ),
    "own tool": (call("deploy"), {"tools": [deploy]}, f"the tool deploy {OUTSIDE}"),
    "own tool that goes on": (call("start"), {"tools": [start]}, f"the tool start {OUTSIDE}"),
    "own keyed tool": (
        call("keep"),
        {"tools": [keep]},
        "nothing compared the files before and after the tool keep",
    ),
    "hook before a call": (READ, hook("PreToolUse"), HOOKS),
    "hook after a call": (READ, hook("PostToolUse"), HOOKS),
    "hook at the end of a child": (READ, hook("SubagentStop"), HOOKS),
    "hook at the start of a child": (READ, hook("SubagentStart"), HOOKS),
    "hooks of the program": (READ, {"integrations": Integrations(hooks=OwnHooks())}, HOOKS),
}


WAYS: dict[str, dict[str, Any]] = {
    "foreground": {},
    "background": {"background": True},
    "isolated": {"isolation": "isolated"},
}


@pytest.mark.parametrize(
    ("row", "way"),
    [
        *itertools.product(ROWS, ["foreground"]),
        *itertools.product(("command", "own tool", "hook after a call"), list(WAYS)[1:]),
    ],
)
async def test_a_report_says_what_was_not_watched(stage: Stage, row: str, way: str) -> None:
    step, options, why = ROWS[row]
    journal = MemoryJournal()
    more = WAYS[way]
    script = {
        "PARENT": [call("task", prompt="CHILD", **more), "done"],
        "CHILD": [step, "I changed nothing."],
    }
    report = await stage.run(script, journal=journal, **options)
    child = stage.reports["1.1.1"]
    assert why in child.unknown_changes.split("; ")
    assert why in report.unknown_changes.split("; ")
    told = stage.list_notes() if way == "background" else [stage.results[-1].text]
    (line,) = [
        line for text in told for line in text.splitlines() if line.startswith("[evidence: ")
    ]
    assert "no changed file seen" not in line
    assert f"files may have changed ({why}" in line
    if "goes on" not in row:  # when such work ends is no part of a record
        assert await replay(journal.events) == journal.events


@pytest.mark.parametrize("step", [READ, call("write", file_path="a.txt", content="x")])
async def test_tools_for_files_need_no_reason(stage: Stage, step: ToolCallBlock) -> None:
    quiet = {"PostToolUse": [HookCallback(look, matcher="Bash")]}
    script = {"PARENT": [call("task", prompt="CHILD"), "done"], "CHILD": [step, "done"]}
    report = await stage.run(script, integrations=Integrations(hooks=quiet))
    assert report.unknown_changes == ""
    assert "files may have changed" not in stage.results[-1].text


@pytest.mark.skipif(get_landlock_version() < 3, reason="no Landlock")
async def test_a_command_in_a_sandbox_needs_no_reason(stage: Stage) -> None:
    script = {"PARENT": [call("task", prompt="CHILD"), "done"], "CHILD": [BASH, "done"]}
    report = await stage.run(script, sandbox="file")
    assert report.unknown_changes == ""
    assert "no changed file seen" in stage.results[-1].text


async def test_the_reasons_of_several_calls_are_all_told_once(stage: Stage) -> None:
    steps = [call("deploy"), BASH, BASH, call("deploy"), call("keep")]
    script = {"PARENT": [call("task", prompt="CHILD"), "done"], "CHILD": [steps, "done"]}
    report = await stage.run(script, tools=[deploy, keep], **hook("PostToolUse"))
    reasons = report.unknown_changes.split("; ")
    assert len(reasons) == len(set(reasons)) == 4
    assert ", and 1 more reason)" in stage.results[-1].text


async def test_a_tool_of_a_server_is_not_watched_outside_the_folder(
    stage: Stage, tmp_path: Path
) -> None:
    script: list[Answer] = [
        [call("mcp_find", query="add numbers")],
        [call("mcp_call", tool="mcp__quick__add", arguments={"a": 1, "b": 2})],
        "done",
    ]

    report = await stage.run(
        script,
        sandbox="auto",
        permissions=Permissions(rules=(Rule(Verdict.ALLOW, "mcp__quick__add"),)),
        integrations=Integrations(mcp_servers=[make_quick(log=tmp_path / "log")]),
    )
    assert report.calls.get("mcp__quick__add") or report.calls.get("mcp_call")
    assert OUTSIDE in report.unknown_changes
