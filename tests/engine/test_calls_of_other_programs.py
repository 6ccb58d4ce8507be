"""Calls as other programs' tools take them: executed with the right effect, or refused with a way.

The models of these programs know their tools by heart and call them whatever the schema says. One
row is one call in its native form, with all arguments that the program's tool has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mudroom import Integrations
from mudroom._adapters.tools.bash import BASH
from mudroom._adapters.tools.web_fetch import make_web_fetch_tool
from mudroom._core.events import StoredEvent, ToolCallStarted
from mudroom._core.messages import ToolCallBlock
from mudroom._replay import replay
from mudroom.permissions import Permissions
from mudroom.ports import HookCallback

from .conftest import Stage

NOTES = "one\ntwo\nthree\n"


def change(name: str, text: str, **arguments: Any) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Make a row whose call leaves this text in notes.txt."""
    return name, arguments, {"notes.txt": text}


EDITS = {
    "Claude Code": change(
        "Edit", "one\n2\nthree\n", file_path="notes.txt", old_string="two", new_string="2"
    ),
    "Claude Code, several": change(
        "MultiEdit",
        "1\n22\nthree\n",
        file_path="notes.txt",
        edits=[
            {"old_string": "one", "new_string": "1"},
            {"old_string": "two", "new_string": "2", "replace_all": False},
            {"old_string": "2", "new_string": "22"},
        ],
    ),
    "Claude Code, JSON text": change(
        "MultiEdit",
        "1\n2\nthree\n",
        file_path="notes.txt",
        edits=json.dumps([{"old_string": "one", "new_string": "1"}, {"old": "two", "new": "2"}]),
    ),
    "Claude Code, one in a list": change(
        "MultiEdit",
        "1\ntwo\nthree\n",
        file_path="notes.txt",
        edits=[{"old_string": "one", "new_string": "1"}],
    ),
    "Gemini CLI": change(
        "replace",
        "one\n2\nthree\n",
        file_path="notes.txt",
        instruction="Write the number.",
        old_string="two",
        new_string="2",
        allow_multiple=False,
    ),
    "Gemini CLI, all": change(
        "replace",
        "one\n_wo\n_hree\n",
        file_path="notes.txt",
        instruction="Hide the letter.",
        old_string="t",
        new_string="_",
        allow_multiple=True,
    ),
    "Gemini CLI, counted": change(
        "replace",
        "one\n_wo\n_hree\n",
        file_path="notes.txt",
        instruction="Hide the letter.",
        old_string="t",
        new_string="_",
        expected_replacements=2,
    ),
    "Qwen Code": change(
        "edit",
        "one\n2\nthree\n",
        file_path="notes.txt",
        old_string="two",
        new_string="2",
        replace_all=False,
    ),
    "opencode": change(
        "edit",
        "one\n2\nthree\n",
        filePath="notes.txt",
        oldString="two",
        newString="2",
        replaceAll=False,
    ),
    "opencode, several": change(
        "multiedit",
        "1\n2\nthree\n",
        filePath="notes.txt",
        edits=[
            {"filePath": "notes.txt", "oldString": "one", "newString": "1"},
            {"filePath": "notes.txt", "oldString": "two", "newString": "2", "replaceAll": False},
        ],
    ),
    "kimi-cli": change(
        "StrReplaceFile",
        "one\n2\nthree\n",
        path="notes.txt",
        edit={"old": "two", "new": "2", "replace_all": False},
    ),
    "kimi-cli, several": change(
        "StrReplaceFile",
        "1\n2\nthree\n",
        path="notes.txt",
        edit=[{"old": "one", "new": "1"}, {"old": "two", "new": "2"}],
    ),
    "goose": change("edit", "one\n2\nthree\n", path="notes.txt", before="two", after="2"),
    "pi": change(
        "edit",
        "1\n2\nthree\n",
        path="notes.txt",
        edits=[
            {"oldText": "one", "newText": "1"},
            {"oldText": "two", "newText": "2"},
        ],
    ),
    "replacements": change(
        "edit_file",
        "one\n2\nthree\n",
        path="notes.txt",
        replacements=[{"old_text": "two", "new_text": "2"}],
    ),
    "deepagents": change(
        "edit_file",
        "one\n2\nthree\n",
        file_path="notes.txt",
        old_string="two",
        new_string="2",
        replace_all=False,
    ),
    "the short name of Anthropic's": change(
        "str_replace", "one\n2\nthree\n", path="notes.txt", old_str="two", new_str="2"
    ),
    "Anthropic's text editor": change(
        "str_replace_based_edit_tool",
        "one\n2\nthree\n",
        command="str_replace",
        path="notes.txt",
        old_str="two",
        new_str="2",
    ),
    "Anthropic's text editor, strict schema": change(
        "str_replace_based_edit_tool",
        "one\n2\nthree\n",
        command="str_replace",
        path="notes.txt",
        old_str="two",
        new_str="2",
        file_text=None,
        insert_line=None,
        view_range=None,
    ),
    "Anthropic's text editor, which deletes": change(
        "str_replace_based_edit_tool",
        "one\nthree\n",
        command="str_replace",
        path="notes.txt",
        old_str="two\n",
    ),
    "a strict schema with edits": change(
        "edit", "one\n2\nthree\n", path="notes.txt", old_str="two", new_str="2", edits=[]
    ),
    "goose's text editor": change(
        "developer__text_editor",
        "one\n2\nthree\n",
        command="str_replace",
        path="notes.txt",
        old_str="two",
        new_str="2",
    ),
}
WRITES = {
    "Claude Code": change("Write", "new\n", file_path="notes.txt", content="new\n"),
    "Gemini CLI": change("write_file", "new\n", file_path="notes.txt", content="new\n"),
    "opencode": change("write", "new\n", filePath="notes.txt", content="new\n"),
    "kimi-cli": change("WriteFile", "new\n", path="notes.txt", content="new\n", mode="overwrite"),
    "goose": change("write", "new\n", path="notes.txt", content="new\n"),
    "Anthropic's text editor": change(
        "str_replace_editor", "new\n", command="create", path="notes.txt", file_text="new\n"
    ),
    "goose's text editor": change(
        "text_editor", "new\n", command="write", path="notes.txt", file_text="new\n"
    ),
}
COMMANDS = {
    "Claude Code": change(
        "Bash",
        "ran\n",
        command="echo ran > notes.txt",
        description="Run",
        timeout=5_000,
        run_in_background=False,
        dangerouslyDisableSandbox=True,
    ),
    "Codex, words": change(
        "shell",
        "ran\n",
        command=["bash", "-lc", "echo ran > notes.txt"],
        workdir=".",
        timeout_ms=5_000,
        with_escalated_permissions=True,
        justification="why not",
    ),
    "Codex, words as JSON text": change(
        "shell", "ran\n", command=json.dumps(["bash", "-lc", "echo ran > notes.txt"])
    ),
    "a test, which is no JSON": change(
        "shell", "ran\n", command="[ -f notes.txt ] && echo ran > notes.txt"
    ),
    "Anthropic's bash": change("bash", "ran\n", command="echo ran > notes.txt", restart=False),
    "Codex, words without a shell": change("shell", "", command=["cp", "/dev/null", "notes.txt"]),
    "Codex, text": change(
        "shell_command",
        "ran\n",
        command="echo ran > ../notes.txt",
        workdir="sub dir",
        timeout_ms=5_000,
        login=True,
        sandbox_permissions="require_escalated",
        justification="why not",
        prefix_rule=["echo"],
    ),
    "Codex, exec_command": change(
        "exec_command",
        "a\nran\n",
        cmd="echo a > ../notes.txt; echo ran >> ../notes.txt # done",
        workdir="sub dir",
        shell="/bin/bash",
        login=False,
        tty=False,
        yield_time_ms=1_000,
        max_output_tokens=1_000,
    ),
    "Codex, another shell": change(
        "exec_command", "ran it's\n", cmd='echo "ran it\'s" > notes.txt', shell="sh"
    ),
    "Codex, the other name": change(
        "exec_command", "ran\n", command="echo ran > notes.txt", yield_time_ms=1_000
    ),
    "gpt-oss": change(
        "container.exec",
        "ran\n",
        cmd=["bash", "-lc", "echo ran > notes.txt"],
        workdir=None,
        timeout=5_000,
    ),
    "Gemini CLI": change(
        "run_shell_command",
        "ran\n",
        command="echo ran > ../notes.txt",
        description="Run",
        dir_path="sub dir",
        is_background=False,
    ),
    "Qwen Code": change(
        "run_shell_command",
        "ran\n",
        command="echo ran > ../notes.txt",
        is_background=False,
        timeout=5_000,
        description="Run",
        directory="sub dir",
    ),
    "opencode": change(
        "bash",
        "ran\n",
        command="echo ran > ../notes.txt",
        timeout=5_000,
        workdir="sub dir",
        description="Run",
    ),
    "kimi-cli": change("Shell", "ran\n", command="echo ran > notes.txt", timeout=5),
    "goose": change("shell", "ran\n", command="echo ran > notes.txt", timeout_secs=5),
}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{row[0]}: {system}")
        for rows in (EDITS, WRITES, COMMANDS)
        for system, row in rows.items()
    ],
)
async def test_a_native_call_changes_the_file_as_it_means_to(
    stage: Stage, row: tuple[str, dict[str, Any], Mapping[str, str]]
) -> None:
    (stage.folder / "sub dir").mkdir()
    name, arguments, files = row
    await stage.run([[ToolCallBlock("", name, arguments)], "end"])
    (result,) = stage.results
    assert not result.error, result.text
    for path, text in files.items():
        assert (stage.folder / path).read_text() == text


