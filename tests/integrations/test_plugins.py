"""Plugins: where they are, which parts they have, what leaves their folder, and trust."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.agent_files import LoadedAgents, load_agent_files, load_commands
from mudroom._adapters.agent_files.output_styles import load_output_styles
from mudroom._adapters.agent_files.prompt_template import ShellText
from mudroom._adapters.integrations.config_files import Finding
from mudroom._adapters.integrations.plugins.load import read_plugin
from mudroom._adapters.integrations.plugins.spec import Plugin
from mudroom._adapters.integrations.usable_programs import UsablePrograms, load_usable_programs
from mudroom._core.agents import Mode
from mudroom._session.agent_catalog import KNOWN_TOOLS

from ..plugin_folder import AGENT, install, write, write_plugin


class Machine:
    """A user's home, a project, and mudroom's state folder."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.project = base / "project"
        self.home.mkdir()
        (self.project / ".git").mkdir(parents=True)

    def load(self, *plugin_dirs: Path, trusts_all: bool = False) -> UsablePrograms:
        return load_usable_programs(
            str(self.project),
            home=str(self.base / "state"),
            user_home=str(self.home),
            environ={},
            plugin_dirs=[str(folder) for folder in plugin_dirs],
            trusts_all=trusts_all,
        )

    def turn_on(self, at: Path, **plugins: bool) -> None:
        names = {name.replace("_at_", "@"): is_on for name, is_on in plugins.items()}
        write(at / ".claude/settings.json", {"enabledPlugins": names})

    def load_agents(self, programs: UsablePrograms) -> LoadedAgents:
        return load_agent_files(
            str(self.project), user_home="", tools=KNOWN_TOOLS, plugins=programs.plugins
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def read(folder: Path) -> tuple[Plugin | None, list[str]]:
    findings: list[Finding] = []
    plugin = read_plugin(str(folder), plugin_id=folder.name, origin="test", findings=findings)
    return plugin, [finding.text for finding in findings]


def test_a_folder_of_a_flag_gives_all_its_parts(machine: Machine) -> None:
    root = write_plugin(machine.base / "plugin")
    programs = machine.load(root)
    loaded = machine.load_agents(programs)
    commands = load_commands(str(machine.project), user_home="", plugins=programs.plugins)
    (hook,) = programs.hooks
    (server,) = programs.servers
    data = str(machine.base / "state/plugins/plugin")
    assert [agent.name for agent in loaded.agents] == ["tools:reviewer"]
    assert loaded.personal_names == {"tools:reviewer"}
    assert list(loaded.skills) == ["tools:style"]
    assert sorted(commands) == ["tools:git:tag", "tools:release"]
    assert hook.command == f'"{root}"/guard.sh'
    assert hook.env == {"CLAUDE_PLUGIN_ROOT": str(root), "CLAUDE_PLUGIN_DATA": data}
    assert (server.name, server.command) == ("plugin:tools:db", f"{root}/serve")
    assert server.args == ("--data", data)
    assert server.env["CLAUDE_PLUGIN_ROOT"] == str(root)
    assert server.scope == hook.scope == "plugin"
    assert programs.notices == ()


def test_variables_are_filled_in_the_texts_of_all_parts(machine: Machine) -> None:
    """But those of the user's options, which may be secrets, and what has no value."""
    root = write_plugin(machine.base / "a plugin")
    text = "See ${CLAUDE_PLUGIN_ROOT}/x, ${CLAUDE_PLUGIN_DATA}, ${user_config.key}, ${HOME}."
    data = machine.base / "state/plugins/a plugin"
    filled = f"See {root}/x, {data}, ${{user_config.key}}, ${{HOME}}."
    for path in ("agents/reviewer.md", "skills/style/SKILL.md", "output-styles/short.md"):
        write(root / path, (root / path).read_text() + text)
    shell = '!`"${CLAUDE_PLUGIN_ROOT}/x" $1 ${HOME}`'
    rule = "Bash(${CLAUDE_PLUGIN_ROOT}/x:*)"
    write(root / "commands/release.md", f"---\nallowed-tools: {rule}\n---\n{text}\n{shell}\n")
    plugins = machine.load(root).plugins
    loaded = load_agent_files(
        str(machine.project), user_home="", tools=KNOWN_TOOLS, plugins=plugins
    )
    assert filled in loaded.agents[0].instructions
    assert filled in loaded.skills["tools:style"].load_text()
    styles = load_output_styles(str(machine.project), user_home="", plugins=plugins)
    assert filled in styles.by_name["tools:Short"].text
    command = load_commands(str(machine.project), user_home="", plugins=plugins)["tools:release"]
    template = command.load_template()
    assert template.allowed_tools == (f"Bash({root}/x:*)",)
    words, block, _ = template.fill("1.0; ls")
    assert words == f"{filled}\n"
    assert isinstance(block, ShellText)
    assert block.command == f"\"{root}/x\" '1.0;' ${{HOME}}"


def test_agents_of_plugins_bring_no_mode_hooks_or_servers(machine: Machine) -> None:
    root = write_plugin(machine.base / "plugin")
    more = "mcpServers: {x: {command: x}}\nhooks: {Stop: []}\n---\n"
    head, _, body = AGENT.rpartition("---\n")
    write(root / "agents/worker.md", head.replace("reviewer", "worker") + more + body)
    plan = AGENT.replace("reviewer", "reader").replace("bypassPermissions", "plan")
    write(root / "agents/reader.md", plan)
    programs = machine.load(root)
    agents = {agent.name: agent for agent in machine.load_agents(programs).agents}
    assert [agents[f"tools:{name}"].mode for name in ("reviewer", "worker")] == [None, None]
    assert agents["tools:reader"].mode is Mode.PLAN
    assert len(programs.listed_servers) == len(programs.listed_hooks) == 1
    assert "Use short names." in agents["tools:reviewer"].instructions


@pytest.mark.parametrize("layout", ["installed", "cache", "market", "extra"])
def test_the_user_turns_a_plugin_on_wherever_it_lies(machine: Machine, layout: str) -> None:
    state = machine.home / ".claude/plugins"
    market = machine.base / "market"
    source = {"name": "tools", "source": "./plugins/tools"}
    settings: dict[str, Any] = {"enabledPlugins": {"tools@shop": True}}
    if layout == "installed":
        install(machine.home, "tools@shop", write_plugin(machine.base / "anywhere"))
    elif layout == "cache":
        write_plugin(state / "cache/shop/tools/1.2.0")
    else:
        write(market / ".claude-plugin/marketplace.json", {"name": "shop", "plugins": [source]})
        write_plugin(market / "plugins/tools")
    if layout == "market":
        known = {"shop": {"installLocation": str(market)}}
        write(state / "known_marketplaces.json", known)
    if layout == "extra":
        place = {"source": {"source": "directory", "path": str(market)}}
        settings["extraKnownMarketplaces"] = {"shop": place}
    write(machine.home / ".claude/settings.json", settings)
    programs = machine.load()
    assert [plugin.id for plugin in programs.plugins] == ["tools@shop"]
    assert len(programs.hooks) == len(programs.servers) == 1


def test_a_plugin_of_the_project_starts_nothing_before_trust(machine: Machine) -> None:
    install(machine.home, "tools@shop", write_plugin(machine.base / "plugin"))
    machine.turn_on(machine.project, tools_at_shop=True)
    programs = machine.load()
    assert programs.hooks == programs.servers == ()
    assert "1 MCP server and 1 hook of this folder" in programs.notices[0]
    assert machine.load_agents(programs).personal_names == frozenset()
    programs.remember_trust(str(machine.base / "state"))
    assert len(machine.load().hooks) == 1
    # Another version of the plugin needs a new answer, also if its commands are the same.
    for name in ("newer", "newest"):
        servers = {"db": {"command": "sh", "args": ["-c", "$CLAUDE_PLUGIN_ROOT/serve"]}}
        folder = write_plugin(machine.base / name, hooks={}, mcpServers=servers)
        install(machine.home, "tools@shop", folder)
        programs = machine.load()
        assert programs.hooks == programs.servers == ()
        programs.remember_trust(str(machine.base / "state"))
        assert len(machine.load().servers) == 1


def test_a_project_cannot_turn_off_a_plugin_of_the_user(machine: Machine) -> None:
    install(machine.home, "tools@shop", write_plugin(machine.base / "plugin"))
    machine.turn_on(machine.home, tools_at_shop=True)
    machine.turn_on(machine.project, tools_at_shop=False)
    programs = machine.load()
    assert len(programs.hooks) == 1
    assert "stays on" in " ".join(map(str, programs.findings))
    machine.turn_on(machine.home, tools_at_shop=False)
    assert machine.load().plugins == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("commands", "../outside"),
        ("agents", ["./agents/reviewer.md", "../outside"]),
        ("skills", "./linked"),
        ("outputStyles", "ABSOLUTE"),
        ("hooks", "./linked/hooks.json"),
        ("mcpServers", "../outside/.mcp.json"),
    ],
)
def test_a_path_that_leaves_the_folder_is_refused(machine: Machine, field: str, value: Any) -> None:
    outside = machine.base / "outside"
    write(outside / "bad.md", "Bad.")
    write(outside / "hooks.json", {"hooks": {"Stop": [{"hooks": [{"command": "bad"}]}]}})
    write(outside / ".mcp.json", {"mcpServers": {"bad": {"command": "bad"}}})
    root = machine.base / "plugin"
    value = str(outside) if value == "ABSOLUTE" else value
    manifest: dict[str, Any] = {field: value}
    write_plugin(root, **manifest)
    os.symlink(outside, root / "linked")
    plugin, findings = read(root)
    assert plugin is not None
    assert any("leads out of the plugin's folder" in text for text in findings)
    shown = repr(plugin)
    assert "outside" not in shown
    assert "linked" not in shown


