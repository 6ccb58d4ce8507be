"""Hooks of settings files, with the real program: trusted ones run, also with -p."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from .conftest import Mudroom

OFFLINE = ("--model", "offline")


def write_hooks(mudroom: Mudroom, **commands: str) -> Path:
    """Write the hooks of the project, by event, and return the file."""
    hooks: dict[str, Any] = {
        event: [{"hooks": [{"type": "command", "command": command}]}]
        for event, command in commands.items()
    }
    path = mudroom.project / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"hooks": hooks}))
    return path


async def test_hooks_of_a_trusted_folder_run_and_read_what_happens(mudroom: Mudroom) -> None:
    script = mudroom.project / "hook.sh"
    script.write_text('#!/bin/sh\ncat > "$CLAUDE_PROJECT_DIR/seen-$1.json"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    command = '"$CLAUDE_PROJECT_DIR"/hook.sh'
    events = ("UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")
    write_hooks(mudroom, **{event: f"{command} {event}" for event in events})
    done = await mudroom("-p", "how many lines has f0.txt?", *OFFLINE, "--trust")
    assert (done.code, "not used" in done.err) == (0, False)
    inputs = {
        event: json.loads((mudroom.project / f"seen-{event}.json").read_text()) for event in events
    }
    assert inputs["UserPromptSubmit"]["prompt"] == "how many lines has f0.txt?"
    assert Path(inputs["Stop"]["transcript_path"]).is_file()
    assert inputs["PreToolUse"]["tool_name"] in ("Read", "Bash", "Grep", "Glob", "Agent")


async def test_a_prompt_that_a_hook_refuses_ends_with_its_reason(mudroom: Mudroom) -> None:
    write_hooks(mudroom, UserPromptSubmit="echo no prompts on Sundays >&2; exit 2")
    done = await mudroom("-p", "how many lines?", *OFFLINE, "--trust")
    assert done.code == 1
    assert "a hook refused the prompt: no prompts on Sundays" in done.err


async def test_hooks_are_tried_with_an_example_and_the_list_has_their_last_runs(
    mudroom: Mudroom,
) -> None:
    path = write_hooks(mudroom, PreToolUse="grep -q push && echo no pushing >&2 && exit 2; exit 0")
    declared = json.loads(path.read_text())
    declared["hooks"]["PreToolUse"][0]["hooks"].append(
        {"type": "mcp_tool", "server": "s", "tool": "t", "onFailure": "block"}
    )
    path.write_text(json.dumps(declared))
    example = ("hooks", "test", "PreToolUse", "--tool", "bash", "--input")
    refused = await mudroom(*example, '{"command": "git push"}')
    assert "decision none" in " ".join(refused.out.split())
    assert "not used: 2 hooks of this folder" in refused.out + refused.err
    assert "not run here" not in refused.out
    await mudroom("trust", "add")
    done = await mudroom(*example, '{"command": "git push"}', "--json")
    tried = json.loads(done.out)
    assert tried["input"]["tool_name"] == "Bash"
    assert tried["outcome"]["decision"] == "deny"
    assert tried["outcome"]["reason"] == "no pushing"
    assert tried["not_run"] == ["s t"]
    passed = await mudroom(*example, '{"command": "git log"}')
    assert "decision none" in " ".join(passed.out.split())
    assert "not run here" in passed.out and "its server works in a session only" in passed.out
    listed = await mudroom("hooks")
    assert "last runs: exit code 0 in " in listed.out
    assert "exit code 2 in " in listed.out
    unknown = await mudroom("hooks", "test", "PreToolUs")
    assert (unknown.code, "PreToolUse" in unknown.err) == (2, True)
