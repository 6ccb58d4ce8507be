"""Matchers of hooks: exact names and regular expressions of JavaScript; names of tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.integrations.hook_programs.events import parse_matcher
from mudroom._adapters.integrations.hook_programs.tool_shapes import (
    from_hook_input,
    read_hook_response,
    to_hook_input,
    to_hook_response,
)
from mudroom._core.messages import ToolCallBlock
from mudroom._core.tools import ToolResult
from mudroom._projections.claude import get_claude_name

MATCHING = (
    ("", "Bash"),
    ("*", "Bash"),
    ("Bash", "Bash"),
    ("Bash|Edit", "Edit"),
    ("Bash, Edit", "Edit"),
    ("Bash,Edit|Write", "Write"),
    (" Bash ", "Bash"),
    ("Task", "Agent"),
    ("Agent", "Agent"),
    ("Task|Bash", "Agent"),
    ("^Task$", "Agent"),
    ("mcp__memory__add", "mcp__memory__add"),
    ("mcp__.*", "mcp__memory__add"),
    ("mcp__memory__.*", "mcp__memory__add"),
    ("mcp__.*__write.*", "mcp__files__write_file"),
    (".*", "Anything"),
    ("^Bash$", "Bash"),
    ("Edit.*", "MultiEdit"),
    ("(Write|Edit)$", "MultiEdit"),
    ("Notebook.*|Edit", "NotebookEdit"),
    ("[A-Z]ash", "Bash"),
    (r"\w+", "Bash"),
    ("(?<name>Ba)sh", "Bash"),
    (r"(?<twice>s)h\k<twice>", "shs"),
    ("(?!Bash)Edit", "Edit"),
    ("(?<=Multi)Edit", "MultiEdit"),
    ("code-reviewer", "code-reviewer"),
    ("startup|resume", "resume"),
    (r"Bash\$", "Bash$"),
    ("[$]", "a$b"),
)
DIFFERENT = (
    ("bash", "Bash"),
    ("Bash", "bash"),
    ("Edit", "MultiEdit"),
    ("Bash|Edit", "Write"),
    ("mcp__memory", "mcp__memory__add"),
    ("mcp__memory__.*", "mcp__files__add"),
    ("^Edit", "MultiEdit"),
    ("Bash$", "Bash\n"),
    ("Task", "TaskStop"),
    ("task", "Agent"),
    ("code reviewer", "code-reviewer"),
    ("|", "Bash"),
)
UNUSABLE = (
    (r"\p{Lu}ash", r"\p{...}"),
    (r"\u{42}ash", r"\u{...}"),
    (r"\cA.", r"\cX"),
    ("(?P<name>Bash)", "JavaScript lacks"),
    (r"\ABash", "JavaScript lacks"),
    ("Bash(", "no regular expression"),
    ("*Bash", "no regular expression"),
    ("[^]", "[] or [^]"),
)


@pytest.mark.parametrize(("matcher", "name"), MATCHING)
def test_a_matcher_selects(matcher: str, name: str) -> None:
    assert parse_matcher(matcher).matches(name)


@pytest.mark.parametrize(("matcher", "name"), DIFFERENT)
def test_a_matcher_does_not_select(matcher: str, name: str) -> None:
    assert not parse_matcher(matcher).problem
    assert not parse_matcher(matcher).matches(name)


@pytest.mark.parametrize(("matcher", "problem"), UNUSABLE)
def test_a_matcher_that_cannot_be_used_says_why(matcher: str, problem: str) -> None:
    assert problem in parse_matcher(matcher).problem
    assert not parse_matcher(matcher).matches("Bash")


INPUTS: tuple[tuple[str, dict[str, Any], str, dict[str, Any]], ...] = (
    (
        "bash",
        {"command": "make", "timeout": 5, "background": True},
        "Bash",
        {"command": "make", "timeout": 5, "run_in_background": True},
    ),
    ("read", {"file_path": "a.txt", "offset": 3}, "Read", {"file_path": "/w/a.txt", "offset": 3}),
    (
        "write",
        {"file_path": "/x/a", "content": "c"},
        "Write",
        {"file_path": "/x/a", "content": "c"},
    ),
    (
        "edit",
        {"file_path": "b/../a", "old_string": "1", "new_string": "2"},
        "Edit",
        {"file_path": "/w/a", "old_string": "1", "new_string": "2"},
    ),
    ("glob", {"pattern": "*.py"}, "Glob", {"pattern": "*.py"}),
    ("grep", {"pattern": "x", "path": "src"}, "Grep", {"pattern": "x", "path": "/w/src"}),
    ("todo", {"todos": []}, "TodoWrite", {"todos": []}),
    ("skill", {"name": "s", "arguments": "a"}, "Skill", {"skill": "s", "args": "a"}),
    (
        "task",
        {"prompt": "p", "description": "d", "agent": "explore", "background": False},
        "Agent",
        {"prompt": "p", "description": "d", "subagent_type": "explore", "run_in_background": False},
    ),
    ("web_fetch", {"url": "http://x"}, "WebFetch", {"url": "http://x"}),
    ("mcp__memory__add", {"path": "a"}, "mcp__memory__add", {"path": "a"}),
    ("my_tool", {"background": 1}, "my_tool", {"background": 1}),
)


@pytest.mark.parametrize(("tool", "ours", "name", "theirs"), INPUTS, ids=lambda value: str(value))
def test_inputs_are_translated_in_both_directions(
    tool: str, ours: dict[str, Any], name: str, theirs: dict[str, Any]
) -> None:
    block = ToolCallBlock("1", tool, ours)
    sent = to_hook_input(block, "/w")
    assert (sent.name, sent.arguments) == (name, theirs)
    assert from_hook_input(block, sent, theirs) == ours
    assert get_claude_name(name) == name


def test_a_changed_path_is_used_as_the_hook_wrote_it() -> None:
    block = ToolCallBlock("1", "read", {"file_path": "a"})
    sent = to_hook_input(block, "/w")
    assert from_hook_input(block, sent, {"file_path": "/w/b"}) == {"file_path": "/w/b"}


@pytest.mark.parametrize(
    ("tool", "arguments", "text", "expected"),
    [
        ("bash", {"command": "ls"}, "a", {"stdout": "a", "stderr": "", "interrupted": False}),
        ("write", {"file_path": "a", "content": "c"}, "created a", {"type": "create"}),
        ("write", {"file_path": "a", "content": "c"}, "overwrote a", {"type": "update"}),
        ("edit", {"file_path": "a", "old_string": "1", "new_string": "2"}, "", {"newString": "2"}),
        ("task", {"prompt": "p"}, "done", {"status": "completed", "prompt": "p"}),
        ("glob", {}, "a\nb", {"content": [{"type": "text", "text": "a\nb"}]}),
    ],
)
def test_responses_have_the_fields_of_their_tool(
    tool: str, arguments: dict[str, Any], text: str, expected: dict[str, Any]
) -> None:
    sent = to_hook_input(ToolCallBlock("1", tool, arguments), "/w")
    response = to_hook_response(sent, ToolResult(text))
    assert expected.items() <= response.items()


def test_a_response_of_read_has_the_file_without_numbers() -> None:
    sent = to_hook_input(ToolCallBlock("1", "read", {"file_path": "a"}), "/w")
    response = to_hook_response(sent, ToolResult("1\tone\n2\ttwo", detail={"lines": 2}))
    assert response["file"]["content"] == "one\ntwo"
    assert (response["file"]["filePath"], response["file"]["numLines"]) == (str(Path("/w/a")), 2)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("plain", "plain"),
        ({"stdout": "a", "stderr": "b"}, "a\nb"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": "c"}, "c"),
        ({"other": 1}, '{"other":1}'),
        ([1], "[1]"),
    ],
)
def test_a_response_of_a_hook_becomes_text(output: object, text: str) -> None:
    assert read_hook_response(output) == text