def test_a_linked_file_in_a_folder_of_a_plugin_is_refused(machine: Machine) -> None:
    root = write_plugin(machine.base / "plugin")
    secret = write(machine.base / "secret.md", AGENT.replace("reviewer", "secret"))
    os.symlink(secret, root / "agents/secret.md")
    loaded = machine.load_agents(machine.load(root))
    assert [agent.name for agent in loaded.agents] == ["tools:reviewer"]
    assert any("leads out" in str(item) for item in loaded.diagnostics)


def test_parts_that_have_no_counterpart_are_named_once(machine: Machine) -> None:
    root = write_plugin(machine.base / "plugin", lspServers={"x": {}}, channels=[{}], unknown=1)
    write(root / ".lsp.json", {})
    _, findings = read(root)
    assert findings == [
        "plugin tools: lspServers is not used here",
        "plugin tools: channels is not used here",
    ]


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({"name": "../x"}, "its name '../x' has other characters"),
        ({"name": 5}, "its name 5 has other characters"),
        ({"commands": 5}, "commands is not used: a path must be a text"),
        ({"commands": {"a": {}}}, "commands is not used: a table is not supported"),
        ({"agents": "./missing"}, "agents ./missing does not exist"),
        ({"hooks": ["./missing.json"]}, "hooks ./missing.json does not exist"),
        ({"userConfig": {"key": {"required": True}}}, "the option key has no value"),
    ],
)
def test_a_wrong_manifest_is_a_finding(
    machine: Machine, manifest: dict[str, Any], expected: str
) -> None:
    write_plugin(machine.base / "plugin", **manifest)
    _, findings = read(machine.base / "plugin")
    assert any(expected in text for text in findings), findings