READS: dict[str, tuple[str, dict[str, Any], str]] = {
    "Claude Code": ("Read", {"file_path": "notes.txt", "offset": 2, "limit": 1}, "2\ttwo"),
    "Gemini CLI": (
        "read_file",
        {"file_path": "notes.txt", "start_line": 2, "end_line": 2},
        "2\ttwo",
    ),
    "Gemini CLI, texts": (
        "read_file",
        {"file_path": "notes.txt", "start_line": "2", "end_line": "2"},
        "2\ttwo",
    ),
    "Gemini CLI, older": (
        "read_file",
        {"absolute_path": "notes.txt", "offset": 1, "limit": 1},
        "2\ttwo",
    ),
    "Qwen Code": ("read_file", {"file_path": "notes.txt", "offset": 1, "limit": 1}, "2\ttwo"),
    "Codex": ("read_file", {"file_path": "notes.txt", "offset": 2, "limit": 1}, "2\ttwo"),
    "Codex, slice": (
        "read_file",
        {"file_path": "notes.txt", "offset": 2, "limit": 1, "mode": "slice"},
        "2\ttwo",
    ),
    "opencode": ("read", {"filePath": "notes.txt", "offset": 2, "limit": 1}, "2\ttwo"),
    "kimi-cli": ("ReadFile", {"path": "notes.txt", "line_offset": 2, "n_lines": 1}, "2\ttwo"),
    "Anthropic's text editor": (
        "str_replace_based_edit_tool",
        {"command": "view", "path": "notes.txt", "view_range": [2, 2]},
        "2\ttwo",
    ),
    "Anthropic's text editor, to the end": (
        "str_replace_based_edit_tool",
        {"command": "view", "path": "notes.txt", "view_range": [2, -1]},
        "2\ttwo\n3\tthree",
    ),
    "Anthropic's text editor, whole": (
        "str_replace_based_edit_tool",
        {"command": "view", "path": "notes.txt"},
        "1\tone\n2\ttwo\n3\tthree",
    ),
    "view": ("view", {"path": "notes.txt", "view_range": "[2, 2]"}, "2\ttwo"),
    "glob of Claude Code": ("Glob", {"pattern": "*.txt", "path": "."}, "notes.txt"),
    "glob of Gemini CLI": (
        "glob",
        {
            "pattern": "N*.txt",
            "dir_path": ".",
            "case_sensitive": False,
            "respect_git_ignore": True,
            "respect_gemini_ignore": True,
        },
        "notes.txt",
    ),
    "glob of kimi-cli": (
        "Glob",
        {"pattern": "*.txt", "directory": ".", "include_dirs": False},
        "notes.txt",
    ),
    "list of Claude Code": ("LS", {"path": ".", "ignore": ["*.md"]}, "notes.txt"),
    "list of Gemini CLI": (
        "list_directory",
        {
            "dir_path": ".",
            "ignore": ["*.md"],
            "file_filtering_options": {"respect_git_ignore": True, "respect_gemini_ignore": True},
        },
        "notes.txt",
    ),
    "list of opencode": ("list", {"path": ".", "ignore": ["*.md"]}, "notes.txt"),
    "grep of Claude Code": (
        "Grep",
        {
            "pattern": "t.o",
            "path": ".",
            "output_mode": "content",
            "-n": True,
            "head_limit": 5,
            "offset": 0,
            "-i": False,
            "multiline": False,
            "type": "txt",
        },
        "notes.txt:2:two",
    ),
    "grep of Gemini CLI": (
        "grep_search",
        {
            "pattern": "T.O",
            "dir_path": ".",
            "include_pattern": "*.txt",
            "context": 0,
            "before": 0,
            "after": 0,
            "no_ignore": False,
            "max_matches_per_file": 5,
            "total_max_matches": 5,
        },
        "notes.txt:2:two",
    ),
    "grep of Gemini CLI, names": (
        "grep_search",
        {"pattern": "two", "names_only": True, "case_sensitive": True},
        "notes.txt",
    ),
    "grep of Gemini CLI, older": (
        "search_file_content",
        {"pattern": "two", "path": ".", "include": "*.txt"},
        "notes.txt:2:two",
    ),
    "grep of Qwen Code": (
        "grep_search",
        {"pattern": "two", "path": ".", "glob": "*.txt", "limit": 5},
        "notes.txt:2:two",
    ),
    "grep of opencode": ("grep", {"pattern": "two", "path": ".", "include": "*.txt"}, "notes.txt"),
    "grep of kimi-cli": (
        "Grep",
        {"pattern": "t", "path": "notes.txt", "output_mode": "count_matches", "-n": False},
        "notes.txt:2",
    ),
    "todo of Claude Code": (
        "TodoWrite",
        {"todos": [{"content": "look", "status": "in_progress", "activeForm": "Looking"}]},
        "[>] look",
    ),
    "todo of opencode": (
        "todowrite",
        {
            "todos": [
                {"content": "look", "status": "completed", "priority": "high", "id": "1"},
                {"content": "jump", "status": "cancelled", "priority": "low", "id": "2"},
            ]
        },
        "[x] look\n(1/1 completed)",
    ),
    "todo of Gemini CLI": (
        "write_todos",
        {
            "todos": [
                {"description": "look", "status": "blocked"},
                {"description": "jump", "status": "cancelled"},
            ]
        },
        "[ ] look\n(0/1 completed)",
    ),
    "todo of Gemini CLI, JSON text": (
        "write_todos",
        {
            "todos": '[{"description": "look", "status": "blocked"},'
            ' {"description": "jump", "status": "cancelled"}]'
        },
        "[ ] look\n(0/1 completed)",
    ),
    "todo of kimi-cli": (
        "SetTodoList",
        {"todos": [{"title": "look", "status": "done"}]},
        "[x] look",
    ),
    "todo of Codex": (
        "update_plan",
        {"explanation": "why", "plan": [{"step": "look", "status": "in_progress"}]},
        "[>] look",
    ),
    "todo of Qwen Code": (
        "todo_write",
        {"todos": [{"id": "1", "content": "look", "status": "pending"}]},
        "[ ] look",
    ),
    "task of Claude Code": (
        "Task",
        {
            "description": "d",
            "prompt": "CHILD",
            "subagent_type": "general-purpose",
            "run_in_background": False,
            "mode": "bypassPermissions",
        },
        "found",
    ),
    "task of kimi-cli": (
        "Agent",
        {"description": "d", "prompt": "CHILD", "subagent_type": "coder"},
        "found",
    ),
    "task of Codex": (
        "spawn_agent",
        {"message": "CHILD", "agent_type": "explorer", "fork_context": False},
        "found",
    ),
    "task of Gemini CLI": (
        "delegate_to_agent",
        {"agent_name": "codebase_investigator", "objective": "CHILD"},
        "found",
    ),
    "task of opencode": (
        "task",
        {"description": "d", "prompt": "CHILD", "subagent_type": "explore", "command": "/x"},
        "found",
    ),
}


