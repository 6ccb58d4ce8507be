"""Lists plugins: their parts, what they add to a request, and what they may start."""

from __future__ import annotations

import os
from typing import Any, cast

from ...._adapters import agent_files
from ...._adapters.agent_files import LoadedAgents
from ...._adapters.agent_files.commands import load_commands
from ...._adapters.integrations.config_files import Finding
from ...._adapters.integrations.plugins.spec import ListedPlugin, Plugin
from ...._adapters.integrations.usable_programs import UsablePrograms, describe_program
from ...._core.listings import count_noun, format_size
from ...._projections.safe_text import escape_line
from ...._session.agent_catalog import KNOWN_TOOLS
from ....errors import UnknownName
from ...output.json_output import print_json
from ...output.listing import print_entry, print_rows
from ..load_settings import load_settings
from .load_programs import require_programs


def print_plugins(cwd: str, plugin_dirs: str | None, *, as_json: bool) -> int:
    """Print the plugins that files and flags name."""
    programs = require_programs(load_settings(cwd, plugin_dirs=plugin_dirs), cwd)
    if as_json:
        listed = [_encode(item) for item in programs.listed_plugins]
        print_json({"plugins": listed, "findings": programs.plugin_findings})
        return 0
    rows: list[tuple[str, str]] = []
    for item in programs.listed_plugins:
        plugin = item.plugin
        rows.append((escape_line(plugin.name if plugin else item.id), _describe(item)))
        state = f"not used: {item.reason}" if item.reason else "used"
        rows.append(("", escape_line(f"{state}; {item.origin}")))
    print_rows(rows or [("no plugins. To use one: mudroom --plugin-dir DIR", "")])
    for finding in programs.plugin_findings:
        print_entry(f"{'problem' if finding.is_problem else 'note'}: {finding}")
    return 0


def _describe(item: ListedPlugin) -> str:
    if item.plugin is None:
        return escape_line(item.folder)
    parts = (item.plugin.version, item.plugin.description)
    return escape_line(": ".join(filter(None, parts)) or item.folder)


def _encode(item: ListedPlugin) -> dict[str, Any]:
    plugin = item.plugin
    return {
        "id": item.id,
        "name": plugin.name if plugin else "",
        "version": plugin.version if plugin else "",
        "description": plugin.description if plugin else "",
        "folder": item.folder,
        "origin": item.origin,
        "used": plugin is not None,
        "reason": item.reason,
    }


def print_plugin(cwd: str, name: str, plugin_dirs: str | None, *, as_json: bool) -> int:
    """Print the parts of one plugin. Raises UnknownName."""
    programs = require_programs(load_settings(cwd, plugin_dirs=plugin_dirs), cwd)
    item = next((each for each in programs.listed_plugins if _is_named(each, name)), None)
    if item is None:
        known = {each.plugin.name if each.plugin else each.id for each in programs.listed_plugins}
        raise UnknownName("plugin", name, known)
    parts = _list_parts(item.plugin, programs) if item.plugin else {}
    findings = [str(each) for each in programs.plugin_findings if _is_about(each, item)]
    if as_json:
        print_json(_encode(item) | parts | {"findings": findings})
        return 0
    rows = [(key, escape_line(str(value))) for key, value in _encode(item).items() if value]
    for key, value in parts.items():
        listed = cast("list[str]", value if isinstance(value, list) else [value])
        rows += [(key if not n else "", escape_line(str(each))) for n, each in enumerate(listed)]
    print_rows(rows)
    for finding in findings:
        print_entry(finding)
    return 0


def _is_named(item: ListedPlugin, name: str) -> bool:
    return name in (item.id, item.plugin.name if item.plugin else "")


def _is_about(finding: Finding, item: ListedPlugin) -> bool:
    """Return whether a finding is about a plugin or a file in its folder."""
    if item.folder and finding.where.startswith(f"{item.folder}/"):
        return True
    return item.id in finding.text


def _list_parts(plugin: Plugin, programs: UsablePrograms) -> dict[str, Any]:
    """Return the names of a plugin's parts, the size of its listing, and its programs."""
    loaded = agent_files.load_agent_files(
        plugin.root, user_home="", tools=KNOWN_TOOLS, plugins=[plugin]
    )
    prefix = f"{plugin.name}:"
    commands = load_commands(plugin.root, user_home="", plugins=[plugin])
    styles = agent_files.load_output_styles(plugin.root, user_home="", plugins=[plugin])
    items = (*programs.listed_servers, *programs.listed_hooks)
    started = [
        f"{describe_program(item.spec)}: {item.spec.shown} ({item.reason or 'used'})"
        for item in items
        if os.path.realpath(item.spec.origin).startswith(f"{plugin.root}/")
    ]
    agents = [agent.name for agent in loaded.agents if agent.name.startswith(prefix)]
    skills = [name for name in loaded.skills if name.startswith(prefix)]
    size = _measure_listing(loaded, prefix)
    return {
        "agents": agents,
        "skills": skills,
        "commands": [f"/{name}" for name in sorted(commands) if name.startswith(prefix)],
        "output styles": [name for name in styles.by_name if name.startswith(prefix)],
        "text in each request": f"{format_size(size)}, for {_count(agents, skills)}",
        "may start": started,
    }


def _measure_listing(loaded: LoadedAgents, prefix: str) -> int:
    """Measure the names and descriptions in bytes, before long descriptions are cut."""
    listed = [(agent.name, agent.description) for agent in loaded.agents]
    listed += [
        (each.name, each.description) for each in loaded.skills.values() if not each.is_hidden
    ]
    lines = [f"- {name}: {text}\n" for name, text in listed if name.startswith(prefix)]
    return len("".join(lines).encode())


def _count(agents: list[str], skills: list[str]) -> str:
    return f"{count_noun(len(agents), 'agent')} and {count_noun(len(skills), 'skill')}"
