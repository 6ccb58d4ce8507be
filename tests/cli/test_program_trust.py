"""Programs of a folder do not start before the user trusts them, whatever starts mudroom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudroom._adapters.integrations.usable_programs import UsablePrograms
from mudroom._cli.actions.programs.load_programs import load_programs
from mudroom._cli.interactive.questions.trust_question import ask_for_trust, find_untrusted_files
from mudroom._cli.main import run
from mudroom._session.config import Settings
from mudroom.permissions import trust

from ..permissions.test_approvals import ScriptedUI

HOOK_EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")


@pytest.fixture
def project(project: Path, tmp_path: Path) -> Path:
    """Return a folder whose servers and hooks create files beside it when they start."""
    (project / ".claude" / "agents").mkdir(parents=True)
    (project / "a.txt").write_text("one\n")
    server = {"command": "touch", "args": [str(tmp_path / "server-started")]}
    remote = {"url": "http://127.0.0.1:9/mcp", "headersHelper": f"touch {tmp_path}/helper-started"}
    text = json.dumps({"mcpServers": {"local": server, "remote": remote}})
    (project / ".mcp.json").write_text(text)
    (project / ".cursor").mkdir()
    (project / ".cursor" / "mcp.json").write_text(text.replace("started", "started-by-cursor"))
    handlers = [{"hooks": [{"command": f"touch {tmp_path}/hook-started"}]}]
    hooks = json.dumps({"hooks": dict.fromkeys(HOOK_EVENTS, handlers)})
    (project / ".claude" / "settings.json").write_text(hooks)
    (project / ".codex").mkdir()
    (project / ".codex" / "hooks.json").write_text(hooks.replace("started", "started-by-codex"))
    return project


def load(project: Path, settings: Settings) -> UsablePrograms:
    programs = load_programs(settings, str(project))
    assert programs is not None
    return programs


async def test_the_question_shows_all_commands_and_remembers_the_answer(project: Path) -> None:
    settings = Settings(home=str(project.parent / "state"))
    cwd = str(project)
    names = find_untrusted_files(settings, cwd)
    programs = load(project, settings)
    assert len(programs.untrusted) == 14

    ui = ScriptedUI("no")
    answer = await ask_for_trust(ui, settings, cwd, names, programs)
    assert ui.labels[0] == ["no", "yes, this time only", "yes, always trust this folder"]
    assert "declares 4 MCP servers and 10 hooks" in ui.titles[0]
    assert "outside the sandbox" in ui.titles[0]
    for program in programs.untrusted:
        assert program.shown in ui.bodies[0] and program.origin in ui.bodies[0]
    assert "MCP server local" in ui.bodies[0] and "hook PreToolUse" in ui.bodies[0]
    assert "helper-started" in ui.bodies[0]
    assert answer.programs is not None and not answer.programs.servers
    assert not answer.settings.trust

    answer = await ask_for_trust(ScriptedUI("yes"), settings, cwd, names, programs)
    assert answer.programs is not None and len(answer.programs.servers) == 2
    assert answer.settings.trust and load(project, settings).untrusted

    answer = await ask_for_trust(ScriptedUI("always"), settings, cwd, names, programs)
    assert answer.programs is not None and not answer.programs.untrusted
    assert not load(project, settings).untrusted
    assert trust.is_trusted(settings.home, cwd)


async def test_a_changed_set_is_asked_about_without_the_agents(project: Path) -> None:
    settings = Settings(home=str(project.parent / "state"))
    load(project, settings).remember_trust(settings.home)
    trust.trust_folder(settings.home, str(project))
    (project / ".mcp.json").write_text('{"mcpServers": {"new": {"command": "other"}}}')
    programs = load(project, settings)
    assert find_untrusted_files(settings, str(project)) == []
    ui = ScriptedUI("always")
    answer = await ask_for_trust(ui, settings, str(project), [], programs)
    assert "that you have not trusted, or that have changed" in ui.titles[0]
    assert ui.labels[0][-1] == "yes, always trust these programs"
    assert not answer.settings.trust and not load(project, settings).untrusted


async def test_the_home_folder_can_be_trusted_for_one_session_only(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    ui = ScriptedUI("yes")
    settings = Settings(home=str(project.parent / "state"))
    answer = await ask_for_trust(ui, settings, str(project), [".claude"])
    assert ui.labels == [["yes, this time only", "no"]] and answer.settings.trust


async def test_hidden_characters_of_a_command_are_visible_in_the_question(project: Path) -> None:
    settings = Settings(home=str(project.parent / "state"))
    name = "a\x1b[8m\nb"
    servers = {name: {"command": "sh", "args": ["-c", "echo" + " " * 90 + "\u202e;evil"]}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    ui = ScriptedUI("no")
    await ask_for_trust(ui, settings, str(project), [], load(project, settings))
    assert "a\\u{1b}[8m\\nb" in ui.bodies[0]
    assert "[90 blanks] \\u{202e};evil" in ui.bodies[0]


def test_doctor_has_a_row_for_servers_and_one_for_hooks(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".vscode").mkdir()
    (project / ".vscode" / "mcp.json").write_text("[]")
    run(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    rows = {check["name"]: check for check in checks if check["name"] in ("MCP servers", "hooks")}
    assert rows["MCP servers"]["state"] == rows["hooks"]["state"] == "warn"
    assert "4 servers in files, 4 not used; the first: not trusted" in rows["MCP servers"]["found"]
    assert rows["hooks"]["remedy"] == "mudroom hooks lists them all."
    problems = [check for check in checks if check["name"] == "MCP servers and hooks"]
    assert [(check["state"], check["remedy"]) for check in problems] == [
        ("warn", "Correct the file.")
    ]


def test_doctor_counts_plugins_and_names_one_that_is_missing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".claude/settings.json").write_text('{"enabledPlugins": {"tools@shop": true}}')
    run(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    (row,) = [check for check in checks if check["name"] == "plugins"]
    assert row["state"] == "warn" and row["remedy"] == "mudroom plugins lists them all."
    assert row["found"].startswith("1 plugin turned on, 1 not used; the first: ")
