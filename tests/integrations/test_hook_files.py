"""Hooks in the files of three programs: fields, events, findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.plugin_folder import write as write_file

from mudroom._adapters.integrations.hook_programs import events
from mudroom._adapters.integrations.hook_programs.load import LoadedHooks, load_hooks


def write(folder: Path, path: str, content: Any) -> Path:
    return write_file(folder / path, content)


def make_settings(event: str, *handlers: Any, matcher: str | None = None) -> dict[str, Any]:
    group: dict[str, Any] = {"hooks": list(handlers)}
    if matcher is not None:
        group["matcher"] = matcher
    return {"hooks": {event: [group]}}


def load(folder: Path) -> LoadedHooks:
    return load_hooks(str(folder / "project"), user_home=str(folder / "home"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path


def test_all_fields_of_claude_code(folder: Path) -> None:
    command = {
        "type": "command",
        "command": "guard.sh",
        "args": ["--level", "a b"],
        "if": "Bash(git *)",
        "timeout": 30,
        "statusMessage": "checking",
        "once": True,
        "async": True,
        "onFailure": "block",
    }
    http = {
        "type": "http",
        "url": "https://hooks.example/x",
        "headers": {"Authorization": "Bearer $TOKEN"},
        "allowedEnvVars": ["TOKEN"],
    }
    tool = {"type": "mcp_tool", "server": "s", "tool": "t", "input": {"a": "${tool_input.b}"}}
    prompt = {"type": "prompt", "prompt": "is it safe? $ARGUMENTS", "model": "haiku"}
    path = write(
        folder / "project",
        ".claude/settings.json",
        make_settings("PreToolUse", command, http, tool, prompt, matcher="Bash|Edit"),
    )
    hooks, findings, _ = load(folder)
    assert findings == []
    first, second, third, fourth = hooks
    assert (first.event, first.kind, first.matcher) == ("PreToolUse", "command", "Bash|Edit")
    assert (first.command, first.args) == ("guard.sh", ("--level", "a b"))
    assert (first.condition, first.timeout, first.status_message) == ("Bash(git *)", 30, "checking")
    assert first.once and first.in_background and first.blocks_on_failure
    assert (first.origin, first.scope) == (str(path), "project")
    assert first.place == str(folder / "project") and first.shown == "guard.sh --level 'a b'"
    assert (second.kind, second.url) == ("http", "https://hooks.example/x")
    assert second.headers == {"Authorization": "Bearer $TOKEN"}
    assert second.allowed_variables == ("TOKEN",)
    assert third.options == {"server": "s", "tool": "t", "input": {"a": "${tool_input.b}"}}
    assert fourth.options["model"] == "haiku" and fourth.args is None
    assert (
        events.explain_never_fires("PreToolUse", fourth.kind) == "hooks of type prompt are not run"
    )
    assert events.explain_never_fires("PreToolUse", first.kind) == ""


def test_hooks_of_all_files_are_merged(folder: Path) -> None:
    project, home = folder / "project", folder / "home"
    for at, path in (
        (home, ".claude/settings.json"),
        (project, ".claude/settings.json"),
        (project, ".claude/settings.local.json"),
        (project, ".codex/hooks.json"),
    ):
        write(at, path, make_settings("Stop", {"command": f"{at.name}/{path}"}))
    write(
        project,
        ".codex/config.toml",
        '[[hooks.Interrupt]]\n[[hooks.Interrupt.hooks]]\ntype="command"\ncommand="toml"\n'
        "[hooks.state]\nx = 1\n",
    )
    hooks, findings, _ = load(folder)
    assert [(hook.command, hook.scope, hook.place != "") for hook in hooks] == [
        ("home/.claude/settings.json", "user", False),
        ("project/.claude/settings.local.json", "local", True),
        ("project/.claude/settings.json", "project", True),
        ("project/.codex/hooks.json", "project", True),
        ("toml", "project", True),
    ]
    assert findings == [] and hooks[-1].event == "Interrupt"


def test_events_of_the_gemini_cli_get_the_names_of_claude_code(folder: Path) -> None:
    handlers: list[dict[str, Any]] = [
        {"type": "command", "command": f"c{n}", "name": f"n{n}"} for n in range(3)
    ]
    handlers[0]["timeout"] = 1500
    table: dict[str, Any] = {
        "hooks": {name: [{"hooks": handlers}] for name in ("BeforeTool", "PreCompress")},
        "hooksConfig": {"disabled": ["n1", "c2"]},
    }
    table["hooks"]["BeforeModel"] = [{"matcher": "*", "sequential": True, "hooks": handlers[:1]}]
    write(folder / "project", ".gemini/settings.json", table)
    hooks, findings, _ = load(folder)
    assert [(hook.event, hook.file_event, hook.timeout) for hook in hooks] == [
        ("PreToolUse", "BeforeTool", 1.5),
        ("PreCompact", "PreCompress", 1.5),
        ("BeforeModel", "BeforeModel", 1.5),
    ]
    assert {hook.dialect for hook in hooks} == {"gemini"}
    assert events.explain_never_fires("BeforeModel", "command")
    assert len(findings) == 4 and not any(finding.is_problem for finding in findings)


def test_all_33_events_are_known(folder: Path) -> None:
    names = (*events.RULES, *events.OTHER_EVENTS)
    assert (len(names), len(set(names)), len(events.RULES)) == (33, 33, 14)
    table = {name: [{"hooks": [{"command": "x"}]}] for name in names}
    write(folder / "project", ".claude/settings.json", {"hooks": table})
    hooks, findings, _ = load(folder)
    assert [hook.event for hook in hooks] == list(names) and findings == []


@pytest.mark.parametrize("by_user", [True, False])
def test_a_folder_cannot_turn_off_the_hooks_of_the_user(folder: Path, by_user: bool) -> None:
    for name in ("home", "project"):
        table = make_settings("Stop", {"command": name})
        if name == ("home" if by_user else "project"):
            table["disableAllHooks"] = True
        write(folder / name, ".claude/settings.json", table)
    hooks, findings, _ = load(folder)
    assert [hook.command for hook in hooks] == ([] if by_user else ["home"])
    assert len(findings) == 1 and "disableAllHooks" in findings[0].text


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"hooks": []}, ""),
    ({"hooks": [1]}, "hooks is not used: it is no table"),
    ({"hooks": {"PreToolUse": {}}}, "it is no list"),
    ({"hooks": {"PreTolUse": [{"hooks": []}]}}, "Did you mean PreToolUse"),
    ({"hooks": {"Zzz": [{"hooks": []}]}}, "not used. Correct the name of the event."),
    ({"hooks": {"Stop": [1]}}, "hook Stop is not used: it is no table"),
    ({"hooks": {"Stop": [{}]}}, "it has no list of hooks"),
    ({"hooks": {"Stop": [{"hooks": ["x"]}]}}, "it is no table"),
    (make_settings("Stop", {"type": "command"}), "it has no command"),
    (make_settings("Stop", {"type": "http"}), "it has no url"),
    (make_settings("Stop", {"type": "mcp_tool", "server": "s"}), "it has no tool"),
    (make_settings("Stop", {"type": "mcp_tool", "tool": "t"}), "it has no server"),
    (make_settings("Stop", {"type": "agent"}), "it has no prompt"),
    (make_settings("Stop", {"type": "comand", "command": "x"}), "Did you mean command?"),
    (make_settings("Stop", {"command": "x", "timeout": "5"}), "timeout must be a number"),
    (make_settings("Stop", {"command": "x", "typo": 1}), "not used here: typo"),
]


@pytest.mark.parametrize(("table", "expected"), WRONG)
def test_a_wrong_hook_is_a_finding_with_its_place(
    folder: Path, table: dict[str, Any], expected: str
) -> None:
    path = write(folder / "project", ".claude/settings.json", table)
    _, findings, _ = load(folder)
    assert len(findings) == (1 if expected else 0), findings
    for finding in findings:
        assert expected in str(finding) and finding.where == str(path)


def test_hooks_of_cursor_are_named_as_not_used(folder: Path) -> None:
    table = {"version": 1, "hooks": {"beforeShellExecution": [{"command": "x"}]}}
    write(folder / "project", ".cursor/hooks.json", table)
    hooks, findings, _ = load(folder)
    assert hooks == [] and "hooks of Cursor are not used" in findings[0].text
