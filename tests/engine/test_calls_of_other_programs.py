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

Change = tuple[str, dict[str, Any], dict[str, str]]
"""A call's name and arguments, and the files that it leaves."""

Answer = tuple[str, dict[str, Any], str]
"""A call's name and arguments, and a part of what it returns."""


def change(name: str, text: str, **arguments: Any) -> Change:
    """Make a row whose call leaves this text in notes.txt."""
    return name, arguments, {"notes.txt": text}


def replace_two(name: str, keys: str, **more: Any) -> Change:
    """Make a row whose call replaces "two" by "2".

    Arguments:
        keys: what the program calls the path, the old text and the new text.
    """
    replacement = dict(zip(keys.split(), ("notes.txt", "two", "2"), strict=True))
    return change(name, "one\n2\nthree\n", **replacement, **more)


EDITS = {
    "Claude Code": replace_two("Edit", "file_path old_string new_string"),
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
    "Gemini CLI": replace_two(
        "replace",
        "file_path old_string new_string",
        instruction="Write the number.",
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
    "Qwen Code": replace_two("edit", "file_path old_string new_string", replace_all=False),
    "opencode": replace_two("edit", "filePath oldString newString", replaceAll=False),
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
    "goose": replace_two("edit", "path before after"),
    "pi": change(
        "edit",
        "1\n2\nthree\n",
        path="notes.txt",
        edits=[{"oldText": "one", "newText": "1"}, {"oldText": "two", "newText": "2"}],
    ),
    "replacements": change(
        "edit_file",
        "one\n2\nthree\n",
        path="notes.txt",
        replacements=[{"old_text": "two", "new_text": "2"}],
    ),
    "deepagents": replace_two("edit_file", "file_path old_string new_string", replace_all=False),
    "the short name of Anthropic's": replace_two("str_replace", "path old_str new_str"),
    "Anthropic's text editor": replace_two(
        "str_replace_based_edit_tool", "path old_str new_str", command="str_replace"
    ),
    "Anthropic's text editor, strict schema": replace_two(
        "str_replace_based_edit_tool",
        "path old_str new_str",
        command="str_replace",
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
    "a strict schema with edits": replace_two("edit", "path old_str new_str", edits=[]),
    "goose's text editor": replace_two(
        "developer__text_editor", "path old_str new_str", command="str_replace"
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


each_change = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{row[0]}: {system}")
        for rows in (EDITS, WRITES, COMMANDS)
        for system, row in rows.items()
    ],
)


@each_change
async def test_a_native_call_changes_the_file_as_it_means_to(stage: Stage, row: Change) -> None:
    (stage.folder / "sub dir").mkdir()
    name, arguments, files = row
    await stage.run([[ToolCallBlock("", name, arguments)], "end"])
    (result,) = stage.results
    assert not result.error, result.text
    for path, text in files.items():
        assert (stage.folder / path).read_text() == text


def expect(name: str, text: str, **arguments: Any) -> Answer:
    """Make a row whose call returns this text."""
    return name, arguments, text


READS = {
    "Claude Code": expect("Read", "2\ttwo", file_path="notes.txt", offset=2, limit=1),
    "Gemini CLI": expect("read_file", "2\ttwo", file_path="notes.txt", start_line=2, end_line=2),
    "Gemini CLI, texts": expect(
        "read_file", "2\ttwo", file_path="notes.txt", start_line="2", end_line="2"
    ),
    "Gemini CLI, older": expect(
        "read_file", "2\ttwo", absolute_path="notes.txt", offset=1, limit=1
    ),
    "Qwen Code": expect("read_file", "2\ttwo", file_path="notes.txt", offset=1, limit=1),
    "Codex": expect("read_file", "2\ttwo", file_path="notes.txt", offset=2, limit=1),
    "Codex, slice": expect(
        "read_file", "2\ttwo", file_path="notes.txt", offset=2, limit=1, mode="slice"
    ),
    "opencode": expect("read", "2\ttwo", filePath="notes.txt", offset=2, limit=1),
    "kimi-cli": expect("ReadFile", "2\ttwo", path="notes.txt", line_offset=2, n_lines=1),
    "Anthropic's text editor": expect(
        "str_replace_based_edit_tool", "2\ttwo", command="view", path="notes.txt", view_range=[2, 2]
    ),
    "Anthropic's text editor, to the end": expect(
        "str_replace_based_edit_tool",
        "2\ttwo\n3\tthree",
        command="view",
        path="notes.txt",
        view_range=[2, -1],
    ),
    "Anthropic's text editor, whole": expect(
        "str_replace_based_edit_tool", "1\tone\n2\ttwo\n3\tthree", command="view", path="notes.txt"
    ),
    "view": expect("view", "2\ttwo", path="notes.txt", view_range="[2, 2]"),
    "glob of Claude Code": expect("Glob", "notes.txt", pattern="*.txt", path="."),
    "glob of Gemini CLI": expect(
        "glob",
        "notes.txt",
        pattern="N*.txt",
        dir_path=".",
        case_sensitive=False,
        respect_git_ignore=True,
        respect_gemini_ignore=True,
    ),
    "glob of kimi-cli": expect(
        "Glob", "notes.txt", pattern="*.txt", directory=".", include_dirs=False
    ),
    "list of Claude Code": expect("LS", "notes.txt", path=".", ignore=["*.md"]),
    "list of Gemini CLI": expect(
        "list_directory",
        "notes.txt",
        dir_path=".",
        ignore=["*.md"],
        file_filtering_options={"respect_git_ignore": True, "respect_gemini_ignore": True},
    ),
    "list of opencode": expect("list", "notes.txt", path=".", ignore=["*.md"]),
    "grep of Claude Code": expect(
        "Grep",
        "notes.txt:2:two",
        pattern="t.o",
        path=".",
        output_mode="content",
        head_limit=5,
        offset=0,
        multiline=False,
        type="txt",
        **{"-n": True, "-i": False},
    ),
    "grep of Gemini CLI": expect(
        "grep_search",
        "notes.txt:2:two",
        pattern="T.O",
        dir_path=".",
        include_pattern="*.txt",
        context=0,
        before=0,
        after=0,
        no_ignore=False,
        max_matches_per_file=5,
        total_max_matches=5,
    ),
    "grep of Gemini CLI, names": expect(
        "grep_search", "notes.txt", pattern="two", names_only=True, case_sensitive=True
    ),
    "grep of Gemini CLI, older": expect(
        "search_file_content", "notes.txt:2:two", pattern="two", path=".", include="*.txt"
    ),
    "grep of Qwen Code": expect(
        "grep_search", "notes.txt:2:two", pattern="two", path=".", glob="*.txt", limit=5
    ),
    "grep of opencode": expect("grep", "notes.txt", pattern="two", path=".", include="*.txt"),
    "grep of kimi-cli": expect(
        "Grep",
        "notes.txt:2",
        pattern="t",
        path="notes.txt",
        output_mode="count_matches",
        **{"-n": False},
    ),
    "todo of Claude Code": expect(
        "TodoWrite",
        "[>] look",
        todos=[{"content": "look", "status": "in_progress", "activeForm": "Looking"}],
    ),
    "todo of opencode": expect(
        "todowrite",
        "[x] look\n(1/1 completed)",
        todos=[
            {"content": "look", "status": "completed", "priority": "high", "id": "1"},
            {"content": "jump", "status": "cancelled", "priority": "low", "id": "2"},
        ],
    ),
    "todo of Gemini CLI": expect(
        "write_todos",
        "[ ] look\n(0/1 completed)",
        todos=[
            {"description": "look", "status": "blocked"},
            {"description": "jump", "status": "cancelled"},
        ],
    ),
    "todo of Gemini CLI, JSON text": expect(
        "write_todos",
        "[ ] look\n(0/1 completed)",
        todos='[{"description": "look", "status": "blocked"},'
        ' {"description": "jump", "status": "cancelled"}]',
    ),
    "todo of kimi-cli": expect(
        "SetTodoList", "[x] look", todos=[{"title": "look", "status": "done"}]
    ),
    "todo of Codex": expect(
        "update_plan",
        "[>] look",
        explanation="why",
        plan=[{"step": "look", "status": "in_progress"}],
    ),
    "todo of Qwen Code": expect(
        "todo_write", "[ ] look", todos=[{"id": "1", "content": "look", "status": "pending"}]
    ),
    "task of Claude Code": expect(
        "Task",
        "found",
        description="d",
        prompt="CHILD",
        subagent_type="general-purpose",
        run_in_background=False,
        mode="bypassPermissions",
    ),
    "task of kimi-cli": expect(
        "Agent", "found", description="d", prompt="CHILD", subagent_type="coder"
    ),
    "task of Codex": expect(
        "spawn_agent", "found", message="CHILD", agent_type="explorer", fork_context=False
    ),
    "task of Gemini CLI": expect(
        "delegate_to_agent", "found", agent_name="codebase_investigator", objective="CHILD"
    ),
    "task of opencode": expect(
        "task", "found", description="d", prompt="CHILD", subagent_type="explore", command="/x"
    ),
}


@pytest.mark.parametrize("row", READS.values(), ids=READS)
async def test_a_native_call_gets_what_it_asks_for(stage: Stage, row: Answer) -> None:
    name, arguments, expected = row
    await stage.run({"PARENT": [[ToolCallBlock("", name, arguments)], "end"], "CHILD": ["found"]})
    (result,) = stage.list_requests("PARENT")[-1].results
    assert not result.error and expected in result.text, result.text
    assert (stage.folder / "notes.txt").read_text() == NOTES


REFUSED = {
    "Codex": expect("apply_patch", "edit takes file_path, old_string", input="*** Begin Patch"),
    "opencode": expect("patch", "write takes file_path, content", patchText="*** Begin Patch"),
    "Claude Code": expect(
        "NotebookEdit", "edit takes file_path", notebook_path="a.ipynb", new_source="x"
    ),
    "NotebookRead": expect("NotebookRead", "read takes file_path", notebook_path="a.ipynb"),
    "ExitPlanMode": expect("ExitPlanMode", "End with your plan", plan="x"),
    "Gemini CLI": expect("read_many_files", "read takes file_path, offset", include=["*.txt"]),
    "write_stdin": expect("write_stdin", "bash takes command", session_id=1, chars="x"),
    "tree": expect("tree", "glob takes pattern, path", path="."),
    "list_dir": expect("list_dir", "glob takes pattern, path", dir_path="."),
    "batch": expect("batch", "in one answer", tool_calls=[]),
    "append": expect("WriteFile", "mode", path="notes.txt", content="x", mode="append"),
    "insert": expect(
        "str_replace_based_edit_tool",
        "use edit",
        command="insert",
        path="notes.txt",
        insert_line=1,
        new_str="x",
    ),
    "undo": expect("str_replace_editor", "use edit", command="undo_edit", path="notes.txt"),
    "restart": expect("bash", "each command starts a shell of its own", restart=True),
    "terminal": expect("exec_command", "no terminal", cmd="echo x > notes.txt", tty=True),
    "ignored files": expect(
        "glob", "name the ignored folder", pattern="*", respect_git_ignore=False
    ),
    "no such folder": expect(
        "exec_command", "nowhere: No such file", cmd="echo a; echo b > notes.txt", workdir="nowhere"
    ),
    "a folder that looks like an option": expect(
        "exec_command", "./-: No such file", cmd="echo b > notes.txt", workdir="-"
    ),
    "ignored files, JSON text": expect(
        "list_directory",
        "name the ignored folder",
        dir_path=".",
        file_filtering_options='{"respect_git_ignore": "false"}',
    ),
    "a folder that is no text": expect("bash", "workdir: is not a text", command="ls", workdir=5),
    "one edit and several": expect(
        "edit",
        "give one of them",
        path="notes.txt",
        old="one",
        new="1",
        edits=[{"old": "two", "new": "2"}],
    ),
    "excluded lines": expect("grep_search", "grep -v", pattern="t", exclude_pattern="o"),
    "resumed child": expect(
        "Task", "send_message", prompt="CHILD", description="d", resume="1.1.1"
    ),
    "two names": expect("read", "both mean file_path", file_path="notes.txt", path="other.txt"),
    "two ranges": expect(
        "read_file", "the lines are given already", file_path="notes.txt", offset=1, start_line=2
    ),
    "counted wrongly": expect(
        "replace",
        "2 times, not 3",
        file_path="notes.txt",
        instruction="i",
        old_string="t",
        new_string="_",
        expected_replacements=3,
    ),
    "two files": expect(
        "multiedit",
        "another file",
        filePath="notes.txt",
        edits=[
            {"filePath": "notes.txt", "oldString": "one", "newString": "1"},
            {"filePath": "other.txt", "oldString": "two", "newString": "2"},
        ],
    ),
    "second edit fails": expect(
        "MultiEdit",
        "edits[1]: old_string is not in notes.txt",
        file_path="notes.txt",
        edits=[{"old_string": "one", "new_string": "1"}, {"old_string": "one", "new_string": "2"}],
    ),
    "second edit is no edit": expect(
        "MultiEdit",
        "edits[1].new_string: required",
        file_path="notes.txt",
        edits=[{"old_string": "one", "new_string": "1"}, {"old_string": "two"}],
    ),
    "no edits": expect("MultiEdit", "edits: is empty", file_path="notes.txt", edits=[]),
    "text as an edit": expect(
        "MultiEdit", "each edit is an object", file_path="notes.txt", edits=["one"]
    ),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
async def test_what_no_tool_here_can_do_is_refused_with_the_way_to_do_it(
    stage: Stage, row: Answer
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
    stage: Stage, rows: Mapping[str, Change], denied: str
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
async def test_a_denied_file_is_not_read_under_another_name(stage: Stage, row: Answer) -> None:
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


@each_change
async def test_a_hook_sees_the_call_that_would_run(stage: Stage, row: Change) -> None:
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
    report = await stage.run(["again"], "PARENT, go on", journal="sqlite", resume=saved)
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
