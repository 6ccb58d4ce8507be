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
from mudroom._core.events import ToolCallStarted
from mudroom._core.messages import ToolCallBlock
from mudroom.permissions import Permissions
from mudroom.ports import HookCallback

from .conftest import Stage

NOTES = "one\ntwo\nthree\n"

Row = tuple[str, dict[str, Any], str]
"""A call's name and arguments, and the text it leaves in notes.txt, or a part of its result."""


def row(name: str, text: str, **arguments: Any) -> Row:
    return name, arguments, text


def replace_two(name: str, keys: str, **more: Any) -> Row:
    """Make a row whose call replaces "two" by "2".

    Arguments:
        keys: what the program calls the path, the old text and the new text.
    """
    replacement = dict(zip(keys.split(), ("notes.txt", "two", "2"), strict=True))
    return row(name, "one\n2\nthree\n", **replacement, **more)


EDITS = {
    "Claude Code": replace_two("Edit", "file_path old_string new_string"),
    "Claude Code, several": row(
        "MultiEdit",
        "1\n22\nthree\n",
        file_path="notes.txt",
        edits=[
            {"old_string": "one", "new_string": "1"},
            {"old_string": "two", "new_string": "2", "replace_all": False},
            {"old_string": "2", "new_string": "22"},
        ],
    ),
    "Claude Code, JSON text": row(
        "MultiEdit",
        "1\n2\nthree\n",
        file_path="notes.txt",
        edits=json.dumps([{"old_string": "one", "new_string": "1"}, {"old": "two", "new": "2"}]),
    ),
    "Claude Code, one in a list": row(
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
    "Gemini CLI, all": row(
        "replace",
        "one\n_wo\n_hree\n",
        file_path="notes.txt",
        instruction="Hide the letter.",
        old_string="t",
        new_string="_",
        allow_multiple=True,
    ),
    "Gemini CLI, counted": row(
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
    "opencode, several": row(
        "multiedit",
        "1\n2\nthree\n",
        filePath="notes.txt",
        edits=[
            {"filePath": "notes.txt", "oldString": "one", "newString": "1"},
            {"filePath": "notes.txt", "oldString": "two", "newString": "2", "replaceAll": False},
        ],
    ),
    "kimi-cli": row(
        "StrReplaceFile",
        "one\n2\nthree\n",
        path="notes.txt",
        edit={"old": "two", "new": "2", "replace_all": False},
    ),
    "kimi-cli, several": row(
        "StrReplaceFile",
        "1\n2\nthree\n",
        path="notes.txt",
        edit=[{"old": "one", "new": "1"}, {"old": "two", "new": "2"}],
    ),
    "goose": replace_two("edit", "path before after"),
    "pi": row(
        "edit",
        "1\n2\nthree\n",
        path="notes.txt",
        edits=[{"oldText": "one", "newText": "1"}, {"oldText": "two", "newText": "2"}],
    ),
    "replacements": row(
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
    "Anthropic's text editor, which deletes": row(
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
    "Claude Code": row("Write", "new\n", file_path="notes.txt", content="new\n"),
    "Gemini CLI": row("write_file", "new\n", file_path="notes.txt", content="new\n"),
    "opencode": row("write", "new\n", filePath="notes.txt", content="new\n"),
    "kimi-cli": row("WriteFile", "new\n", path="notes.txt", content="new\n", mode="overwrite"),
    "goose": row("write", "new\n", path="notes.txt", content="new\n"),
    "Anthropic's text editor": row(
        "str_replace_editor", "new\n", command="create", path="notes.txt", file_text="new\n"
    ),
    "goose's text editor": row(
        "text_editor", "new\n", command="write", path="notes.txt", file_text="new\n"
    ),
}
COMMANDS = {
    "Claude Code": row(
        "Bash",
        "ran\n",
        command="echo ran > notes.txt",
        description="Run",
        timeout=5_000,
        run_in_background=False,
        dangerouslyDisableSandbox=True,
    ),
    "Codex, words": row(
        "shell",
        "ran\n",
        command=["bash", "-lc", "echo ran > notes.txt"],
        workdir=".",
        timeout_ms=5_000,
        with_escalated_permissions=True,
        justification="why not",
    ),
    "Codex, words as JSON text": row(
        "shell", "ran\n", command=json.dumps(["bash", "-lc", "echo ran > notes.txt"])
    ),
    "a test, which is no JSON": row(
        "shell", "ran\n", command="[ -f notes.txt ] && echo ran > notes.txt"
    ),
    "Anthropic's bash": row("bash", "ran\n", command="echo ran > notes.txt", restart=False),
    "Codex, words without a shell": row("shell", "", command=["cp", "/dev/null", "notes.txt"]),
    "Codex, text": row(
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
    "Codex, exec_command": row(
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
    "Codex, another shell": row(
        "exec_command", "ran it's\n", cmd='echo "ran it\'s" > notes.txt', shell="sh"
    ),
    "Codex, the other name": row(
        "exec_command", "ran\n", command="echo ran > notes.txt", yield_time_ms=1_000
    ),
    "gpt-oss": row(
        "container.exec",
        "ran\n",
        cmd=["bash", "-lc", "echo ran > notes.txt"],
        workdir=None,
        timeout=5_000,
    ),
    "Gemini CLI": row(
        "run_shell_command",
        "ran\n",
        command="echo ran > ../notes.txt",
        description="Run",
        dir_path="sub dir",
        is_background=False,
    ),
    "Qwen Code": row(
        "run_shell_command",
        "ran\n",
        command="echo ran > ../notes.txt",
        is_background=False,
        timeout=5_000,
        description="Run",
        directory="sub dir",
    ),
    "opencode": row(
        "bash",
        "ran\n",
        command="echo ran > ../notes.txt",
        timeout=5_000,
        workdir="sub dir",
        description="Run",
    ),
    "kimi-cli": row("Shell", "ran\n", command="echo ran > notes.txt", timeout=5),
    "goose": row("shell", "ran\n", command="echo ran > notes.txt", timeout_secs=5),
}


CHANGES = {
    f"{name}: {system}": (name, arguments, text)
    for rows in (EDITS, WRITES, COMMANDS)
    for system, (name, arguments, text) in rows.items()
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_native_call_changes_the_file_as_it_means_to(stage: Stage, change: Row) -> None:
    (stage.folder / "sub dir").mkdir()
    name, arguments, text = change
    await stage.run([[ToolCallBlock("", name, arguments)], "end"])
    (result,) = stage.results
    assert not result.error, result.text
    assert (stage.folder / "notes.txt").read_text() == text


READS = {
    "Claude Code": row("Read", "2\ttwo", file_path="notes.txt", offset=2, limit=1),
    "Gemini CLI": row("read_file", "2\ttwo", file_path="notes.txt", start_line=2, end_line=2),
    "Gemini CLI, texts": row(
        "read_file", "2\ttwo", file_path="notes.txt", start_line="2", end_line="2"
    ),
    "Gemini CLI, older": row("read_file", "2\ttwo", absolute_path="notes.txt", offset=1, limit=1),
    "Qwen Code": row("read_file", "2\ttwo", file_path="notes.txt", offset=1, limit=1),
    "Codex": row("read_file", "2\ttwo", file_path="notes.txt", offset=2, limit=1),
    "Codex, slice": row(
        "read_file", "2\ttwo", file_path="notes.txt", offset=2, limit=1, mode="slice"
    ),
    "opencode": row("read", "2\ttwo", filePath="notes.txt", offset=2, limit=1),
    "kimi-cli": row("ReadFile", "2\ttwo", path="notes.txt", line_offset=2, n_lines=1),
    "Anthropic's text editor": row(
        "str_replace_based_edit_tool", "2\ttwo", command="view", path="notes.txt", view_range=[2, 2]
    ),
    "Anthropic's text editor, to the end": row(
        "str_replace_based_edit_tool",
        "2\ttwo\n3\tthree",
        command="view",
        path="notes.txt",
        view_range=[2, -1],
    ),
    "Anthropic's text editor, whole": row(
        "str_replace_based_edit_tool", "1\tone\n2\ttwo\n3\tthree", command="view", path="notes.txt"
    ),
    "view": row("view", "2\ttwo", path="notes.txt", view_range="[2, 2]"),
    "glob of Claude Code": row("Glob", "notes.txt", pattern="*.txt", path="."),
    "glob of Gemini CLI": row(
        "glob",
        "notes.txt",
        pattern="N*.txt",
        dir_path=".",
        case_sensitive=False,
        respect_git_ignore=True,
        respect_gemini_ignore=True,
    ),
    "glob of kimi-cli": row(
        "Glob", "notes.txt", pattern="*.txt", directory=".", include_dirs=False
    ),
    "list of Claude Code": row("LS", "notes.txt", path=".", ignore=["*.md"]),
    "list of Gemini CLI": row(
        "list_directory",
        "notes.txt",
        dir_path=".",
        ignore=["*.md"],
        file_filtering_options={"respect_git_ignore": True, "respect_gemini_ignore": True},
    ),
    "list of opencode": row("list", "notes.txt", path=".", ignore=["*.md"]),
    "grep of Claude Code": row(
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
    "grep of Gemini CLI": row(
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
    "grep of Gemini CLI, names": row(
        "grep_search", "notes.txt", pattern="two", names_only=True, case_sensitive=True
    ),
    "grep of Gemini CLI, older": row(
        "search_file_content", "notes.txt:2:two", pattern="two", path=".", include="*.txt"
    ),
    "grep of Qwen Code": row(
        "grep_search", "notes.txt:2:two", pattern="two", path=".", glob="*.txt", limit=5
    ),
    "grep of opencode": row("grep", "notes.txt", pattern="two", path=".", include="*.txt"),
    "grep of kimi-cli": row(
        "Grep",
        "notes.txt:2",
        pattern="t",
        path="notes.txt",
        output_mode="count_matches",
        **{"-n": False},
    ),
    "todo of Claude Code": row(
        "TodoWrite",
        "[>] look",
        todos=[{"content": "look", "status": "in_progress", "activeForm": "Looking"}],
    ),
    "todo of opencode": row(
        "todowrite",
        "[x] look\n(1/1 completed)",
        todos=[
            {"content": "look", "status": "completed", "priority": "high", "id": "1"},
            {"content": "jump", "status": "cancelled", "priority": "low", "id": "2"},
        ],
    ),
    "todo of Gemini CLI": row(
        "write_todos",
        "[ ] look\n(0/1 completed)",
        todos=[
            {"description": "look", "status": "blocked"},
            {"description": "jump", "status": "cancelled"},
        ],
    ),
    "todo of Gemini CLI, JSON text": row(
        "write_todos",
        "[ ] look\n(0/1 completed)",
        todos='[{"description": "look", "status": "blocked"},'
        ' {"description": "jump", "status": "cancelled"}]',
    ),
    "todo of kimi-cli": row("SetTodoList", "[x] look", todos=[{"title": "look", "status": "done"}]),
    "todo of Codex": row(
        "update_plan",
        "[>] look",
        explanation="why",
        plan=[{"step": "look", "status": "in_progress"}],
    ),
    "todo of Qwen Code": row(
        "todo_write", "[ ] look", todos=[{"id": "1", "content": "look", "status": "pending"}]
    ),
    "task of Claude Code": row(
        "Task",
        "found",
        description="d",
        prompt="CHILD",
        subagent_type="general-purpose",
        run_in_background=False,
        mode="bypassPermissions",
    ),
    "task of kimi-cli": row(
        "Agent", "found", description="d", prompt="CHILD", subagent_type="coder"
    ),
    "task of Codex": row(
        "spawn_agent", "found", message="CHILD", agent_type="explorer", fork_context=False
    ),
    "task of Gemini CLI": row(
        "delegate_to_agent", "found", agent_name="codebase_investigator", objective="CHILD"
    ),
    "task of opencode": row(
        "task", "found", description="d", prompt="CHILD", subagent_type="explore", command="/x"
    ),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_native_call_gets_what_it_asks_for(stage: Stage, read: Row) -> None:
    name, arguments, expected = read
    await stage.run({"PARENT": [[ToolCallBlock("", name, arguments)], "end"], "CHILD": ["found"]})
    (result,) = stage.list_requests("PARENT")[-1].results
    assert not result.error and expected in result.text, result.text
    assert (stage.folder / "notes.txt").read_text() == NOTES


REFUSED = {
    "Codex": row("apply_patch", "edit takes file_path, old_string", input="*** Begin Patch"),
    "opencode": row("patch", "write takes file_path, content", patchText="*** Begin Patch"),
    "Claude Code": row(
        "NotebookEdit", "edit takes file_path", notebook_path="a.ipynb", new_source="x"
    ),
    "NotebookRead": row("NotebookRead", "read takes file_path", notebook_path="a.ipynb"),
    "ExitPlanMode": row("ExitPlanMode", "End with your plan", plan="x"),
    "submit_plan": row("submit_plan", "End with your plan as your answer", plan="x"),
    "request_plan": row("request_plan", "Start a child by task with plan=true", plan="x"),
    "AskUserQuestion": row("AskUserQuestion", "End with your question", plan="x"),
    "Gemini CLI": row("read_many_files", "read takes file_path, offset", include=["*.txt"]),
    "write_stdin": row("write_stdin", "bash takes command", session_id=1, chars="x"),
    "tree": row("tree", "glob takes pattern, path", path="."),
    "list_dir": row("list_dir", "glob takes pattern, path", dir_path="."),
    "batch": row("batch", "in one answer", tool_calls=[]),
    "append": row("WriteFile", "mode", path="notes.txt", content="x", mode="append"),
    "insert": row(
        "str_replace_based_edit_tool",
        "use edit",
        command="insert",
        path="notes.txt",
        insert_line=1,
        new_str="x",
    ),
    "undo": row("str_replace_editor", "use edit", command="undo_edit", path="notes.txt"),
    "restart": row("bash", "each command starts a shell of its own", restart=True),
    "terminal": row("exec_command", "no terminal", cmd="echo x > notes.txt", tty=True),
    "ignored files": row("glob", "name the ignored folder", pattern="*", respect_git_ignore=False),
    "no such folder": row(
        "exec_command", "nowhere: No such file", cmd="echo a; echo b > notes.txt", workdir="nowhere"
    ),
    "a folder that looks like an option": row(
        "exec_command", "./-: No such file", cmd="echo b > notes.txt", workdir="-"
    ),
    "ignored files, JSON text": row(
        "list_directory",
        "name the ignored folder",
        dir_path=".",
        file_filtering_options='{"respect_git_ignore": "false"}',
    ),
    "a folder that is no text": row("bash", "workdir: is not a text", command="ls", workdir=5),
    "one edit and several": row(
        "edit",
        "give one of them",
        path="notes.txt",
        old="one",
        new="1",
        edits=[{"old": "two", "new": "2"}],
    ),
    "excluded lines": row("grep_search", "grep -v", pattern="t", exclude_pattern="o"),
    "resumed child": row("Task", "send_message", prompt="CHILD", description="d", resume="1.1.1"),
    "two names": row("read", "both mean file_path", file_path="notes.txt", path="other.txt"),
    "two ranges": row(
        "read_file", "the lines are given already", file_path="notes.txt", offset=1, start_line=2
    ),
    "counted wrongly": row(
        "replace",
        "2 times, not 3",
        file_path="notes.txt",
        instruction="i",
        old_string="t",
        new_string="_",
        expected_replacements=3,
    ),
    "two files": row(
        "multiedit",
        "another file",
        filePath="notes.txt",
        edits=[
            {"filePath": "notes.txt", "oldString": "one", "newString": "1"},
            {"filePath": "other.txt", "oldString": "two", "newString": "2"},
        ],
    ),
    "second edit fails": row(
        "MultiEdit",
        "edits[1]: old_string is not in notes.txt",
        file_path="notes.txt",
        edits=[{"old_string": "one", "new_string": "1"}, {"old_string": "one", "new_string": "2"}],
    ),
    "second edit is no edit": row(
        "MultiEdit",
        "edits[1].new_string: required",
        file_path="notes.txt",
        edits=[{"old_string": "one", "new_string": "1"}, {"old_string": "two"}],
    ),
    "no edits": row("MultiEdit", "edits: is empty", file_path="notes.txt", edits=[]),
    "text as an edit": row(
        "MultiEdit", "each edit is an object", file_path="notes.txt", edits=["one"]
    ),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
async def test_what_no_tool_here_can_do_is_refused_with_the_way_to_do_it(
    stage: Stage, refused: Row
) -> None:
    name, arguments, expected = refused
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
    stage: Stage, rows: Mapping[str, Row], denied: str
) -> None:
    (stage.folder / "sub dir").mkdir()
    calls = [ToolCallBlock("", name, arguments) for name, arguments, _ in rows.values()]
    await stage.run([calls, "end"], permissions=Permissions.of(deny=denied.split(", ")))
    assert len(stage.results) == len(rows)
    for system, result in zip(rows, stage.results, strict=True):
        refusals = ("a rule says deny", "There is no tool")
        assert any(text in result.text for text in refusals), (system, result.text)
    assert (stage.folder / "notes.txt").read_text() == NOTES


async def test_a_denied_file_is_not_read_under_another_name(stage: Stage) -> None:
    calls = [
        ToolCallBlock("", name, arguments)
        for name, arguments, _ in READS.values()
        if "notes.txt" in str(arguments)
    ]
    await stage.run([calls, "end"], permissions=Permissions.of(deny=["Read(notes.txt)"]))
    assert len(calls) == len(stage.results) > 10
    for result in stage.results:
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


@pytest.mark.parametrize("rows", [EDITS, WRITES, COMMANDS], ids=["edits", "writes", "commands"])
async def test_a_hook_sees_the_calls_that_would_run(stage: Stage, rows: Mapping[str, Row]) -> None:
    (stage.folder / "sub dir").mkdir()
    seen: list[dict[str, Any]] = []

    async def refuse(hook_input: dict[str, Any]) -> dict[str, Any]:
        seen.append(hook_input)
        return {"decision": "block", "reason": "Not today."}

    hooks = {"PreToolUse": [HookCallback(refuse, matcher="Edit|Write|Bash")]}
    calls = [ToolCallBlock("", name, arguments) for name, arguments, _ in rows.values()]
    await stage.run([calls, "end"], integrations=Integrations(hooks=hooks))
    assert all("Not today." in result.text for result in stage.results)
    assert len(seen) == len(rows)
    for hook_input in seen:
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
    options = {"journal": "sqlite", "resume": saved}
    report = await stage.run_checked(["again"], "PARENT, go on", **options)
    assert report.text == "again" and (stage.folder / "notes.txt").read_text() == "ran\n"


async def test_the_record_has_the_call_that_ran(stage: Stage) -> None:
    editor = ToolCallBlock(
        "", "str_replace_based_edit_tool", {"command": "view", "path": "notes.txt"}
    )
    shell = ToolCallBlock("", "exec_command", {"cmd": "pwd", "workdir": ".", "login": True})
    await stage.run([[editor, shell], "end"])
    started = [event.call for event in stage.select(ToolCallStarted)]
    assert [(call.name, call.arguments) for call in started] == [
        ("read", {"file_path": "notes.txt"}),
        ("exec_command", {"command": "pwd"}),
    ]
