"""Hooks in files of the Gemini CLI: its names of tools and events, and its outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.integrations.hook_programs.load import load_hooks

from .hook_helpers import make_set

CALL: dict[str, Any] = {
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "ls", "timeout": 5},
}


def write_settings(folder: Path, matcher: str, command: str, event: str = "BeforeTool") -> None:
    path = folder / ".gemini/settings.json"
    path.parent.mkdir(exist_ok=True)
    groups = [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]
    path.write_text(json.dumps({"hooks": {event: groups}}))


@pytest.mark.parametrize(
    ("matcher", "selects"),
    [
        ("run_shell_command", True),
        ("run_.*", True),
        ("write_file|replace", False),
        ("", True),
        ("Bash", True),
    ],
)
async def test_matchers_select_by_the_names_of_the_gemini_cli(
    tmp_path: Path, matcher: str, selects: bool
) -> None:
    write_settings(tmp_path, matcher, "cat > read.json")
    hooks = make_set(tmp_path, *load_hooks(str(tmp_path), user_home="").hooks)
    await hooks.fire("PreToolUse", CALL)
    await hooks.close()
    read = tmp_path / "read.json"
    assert read.exists() is selects
    if selects:
        sent = json.loads(read.read_text())
        assert (sent["hook_event_name"], sent["tool_name"]) == ("BeforeTool", "run_shell_command")


async def test_a_changed_argument_leaves_the_others(tmp_path: Path) -> None:
    own = {"hookEventName": "BeforeTool", "tool_input": {"command": "ls -l"}}
    output = json.dumps({"decision": "allow", "hookSpecificOutput": own})
    write_settings(tmp_path, "run_shell_command", f"echo '{output}'")
    hooks = make_set(tmp_path, *load_hooks(str(tmp_path), user_home="").hooks)
    outcome = await hooks.fire("PreToolUse", CALL)
    await hooks.close()
    assert outcome.failure == ""
    assert outcome.decision == "allow"
    assert outcome.updated_input == {"command": "ls -l", "timeout": 5}


async def test_deny_and_its_reason_block_a_call(tmp_path: Path) -> None:
    output = json.dumps({"decision": "deny", "reason": "not here"})
    write_settings(tmp_path, "write_file", f"echo '{output}'")
    hooks = make_set(tmp_path, *load_hooks(str(tmp_path), user_home="").hooks)
    outcome = await hooks.fire("PreToolUse", {**CALL, "tool_name": "Write"})
    await hooks.close()
    assert (outcome.decision, outcome.reason) == ("deny", "not here")