@pytest.mark.parametrize("content", ["{", "[]", "\0", '{"name": ', "5"])
def test_a_manifest_that_cannot_be_read_is_a_finding(machine: Machine, content: str) -> None:
    root = write_plugin(machine.base / "plugin")
    write(root / ".claude-plugin/plugin.json", content)
    plugin, findings = read(root)
    assert "the file is not used" in findings[0]
    assert plugin is not None
    assert plugin.name == "plugin"


def test_a_root_with_a_skill_file_is_one_skill(machine: Machine) -> None:
    root = machine.base / "single"
    write(root / "SKILL.md", "---\nname: single\ndescription: One.\n---\nDo it.")
    programs = machine.load(root)
    assert list(machine.load_agents(programs).skills) == ["single:single"]


def test_options_of_the_user_reach_hooks_and_servers(machine: Machine) -> None:
    config = {"token": {"type": "string", "default": "none"}, "loud": {"type": "boolean"}}
    root = write_plugin(machine.base / "plugin", userConfig=config)
    server = {"command": "serve", "args": ["${user_config.token}", "${user_config.missing}"]}
    write(root / ".mcp.json", {"db": server})
    install(machine.home, "tools@shop", root)
    options = {"tools@shop": {"options": {"token": "abc", "loud": True}}}
    settings = {"enabledPlugins": {"tools@shop": True}, "pluginConfigs": options}
    write(machine.home / ".claude/settings.json", settings)
    (server,) = machine.load().servers
    assert server.args == ("abc", "${user_config.missing}")
    assert server.env["CLAUDE_PLUGIN_OPTION_loud"] == "true"


def test_two_plugins_with_one_name_are_told_apart(machine: Machine) -> None:
    first = write_plugin(machine.base / "first")
    second = write_plugin(machine.base / "second")
    programs = machine.load(first, second, machine.base / "nowhere")
    reasons = [item.reason for item in programs.listed_plugins]
    assert reasons == [
        "",
        f"{first} has the same name and takes precedence",
        "there is no such folder",
    ]


def test_a_plugin_that_is_not_on_this_machine_is_named(machine: Machine) -> None:
    machine.turn_on(machine.home, tools_at_shop=True, wrong=True)
    programs = machine.load()
    assert programs.plugins == ()
    assert "plugin tools@shop is not used: it is not on this machine" in programs.notices[0]


def test_disable_all_hooks_of_a_folder_turns_off_those_of_its_plugins(machine: Machine) -> None:
    install(machine.home, "tools@shop", write_plugin(machine.base / "plugin"))
    settings = {"enabledPlugins": {"tools@shop": True}, "disableAllHooks": True}
    write(machine.project / ".claude/settings.json", settings)
    programs = machine.load(trusts_all=True)
    assert programs.listed_hooks == ()
    assert len(programs.servers) == 1


def test_thirty_plugins_load_quickly(machine: Machine) -> None:
    roots = [write_plugin(machine.base / f"p{n}", name=f"p{n}") for n in range(30)]
    machine.load(*roots)
    seconds: list[float] = []
    for _ in range(5):
        start = time.process_time()
        assert len(machine.load(*roots).plugins) == 30
        seconds.append(time.process_time() - start)
    # The goal is 0.03 s; a busy machine may need more.
    assert min(seconds) < 0.12
    print(f"30 plugins: {min(seconds) * 1000:.1f} ms of CPU")