@pytest.mark.parametrize("row", READS.values(), ids=READS)
async def test_a_native_call_gets_what_it_asks_for(
    stage: Stage, row: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, expected = row
    await stage.run({"PARENT": [[ToolCallBlock("", name, arguments)], "end"], "CHILD": ["found"]})
    (result,) = stage.list_requests("PARENT")[-1].results
    assert not result.error and expected in result.text, result.text
    assert (stage.folder / "notes.txt").read_text() == NOTES


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "Codex": ("apply_patch", {"input": "*** Begin Patch"}, "edit takes file_path, old_string"),
    "opencode": ("patch", {"patchText": "*** Begin Patch"}, "write takes file_path, content"),
    "Claude Code": (
        "NotebookEdit",
        {"notebook_path": "a.ipynb", "new_source": "x"},
        "edit takes file_path",
    ),
    "NotebookRead": ("NotebookRead", {"notebook_path": "a.ipynb"}, "read takes file_path"),
    "ExitPlanMode": ("ExitPlanMode", {"plan": "x"}, "End with your plan"),
    "Gemini CLI": ("read_many_files", {"include": ["*.txt"]}, "read takes file_path, offset"),
    "write_stdin": ("write_stdin", {"session_id": 1, "chars": "x"}, "bash takes command"),
    "tree": ("tree", {"path": "."}, "glob takes pattern, path"),
    "list_dir": ("list_dir", {"dir_path": "."}, "glob takes pattern, path"),
    "batch": ("batch", {"tool_calls": []}, "in one answer"),
    "append": ("WriteFile", {"path": "notes.txt", "content": "x", "mode": "append"}, "mode"),
    "insert": (
        "str_replace_based_edit_tool",
        {"command": "insert", "path": "notes.txt", "insert_line": 1, "new_str": "x"},
        "use edit",
    ),
    "undo": ("str_replace_editor", {"command": "undo_edit", "path": "notes.txt"}, "use edit"),
    "restart": ("bash", {"restart": True}, "each command starts a shell of its own"),
    "terminal": ("exec_command", {"cmd": "echo x > notes.txt", "tty": True}, "no terminal"),
    "ignored files": (
        "glob",
        {"pattern": "*", "respect_git_ignore": False},
        "name the ignored folder",
    ),
    "no such folder": (
        "exec_command",
        {"cmd": "echo a; echo b > notes.txt", "workdir": "nowhere"},
        "nowhere: No such file",
    ),
    "a folder that looks like an option": (
        "exec_command",
        {"cmd": "echo b > notes.txt", "workdir": "-"},
        "./-: No such file",
    ),
    "ignored files, JSON text": (
        "list_directory",
        {"dir_path": ".", "file_filtering_options": '{"respect_git_ignore": "false"}'},
        "name the ignored folder",
    ),
    "a folder that is no text": ("bash", {"command": "ls", "workdir": 5}, "workdir: is not a text"),
    "one edit and several": (
        "edit",
        {"path": "notes.txt", "old": "one", "new": "1", "edits": [{"old": "two", "new": "2"}]},
        "give one of them",
    ),
    "excluded lines": ("grep_search", {"pattern": "t", "exclude_pattern": "o"}, "grep -v"),
    "resumed child": (
        "Task",
        {"prompt": "CHILD", "description": "d", "resume": "1.1.1"},
        "send_message",
    ),
    "two names": ("read", {"file_path": "notes.txt", "path": "other.txt"}, "both mean file_path"),
    "two ranges": (
        "read_file",
        {"file_path": "notes.txt", "offset": 1, "start_line": 2},
        "the lines are given already",
    ),
    "counted wrongly": (
        "replace",
        {
            "file_path": "notes.txt",
            "instruction": "i",
            "old_string": "t",
            "new_string": "_",
            "expected_replacements": 3,
        },
        "2 times, not 3",
    ),
    "two files": (
        "multiedit",
        {
            "filePath": "notes.txt",
            "edits": [
                {"filePath": "notes.txt", "oldString": "one", "newString": "1"},
                {"filePath": "other.txt", "oldString": "two", "newString": "2"},
            ],
        },
        "another file",
    ),
    "second edit fails": (
        "MultiEdit",
        {
            "file_path": "notes.txt",
            "edits": [
                {"old_string": "one", "new_string": "1"},
                {"old_string": "one", "new_string": "2"},
            ],
        },
        "edits[1]: old_string is not in notes.txt",
    ),
    "second edit is no edit": (
        "MultiEdit",
        {
            "file_path": "notes.txt",
            "edits": [
                {"old_string": "one", "new_string": "1"},
                {"old_string": "two"},
            ],
        },
        "edits[1].new_string: required",
    ),
    "no edits": ("MultiEdit", {"file_path": "notes.txt", "edits": []}, "edits: is empty"),
    "text as an edit": (
        "MultiEdit",
        {"file_path": "notes.txt", "edits": ["one"]},
        "each edit is an object",
    ),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
async def test_what_no_tool_here_can_do_is_refused_with_the_way_to_do_it(
    stage: Stage, row: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, expected = row
    await stage.run([[ToolCallBlock("", name, arguments)], "end"])
    (result,) = stage.results
    assert result.error and expected in result.text, result.text
    assert (stage.folder / "notes.txt").read_text() == NOTES
    assert [path.name for path in stage.folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("rows", "denied"),
    [
        (EDITS, "edit"),
        (EDITS, "Edit(notes.txt)"),
        (WRITES, "write"),
        (WRITES, "Edit(notes.txt)"),
        (COMMANDS, "bash"),
        (COMMANDS, "Bash(echo:*), Bash(cp:*), Bash(sh:*)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_deny_rule_holds_for_every_name_of_its_tool(
    stage: Stage, rows: Mapping[str, tuple[str, dict[str, Any], Mapping[str, str]]], denied: str
) -> None:
    (stage.folder / "sub dir").mkdir()
    calls = [ToolCallBlock("", name, arguments) for name, arguments, _ in rows.values()]
    await stage.run([calls, "end"], permissions=Permissions.of(deny=denied.split(", ")))
    assert len(stage.results) == len(rows)
    for system, result in zip(rows, stage.results, strict=True):
        refusals = ("a rule says deny", "There is no tool")
        assert any(text in result.text for text in refusals), (system, result.text)
    assert (stage.folder / "notes.txt").read_text() == NOTES


@pytest.mark.parametrize("row", READS.values(), ids=READS)
async def test_a_denied_file_is_not_read_under_another_name(
    stage: Stage, row: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, _ = row
    if not any("notes.txt" in str(value) for value in arguments.values()):
        return  # it lists or searches a folder, or reads no file
    await stage.run(
        [[ToolCallBlock("", name, arguments)], "end"],
        permissions=Permissions.of(deny=["Read(notes.txt)"]),
    )
    (result,) = stage.results
    assert result.error and "two" not in result.text, result.text


TIMEOUTS: list[tuple[str, dict[str, Any], int]] = [
    ("Bash", {"timeout": 5_000}, 5_000),
    ("shell_command", {"timeout_ms": 5_000}, 5_000),
    ("shell", {"timeout_ms": 5_000}, 5_000),
    ("Shell", {"timeout": 5}, 5_000),
    ("Shell", {"timeout": "3600", "run_in_background": True}, 3_600_000),
    ("shell", {"timeout_secs": 5}, 5_000),
    ("run_shell_command", {"timeout": 5_000.0}, 5_000),
]


@pytest.mark.parametrize(("name", "arguments", "milliseconds"), TIMEOUTS)
def test_a_time_limit_has_the_unit_of_its_program(
    name: str, arguments: dict[str, Any], milliseconds: int
) -> None:
    parsed = BASH.parse(BASH.read_arguments({"command": "ls", **arguments}, called=name))
    assert parsed.timeout == milliseconds


PAGE = "https://example.org/a?b=c"
PAGES: dict[str, dict[str, Any]] = {
    "Claude Code": {"url": PAGE, "prompt": "What is new at https://example.com?"},
    "Gemini CLI": {"prompt": f"Read {PAGE}, then sum it up ({PAGE})."},
    "opencode": {"url": PAGE, "format": "markdown", "timeout": 20},
    "kimi-cli": {"url": PAGE},
}


@pytest.mark.parametrize("arguments", PAGES.values(), ids=PAGES)
def test_the_address_of_a_page_is_found_before_rules_judge_it(arguments: dict[str, Any]) -> None:
    tool = make_web_fetch_tool(str)
    assert tool.read_arguments(arguments) == {"url": PAGE}
    assert tool.parse(tool.read_arguments(arguments)).url == PAGE


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"prompt": "Read it."}, "names 0 addresses"),
        ({"prompt": f"Read {PAGE} and {PAGE}d"}, "names 2 addresses"),
        ({"url": PAGE, "format": "html"}, "pages come as text"),
    ],
)
def test_a_page_that_is_not_clear_is_refused(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        make_web_fetch_tool(str).read_arguments(arguments)


async def test_background_commands_are_watched_and_stopped_by_the_names_of_claude_code(
    stage: Stage,
) -> None:
    calls = [
        ToolCallBlock("", "Bash", {"command": "tail -f /dev/null", "run_in_background": True}),
        ToolCallBlock("", "BashOutput", {"bash_id": "1.1.1", "filter": "error"}),
        ToolCallBlock("", "KillShell", {"shell_id": "1.1.1"}),
    ]
    await stage.run({"PARENT": [*([call] for call in calls), "end", "end"]})
    started, watched, stopped = (result.text for result in stage.results)
    assert started.startswith("Started 1.1.1 in the background")
    assert watched == "1.1.1 tail -f /dev/null: works"
    assert stopped.startswith("1.1.1 is stopping")


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{row[0]}: {system}")
        for rows in (EDITS, WRITES, COMMANDS)
        for system, row in rows.items()
    ],
)
async def test_a_hook_sees_the_call_that_would_run(
    stage: Stage, row: tuple[str, dict[str, Any], Mapping[str, str]]
) -> None:
    (stage.folder / "sub dir").mkdir()
    name, arguments, _ = row
    seen: list[dict[str, Any]] = []

    async def refuse(hook_input: dict[str, Any]) -> dict[str, Any]:
        seen.append(hook_input)
        return {"decision": "block", "reason": "Not today."}

    hooks = {"PreToolUse": [HookCallback(refuse, matcher="Edit|Write|Bash")]}
    await stage.run(
        [[ToolCallBlock("", name, arguments)], "end"], integrations=Integrations(hooks=hooks)
    )
    assert "Not today." in stage.results[0].text
    (hook_input,) = seen
    sent = hook_input["tool_input"]
    if hook_input["tool_name"] == "Bash":
        assert "notes.txt" in sent["command"] and "workdir" not in sent
    else:
        assert sent["file_path"] == str(stage.folder / "notes.txt")
        assert "content" in sent or "old_string" in sent or "old_string" in sent["edits"][0]
    assert (stage.folder / "notes.txt").read_text() == NOTES


