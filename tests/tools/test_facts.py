"""Facts about tools: each tool states them itself, so a new tool is one module."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mudroom._adapters import tools
from mudroom._cli.output.text import ASCII
from mudroom._cli.output.tool_call_lines import format_tool_call
from mudroom._core.agents import Mode
from mudroom._core.events import ToolCallStarted
from mudroom._core.messages import ToolCallBlock
from mudroom._core.tools import Effect, PreviewLine, Tool, ToolCategory, ToolResult
from mudroom.permissions.policy import RulePolicy
from mudroom.permissions.rules import Permissions

FOLDER = Path(tools.__file__).parent


async def run(context: object, arguments: object) -> ToolResult:
    return ToolResult("done")


def preview(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    return [("+", arguments["text"])]


APPEND = Tool(
    name="append",
    description="Append text to a file.",
    parameters={"type": "object"},
    parse=dict,
    run=run,
    effect=Effect.KEYED,
    category=ToolCategory.WRITE,
    path_argument="target",
    preview=preview,
    preview_lines=3,
)


@pytest.fixture
def new_tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Add a module with one tool to the package."""
    module = ModuleType("mudroom._adapters.tools.append")
    module.__dict__["APPEND"] = APPEND
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(tools, "BUILTIN_TOOLS", (*tools.BUILTIN_TOOLS, "append"))
    return APPEND


def test_the_list_names_every_module_with_a_tool() -> None:
    modules = {path.stem for path in FOLDER.glob("[a-z]*.py")}
    always = set(tools.BUILTIN_TOOLS)
    assert modules - {"board", "function", "skill", "web_fetch", "web_search"} == always
    assert {path.stem for path in FOLDER.glob("*.md")} - {"skill", "web_fetch"} == always


def test_every_built_in_tool_has_a_category() -> None:
    assert all(tool.category for tool in tools.make_builtin_tools().values())


def test_arguments_named_by_facts_exist() -> None:
    for tool in tools.make_builtin_tools().values():
        arguments = tool.parameters["properties"]
        named = {tool.path_argument, tool.rule_argument} - {""}
        assert named <= set(arguments)


def test_rules_about_files_apply_to_a_new_tool(new_tool: Tool, tmp_path: Path) -> None:
    permissions = Permissions.of(deny=["Edit(secret/**)", "append(own.txt)"])
    policy = RulePolicy(
        permissions,
        workspace=str(tmp_path),
        user_home="/",
        tools=tools.make_builtin_tools(),
        tier=lambda: "full",
    )

    def decide_access(path: str, mode: Mode = Mode.DEFAULT) -> str:
        return policy.decide(new_tool, {"target": path}, mode).verdict

    assert decide_access("secret/key") == "deny"
    assert decide_access("own.txt") == "deny"
    assert decide_access("notes.txt") == "allow"
    assert decide_access("notes.txt", Mode.PLAN) == "deny"


def test_screens_show_the_preview_of_a_new_tool(new_tool: Tool) -> None:
    call = ToolCallBlock("c1", "append", {"target": "a.txt", "text": "one line"})
    lines = format_tool_call(ToolCallStarted(at=1, call=call), ToolResult("done"), None, 80, ASCII)
    text = ["".join(part for part, _ in line) for line in lines]
    assert "append" in text[0]
    assert text[1].endswith("+ one line")


@pytest.mark.parametrize("columns", [40, 80])
def test_screens_show_a_change_at_the_end_of_a_long_line(columns: int) -> None:
    arguments = {"file_path": "a.py", "old_string": "4500", "new_string": "5000"}
    call = ToolCallBlock("c1", "edit", arguments)
    result = ToolResult("edited a.py", detail={"line": 7, "before": "the_words " * 12})
    lines = format_tool_call(ToolCallStarted(at=1, call=call), result, None, columns, ASCII)
    rows = ["".join(part for part, _ in line) for line in lines]
    assert all(len(row) <= columns for row in rows)
    assert rows[1].endswith("the_words ") and "- 7  the_words" in rows[1]
    assert {row.split()[-1] for row in rows if row.endswith("00")} == {"4500", "5000"}
    assert rows[2].startswith(" " * 9 + "the_words")


@pytest.mark.parametrize("columns", [40, 80])
def test_the_remedy_at_the_end_of_an_error_is_shown_and_a_full_result_is_wrapped(
    columns: int,
) -> None:
    started = ToolCallStarted(at=1, call=ToolCallBlock("c1", "edit", {"file_path": "a.py"}))
    text = "old_string is not in a.py. Nothing in it is similar. Read the file again and repeat."

    def show(text: str, *, full: bool = False) -> str:
        result = ToolResult(text, error=True)
        lines = format_tool_call(started, result, None, columns, ASCII, full=full)
        rows = ["".join(part for part, _ in line) for line in lines]
        assert all(len(row) <= columns for row in rows)
        return " ".join(" ".join(rows).split())

    assert show(text).endswith("Read the file again and repeat.")
    many = "\n".join(f"{text} {n}" for n in range(90))
    assert "more lines (ctrl+o)" in show(many)
    assert show(many, full=True).count("again and repeat.") == 90
