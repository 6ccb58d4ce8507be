"""`mudroom plugins`, and plugins in sessions of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudroom._cli.actions.agents import load_agents
from mudroom._cli.actions.load_permissions import load_permissions
from mudroom._cli.actions.load_settings import load_settings
from mudroom._cli.actions.open_session import create_session
from mudroom._cli.actions.programs.load_programs import load_programs

from ..plugin_folder import write, write_plugin
from ..shown_session import show
from .conftest import Run


def test_the_list_says_where_a_plugin_is_and_why_one_is_not_used(call: Run, project: Path) -> None:
    root = write_plugin(project.parent / "plugin", description="Helps.", themes={"a": 1})
    write(project / ".claude/settings.json", {"enabledPlugins": {"other@shop": True}})
    code, out, _ = call("plugins", "--plugin-dir", str(root))
    assert code == 0
    assert "1.2.0: Helps." in out
    assert "used; --plugin-dir" in out
    assert "not used: it is not on this machine" in out
    assert "themes is not used here" in out
    code, out, _ = call("plugins", "--plugin-dir", str(root), "list", "--json")
    listed = json.loads(out)["plugins"]
    assert [item["used"] for item in listed] == [True, False]
    assert listed[0]["folder"] == str(root)


def test_no_plugins_is_said(call: Run) -> None:
    assert "no plugins" in call("plugins")[1]


def test_show_names_the_parts_and_the_programs_of_a_plugin(call: Run, project: Path) -> None:
    root = write_plugin(project.parent / "plugin")
    code, out, _ = call("plugins", "--plugin-dir", str(root), "show", "tools", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["agents"] == ["tools:reviewer"]
    assert shown["skills"] == ["tools:style"]
    assert shown["commands"] == ["/tools:git:tag", "/tools:release"]
    assert shown["text in each request"].endswith("for 1 agent and 1 skill")
    assert len(shown["may start"]) == 2
    assert f"{root}/serve" in " ".join(shown["may start"])
    assert "tools:reviewer" in call("plugins", "--plugin-dir", str(root), "show", "tools")[1]
    code, _, err = call("plugins", "--plugin-dir", str(root), "show", "tolls")
    assert code == 2
    assert "Did you mean tools?" in err


def test_hooks_of_a_plugin_are_listed_and_tested(call: Run, project: Path) -> None:
    root = write_plugin(project.parent / "plugin")
    write(root / "guard.sh", "#!/bin/sh\necho stop >&2; exit 2\n").chmod(0o755)
    option = ("--plugin-dir", str(root))
    assert "no hooks" in call("hooks")[1]
    (listed,) = json.loads(call("hooks", *option, "list", "--json")[1])["hooks"]
    assert (listed["event"], listed["used"]) == ("PreToolUse", True)
    for arguments in (["test", "PreToolUse", *option], [*option, "test", "PreToolUse"]):
        code, out, _ = call("hooks", *arguments, "--json")
        tested = json.loads(out)
        assert (code, [run["ending"] for run in tested["runs"]]) == (0, ["exit code 2"])
        assert (tested["outcome"]["decision"], tested["outcome"]["reason"]) == ("deny", "stop")


def test_agents_of_a_plugin_of_the_project_are_listed(call: Run, project: Path) -> None:
    market = project / "market"
    plugins = [{"name": "tools", "source": "./tools"}]
    write(market / ".claude-plugin/marketplace.json", {"name": "own", "plugins": plugins})
    write_plugin(market / "tools")
    source = {"source": {"source": "directory", "path": "./market"}}
    settings = {"enabledPlugins": {"tools@own": True}, "extraKnownMarketplaces": {"own": source}}
    write(project / ".claude/settings.json", settings)
    assert "tools:reviewer" in call("agents", "list")[1]
    assert load_agents(".").personal_names == frozenset()
    code, out, _ = call("trust")
    assert code == 0
    assert "MCP server plugin:tools:db" in out


async def test_a_prompt_uses_agents_and_commands_of_a_plugin(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_plugin(project.parent / "plugin")
    settings = load_settings(".", plugin_dirs=str(root), model="offline")
    programs = load_programs(settings, ".")
    loaded = load_permissions(settings, ".")
    session = create_session(settings, ".", loaded, programs=programs, mcp_servers=())
    async with show(session, settings) as conversation:
        assert "tools:reviewer" in [agent.name for agent in session.agents]
        await conversation.handle_line("/tools:release 1.0")
        await conversation.handle_line("/tag now")
        report = await session.task("Say hello.", agent="tools:reviewer")
        assert report.agent == "tools:reviewer"
    prompts = [root.prompt for root in conversation.tree.roots]
    assert prompts[:2] == ["Prepare the release 1.0.", "Tag now."]
    assert (project.parent / "state/plugins/plugin").is_dir()