async def test_a_session_with_native_calls_is_resumed_and_replayed(stage: Stage) -> None:
    rows = [
        EDITS["Anthropic's text editor"],
        WRITES["goose's text editor"],
        COMMANDS["Codex, words"],
    ]
    calls = [ToolCallBlock("", name, arguments) for name, arguments, _ in rows]
    async with stage.open([*([call] for call in calls), "end"], journal="sqlite") as session:
        await session.run("PARENT")
        saved = session.id
    async with stage.open(["again"], journal="sqlite", resume=saved) as session:
        report = await session.run("PARENT, go on")
    assert report.text == "again" and (stage.folder / "notes.txt").read_text() == "ran\n"
    events = [event for event in stage.events if isinstance(event, StoredEvent)]
    assert await replay(events) == events


async def test_the_record_has_the_call_that_ran(stage: Stage) -> None:
    editor = ToolCallBlock(
        "", "str_replace_based_edit_tool", {"command": "view", "path": "notes.txt"}
    )
    shell = ToolCallBlock("", "exec_command", {"cmd": "pwd", "workdir": ".", "login": True})
    await stage.run([[editor, shell], "end"])
    started = [event.call for event in stage.events if isinstance(event, ToolCallStarted)]
    assert [(call.name, call.arguments) for call in started] == [
        ("read", {"file_path": "notes.txt"}),
        ("exec_command", {"command": "pwd"}),
    ]
