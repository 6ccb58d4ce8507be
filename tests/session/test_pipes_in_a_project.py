"""Pipes at the paths of all files that mudroom reads in a project: nothing waits for them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom import Isolation, Mode, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.permissions.rules import Permissions

TEXTS = (
    *("AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"),
    *(".agents/AGENTS.md", ".claude/CLAUDE.md", ".claude/agents/x.md", ".mudroom/agents/x.md"),
    *(".claude/skills/s/SKILL.md", ".claude/commands/c.md", ".claude/output-styles/o.md"),
)
SETTINGS = (
    *(".mcp.json", ".mudroom/config.toml", ".mudroom/settings.toml", ".mudroom/mcp.json", ".env"),
    *(".claude/settings.json", ".claude/settings.local.json", ".cursor/mcp.json", "opencode.json"),
    *(
        ".vscode/mcp.json",
        ".codex/config.toml",
        ".claude-plugin/plugin.json",
        ".gemini/settings.json",
    ),
)
IGNORE_FILES = (
    *(".gitignore", ".ignore", ".rgignore", "sub/.gitignore", ".git/HEAD", ".git/config"),
    *(".git/info/exclude", ".git/index", ".git/commondir", ".worktreeinclude"),
)
SECONDS = 60.0
"""Far more than a run takes, on a busy machine, too."""


def make_pipes(folder: Path, paths: tuple[str, ...]) -> None:
    for path in paths:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place)
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub/a.txt").write_text("a\n")


@pytest.mark.parametrize("paths", [TEXTS, SETTINGS, IGNORE_FILES, (".git",)])
async def test_a_session_waits_for_no_pipe(tmp_path: Path, paths: tuple[str, ...]) -> None:
    project = tmp_path / "project"
    make_pipes(project, paths)
    reads = [call("read", file_path=path) for path in paths]

    def choose_answer(request: Request) -> Answer:
        if request.prompt != "start" or request.turn:
            return "Done."
        tools = [call("bash", command="echo ran"), call("glob", pattern="**/*")]
        return [*tools, call("grep", pattern="a"), *reads, call("task", prompt="isolated child")]

    model = ScriptedModel(choose_answer)
    async with (
        asyncio.timeout(SECONDS),
        Session(
            model=model,
            cwd=str(project),
            home=str(tmp_path / "home"),
            environ={},
            isolation=Isolation(each_child=True),
            permissions=Permissions(mode=Mode.BYPASS),
        ) as session,
    ):
        report = await session.run("start")
    assert report.ok
    results = next(request.results for request in model.requests if request.results)
    assert "ran" in results[0].text
    assert "sub/a.txt" in results[1].text
    assert "sub/a.txt" in results[2].text


def test_the_command_line_waits_for_no_pipe(tmp_path: Path) -> None:
    project = tmp_path / "project"
    make_pipes(project, (*TEXTS, *SETTINGS, *IGNORE_FILES))
    result = subprocess.run(
        [sys.executable, "-m", "mudroom", "-p", "hello", "--model", "offline", "--isolate"],
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    assert b"not a regular file" in result.stderr
    assert b"Traceback" not in result.stderr
