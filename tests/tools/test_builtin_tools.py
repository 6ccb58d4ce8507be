"""The built-in tools as a model sees them, and the facts that each tool states about itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mudroom._adapters import tools
from mudroom._adapters.agent_files import load_builtin_agent
from mudroom._adapters.tools import make_builtin_tools
from mudroom._cli.output.text import ASCII
from mudroom._cli.output.tool_call_lines import format_tool_call
from mudroom._core.agents import Mode
from mudroom._core.events import ToolCallStarted
from mudroom._core.messages import ToolCallBlock
from mudroom._core.tools import Effect, PreviewLine, Tool, ToolCategory, ToolResult
from mudroom.permissions.policy import RulePolicy
from mudroom.permissions.rules import Permissions

FOLDER = Path(tools.__file__).parent
TOOLS = make_builtin_tools()


def test_the_list_names_every_module_with_a_tool_in_order() -> None:
    assert list(TOOLS) == ["bash", "read", "write", "edit", "glob", "grep", "todo"]
    modules = {path.stem for path in FOLDER.glob("[a-z]*.py")}
    always = set(tools.BUILTIN_TOOLS)
    assert modules - {"board", "function", "skill", "web_fetch", "web_search"} == always
    assert {path.stem for path in FOLDER.glob("*.md")} - {"skill", "web_fetch"} == always


def test_schemas_and_texts_are_small() -> None:
    offered = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in TOOLS.values()
    ]
    size = len(json.dumps(offered, separators=(",", ":")))
    instructions = len(load_builtin_agent("general").instructions.encode())
    environment_text = 130  # folder, platform and date, with the JSON around the system prompt
    assert size + instructions + environment_text <= 2_400


@pytest.mark.parametrize("name", TOOLS)
def test_facts_are_complete_and_schemas_hold_no_noise(name: str) -> None:
    tool = TOOLS[name]
    assert tool.parameters["type"] == "object"
    noise = ("title", "$ref", "$defs", "default", "additionalProperties", "anyOf")
    text = json.dumps(tool.parameters)
    assert not [word for word in noise if f'"{word}"' in text]
    assert tool.description == tool.description.strip() != ""
    assert tool.category
    named = {tool.path_argument, tool.rule_argument} - {""}
    assert named <= set(tool.parameters["properties"])


def test_effects() -> None:
    pure = {name for name, tool in TOOLS.items() if tool.effect is Effect.PURE}
    assert pure == {"read", "glob", "grep", "todo"}
    assert {name for name, tool in TOOLS.items() if tool.effect is Effect.KEYED} == {
        "write",
        "edit",
    }
    assert TOOLS["bash"].effect is Effect.EFFECTFUL


def test_the_background_is_offered() -> None:
    assert TOOLS["bash"].parameters["properties"]["background"] == {"type": "boolean"}
    assert "background" in TOOLS["bash"].description


@pytest.mark.parametrize("name", ["write", "edit"])
def test_one_file_has_one_key(name: str) -> None:
    tool = TOOLS[name]
    arguments = {"write": {"content": ""}, "edit": {"old_string": "a", "new_string": "b"}}[name]
    paths = ("a/../b.py", "./b.py")
    keys = {tool.get_key(tool.parse({"file_path": path, **arguments})) for path in paths}
    assert keys == {"b.py"}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read", {}, "file_path: required; expected string"),
        ("read", {"file_path": 5}, "file_path: is integer; expected string"),
        ("read", {"file_path": "a", "offset": "x"}, "offset: is string; expected integer"),
        (
            "read",
            {"file_path": "a", "line": 1},
            "line: unknown; the arguments are file_path, offset, limit",
        ),
        ("read", {"file_path": "a", "offset": -1}, "offset: is negative; the first line is 1"),
        (
            "read",
            {"file_path": "a", "limit": 0},
            "limit: is less than 1; leave it out for 2,000 lines",
        ),
        (
            "grep",
            {"pattern": "a", "output_mode": "x"},
            "output_mode: invalid enum value 'x'; expected one of content, count, "
            "files_with_matches",
        ),
        ("todo", {"todos": [{"status": "pending"}]}, "todos[0].content: required; expected string"),
        (
            "todo",
            {"todos": [{"content": "a"}, {"content": "b"}]},
            "todos[0].status: required; expected one of completed, in_progress, pending",
        ),
        ("todo", {"todos": "a"}, "todos: is string; expected array"),
        ("bash", {"command": "  "}, "command: is empty; give a bash command"),
        ("bash", {"command": "a\0b"}, "command: contains a NUL character; leave it out"),
    ],
)
def test_wrong_arguments_are_reported_with_their_place(
    name: str, arguments: dict[str, object], expected: str
) -> None:
    with pytest.raises(ValueError) as caught:
        TOOLS[name].parse(arguments)
    assert str(caught.value) == expected


def test_arguments_are_read_leniently() -> None:
    def parse(name: str, **arguments: Any) -> Any:
        return TOOLS[name].parse_arguments(arguments)

    read = parse("read", file_path="a", offset="5", limit=None)
    assert (read.offset, read.limit) == (5, None)
    edit = parse("edit", file_path="a", old_string="b", new_string="c", replace_all="true")
    assert edit.replace_all is True
    more = {"-i": "true", "-C": "2", "-n": False}
    assert parse("grep", pattern="a", multiline=True, **more).before_and_after == 2
    todo = parse("todo", todos='[{"content": "a", "status": "pending"}]')
    assert todo.todos[0].content == "a"
    assert parse("bash", command="ls", timeout=5000.0, description="List").timeout == 5000


async def run(context: object, arguments: object) -> ToolResult:
    return ToolResult("done")


def preview(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    return [("+", arguments["text"])]


@pytest.fixture
def new_tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Add a module with one tool to the package: that is all that a new tool needs."""
    append = Tool(
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
    module = ModuleType("mudroom._adapters.tools.append")
    module.__dict__["APPEND"] = append
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(tools, "BUILTIN_TOOLS", (*tools.BUILTIN_TOOLS, "append"))
    return append


def test_rules_about_files_apply_to_a_new_tool(new_tool: Tool, tmp_path: Path) -> None:
    permissions = Permissions.of(deny=["Edit(secret/**)", "append(own.txt)"])
    policy = RulePolicy(
        permissions,
        workspace=str(tmp_path),
        user_home="/",
        tools=make_builtin_tools(),
        tier=lambda: "full",
    )

    def decide_access(path: str, mode: Mode = Mode.DEFAULT) -> str:
        return policy.decide(new_tool, {"target": path}, mode).verdict

    assert decide_access("secret/key") == "deny"
    assert decide_access("own.txt") == "deny"
    assert decide_access("notes.txt") == "allow"
    assert decide_access("notes.txt", Mode.PLAN) == "deny"


def show(call: ToolCallBlock, result: ToolResult, columns: int, *, full: bool = False) -> list[str]:
    """Return the rows that a screen shows of a call; none is too long."""
    started = ToolCallStarted(at=1, call=call)
    lines = format_tool_call(started, result, None, columns, ASCII, full=full)
    rows = ["".join(part for part, _ in line) for line in lines]
    assert all(len(row) <= columns for row in rows)
    return rows


@pytest.mark.usefixtures("new_tool")
def test_screens_show_the_preview_of_a_new_tool() -> None:
    call = ToolCallBlock("c1", "append", {"target": "a.txt", "text": "one line"})
    rows = show(call, ToolResult("done"), 80)
    assert "append" in rows[0]
    assert rows[1].endswith("+ one line")


@pytest.mark.parametrize("columns", [40, 80])
def test_screens_show_a_change_at_the_end_of_a_long_line(columns: int) -> None:
    arguments = {"file_path": "a.py", "old_string": "4500", "new_string": "5000"}
    result = ToolResult("edited a.py", detail={"line": 7, "before": "the_words " * 12})
    rows = show(ToolCallBlock("c1", "edit", arguments), result, columns)
    assert rows[1].endswith("the_words ") and "- 7  the_words" in rows[1]
    assert {row.split()[-1] for row in rows if row.endswith("00")} == {"4500", "5000"}
    assert rows[2].startswith(" " * 9 + "the_words")


@pytest.mark.parametrize("columns", [40, 80])
def test_the_remedy_at_the_end_of_an_error_is_shown_and_a_full_result_is_wrapped(
    columns: int,
) -> None:
    call = ToolCallBlock("c1", "edit", {"file_path": "a.py"})
    text = "old_string is not in a.py. Nothing in it is similar. Read the file again and repeat."

    def show_error(text: str, *, full: bool = False) -> str:
        rows = show(call, ToolResult(text, error=True), columns, full=full)
        return " ".join(" ".join(rows).split())

    assert show_error(text).endswith("Read the file again and repeat.")
    many = "\n".join(f"{text} {n}" for n in range(90))
    assert "more lines (ctrl+o)" in show_error(many)
    assert show_error(many, full=True).count("again and repeat.") == 90
