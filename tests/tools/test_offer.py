"""Names, schemas and sizes of the built-in tools, as a model sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mudroom._adapters.agent_files import load_builtin_agent
from mudroom._adapters.tools import make_builtin_tools
from mudroom._core.tools import Effect


def test_the_seven_tools_come_in_order() -> None:
    assert list(make_builtin_tools()) == ["bash", "read", "write", "edit", "glob", "grep", "todo"]


def test_schemas_and_texts_are_small() -> None:
    offered = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in make_builtin_tools().values()
    ]
    size = len(json.dumps(offered, separators=(",", ":")))
    instructions = len(load_builtin_agent("general").instructions.encode())
    environment_text = 130  # folder, platform and date, with the JSON around the system prompt
    assert size + instructions + environment_text <= 2_400


@pytest.mark.parametrize("name", make_builtin_tools())
def test_schemas_hold_no_noise(name: str) -> None:
    tool = make_builtin_tools()[name]
    text = json.dumps(tool.parameters)
    assert tool.parameters["type"] == "object"
    assert not [
        noise
        for noise in ("title", "$ref", "$defs", "default", "additionalProperties", "anyOf")
        if f'"{noise}"' in text
    ]
    assert tool.description == tool.description.strip() != ""


def test_effects() -> None:
    effects = {name: tool.effect for name, tool in make_builtin_tools().items()}
    assert {name for name, effect in effects.items() if effect is Effect.PURE} == {
        "read",
        "glob",
        "grep",
        "todo",
    }
    assert {name for name, effect in effects.items() if effect is Effect.KEYED} == {"write", "edit"}
    assert effects["bash"] is Effect.EFFECTFUL


@pytest.mark.parametrize("name", ["write", "edit"])
def test_one_file_has_one_key(name: str) -> None:
    tool = make_builtin_tools()[name]
    arguments = {"write": {"content": ""}, "edit": {"old_string": "a", "new_string": "b"}}[name]
    assert (
        tool.get_key(tool.parse({"file_path": "a/../b.py", **arguments}))
        == tool.get_key(tool.parse({"file_path": "./b.py", **arguments}))
        == "b.py"
    )


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
            (
                "output_mode: invalid enum value 'x'; expected one of content, count, "
                "files_with_matches"
            ),
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
        make_builtin_tools()[name].parse(arguments)
    assert str(caught.value) == expected


def test_arguments_are_read_leniently() -> None:
    tools = make_builtin_tools()

    def parse(name: str, arguments: dict[str, Any]) -> Any:
        return tools[name].parse_arguments(arguments)

    read = parse("read", {"file_path": "a", "offset": "5", "limit": None})
    assert (read.offset, read.limit) == (5, None)
    edit = {"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": "true"}
    assert parse("edit", edit).replace_all is True
    grep = {"pattern": "a", "-i": "true", "-C": "2", "-n": False, "multiline": True}
    assert parse("grep", grep).before_and_after == 2
    todo = {"todos": '[{"content": "a", "status": "pending"}]'}
    assert parse("todo", todo).todos[0].content == "a"
    bash = {"command": "ls", "timeout": 5000.0, "description": "List"}
    assert parse("bash", bash).timeout == 5000
