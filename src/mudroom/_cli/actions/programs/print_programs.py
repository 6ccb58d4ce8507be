"""Lists MCP servers, hooks and plugins with their files, and explains why any are unused."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, cast

from ...._adapters import agent_files
from ...._adapters.agent_files import LoadedAgents
from ...._adapters.agent_files.commands import load_commands
from ...._adapters.integrations.config_files import Finding
from ...._adapters.integrations.hook_programs.events import explain_never_fires
from ...._adapters.integrations.hook_programs.run_log import HookRun, RunLog, make_run_key
from ...._adapters.integrations.hook_programs.spec import HookSpec
from ...._adapters.integrations.mcp_servers.spec import ServerSpec
from ...._adapters.integrations.plugins.spec import ListedPlugin, Plugin
from ...._adapters.integrations.usable_programs import (
    Listed,
    UsablePrograms,
    describe_program,
)
from ...._core.listings import count_noun, format_size
from ...._projections.safe_text import escape_line
from ...._session.agent_catalog import KNOWN_TOOLS
from ....errors import UnknownName
from ...output.json_output import print_json
from ...output.listing import print_entry, print_rows
from ..load_settings import load_settings
from .load_programs import require_programs

TRUST_HINT = "See them: mudroom trust. Use them: mudroom trust add, or --trust for one run."


def print_servers(cwd: str, *, as_json: bool = False) -> None:
    programs = require_programs(load_settings(cwd), cwd)
    if as_json:
        servers = [_encode_server(item) for item in programs.listed_servers]
        print_json({"servers": servers, "findings": programs.server_findings})
        return
    print_rows(
        [
            row
            for item in programs.listed_servers
            for row in (
                (escape_line(item.spec.name), escape_line(item.spec.shown)),
                *_list_owner(item.spec),
                ("", f"{item.spec.transport}, {_describe_state(item)}"),
            )
        ]
        or [("no MCP servers. To add one: mudroom mcp add", "")]
    )
    _print_remarks(programs, programs.listed_servers, programs.server_findings)


def _list_owner(spec: ServerSpec) -> list[tuple[str, str]]:
    return [("", f"only for runs of agent {escape_line(spec.agent)}")] if spec.agent else []


def print_server(cwd: str, name: str, *, as_json: bool) -> None:
    """Print all definitions of a server, the one in use first. Raises UnknownName."""
    programs = require_programs(load_settings(cwd), cwd)
    items = [item for item in programs.listed_servers if item.spec.name == name]
    if not items:
        known = {item.spec.name for item in programs.listed_servers}
        raise UnknownName("MCP server", name, known)
    items.sort(key=lambda item: bool(item.reason))
    if as_json:
        print_json([_encode_server(item) | _encode_details(item) for item in items])
        return
    for item in items:
        details = _encode_details(item)
        print_rows(
            [
                ("server", escape_line(name)),
                ("state", _describe_state(item)),
                (
                    "command" if item.spec.transport == "stdio" else "address",
                    escape_line(item.spec.shown),
                ),
                *((key, _format_value(value)) for key, value in details.items() if value),
            ]
        )


def print_hooks(cwd: str, plugin_dirs: str | None, *, as_json: bool = False) -> None:
    settings = load_settings(cwd, plugin_dirs=plugin_dirs)
    programs = require_programs(settings, cwd)
    runs = RunLog(settings.home).find_last_runs() if programs.listed_hooks else {}
    if as_json:
        hooks = [
            _encode_hook(item) | {"last_runs": runs.get(make_run_key(item.spec), [])}
            for item in programs.listed_hooks
        ]
        print_json({"hooks": hooks, "findings": programs.hook_findings})
        return
    print_rows(
        [
            row
            for item in programs.listed_hooks
            for row in (
                (
                    escape_line(describe_program(item.spec).removeprefix("hook ")),
                    escape_line(item.spec.shown),
                ),
                ("", _describe_state(item)),
                *_describe_runs(runs.get(make_run_key(item.spec), [])),
            )
        ]
        or [("no hooks. They are in settings files, such as .claude/settings.json", "")]
    )
    _print_remarks(programs, programs.listed_hooks, programs.hook_findings)


def _describe_runs(runs: list[HookRun]) -> list[tuple[str, str]]:
    texts = [f"{run.ending} in {run.seconds:g} s" for run in reversed(runs)]
    return [("", f"last runs: {escape_line(', '.join(texts))}")] if texts else []


def print_programs_of_folder(programs: UsablePrograms) -> None:
    """Print the servers and hooks that need trust, each with its whole command."""
    untrusted = {program.digest for program in programs.untrusted}
    rows: list[tuple[str, str]] = []
    for program in programs.programs_of_folder:
        state = "not trusted" if program.digest in untrusted else "trusted"
        rows.append((escape_line(describe_program(program)), escape_line(program.shown)))
        rows.append(("", f"{state}; {program.origin}"))
    if rows:
        print_rows(rows)


def _print_remarks(
    programs: UsablePrograms,
    listed: Iterable[Listed[ServerSpec]] | Iterable[Listed[HookSpec]],
    findings: Iterable[Finding],
) -> None:
    if any(item.spec in programs.untrusted for item in listed):
        print_entry(TRUST_HINT)
    for finding in findings:
        print_entry(f"{'problem' if finding.is_problem else 'note'}: {finding}")


def _describe_state(item: Listed[ServerSpec] | Listed[HookSpec]) -> str:
    state = item.reason or "used"
    if item.reason and not item.lacks_trust:
        state = f"not used: {item.reason}"
    return f"{state}; {item.spec.origin}"


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value)))
    return "yes" if value is True else str(value)


def _encode_server(item: Listed[ServerSpec]) -> dict[str, Any]:
    spec = item.spec
    return {
        "name": spec.name,
        "transport": spec.transport,
        "command": spec.shown,
        "scope": spec.scope,
        "origin": spec.origin,
        **({"agent": spec.agent} if spec.agent else {}),
        "used": not item.reason,
        "reason": item.reason,
    }


def _encode_details(item: Listed[ServerSpec]) -> dict[str, Any]:
    """Encode a server's settings without header values, which may be secrets."""
    spec = item.spec
    return {
        "folder": spec.cwd,
        "tools": list(spec.include),
        "tools left out": list(spec.exclude),
        "start timeout": f"{spec.start_timeout:g} s",
        "call timeout": f"{spec.call_timeout:g} s",
        "headers": list(spec.headers),
        "trusts annotations": spec.is_trusted,
        "parallel calls": spec.is_parallel,
        "always loaded": spec.always_load,
    }


def _encode_hook(item: Listed[HookSpec]) -> dict[str, Any]:
    spec = item.spec
    return {
        "event": spec.file_event or spec.event,
        "matcher": spec.matcher,
        "type": spec.kind,
        "command": spec.shown,
        "scope": spec.scope,
        "origin": spec.origin,
        "fires": not explain_never_fires(item.spec.event, item.spec.kind),
        "used": not item.reason,
        "reason": item.reason,
    }


def print_plugins(cwd: str, plugin_dirs: str | None, *, as_json: bool = False) -> None:
    programs = require_programs(load_settings(cwd, plugin_dirs=plugin_dirs), cwd)
    if as_json:
        listed = [_encode(item) for item in programs.listed_plugins]
        print_json({"plugins": listed, "findings": programs.plugin_findings})
        return
    rows: list[tuple[str, str]] = []
    for item in programs.listed_plugins:
        plugin = item.plugin
        rows.append((escape_line(plugin.name if plugin else item.id), _describe(item)))
        state = f"not used: {item.reason}" if item.reason else "used"
        rows.append(("", escape_line(f"{state}; {item.origin}")))
    print_rows(rows or [("no plugins. To use one: mudroom --plugin-dir DIR", "")])
    _print_remarks(programs, (), programs.plugin_findings)


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


def print_plugin(cwd: str, name: str, plugin_dirs: str | None, *, as_json: bool) -> None:
    """Print one plugin's parts. Raises UnknownName."""
    programs = require_programs(load_settings(cwd, plugin_dirs=plugin_dirs), cwd)
    item = next((each for each in programs.listed_plugins if _is_named(each, name)), None)
    if item is None:
        known = {each.plugin.name if each.plugin else each.id for each in programs.listed_plugins}
        raise UnknownName("plugin", name, known)
    parts = _list_parts(item.plugin, programs) if item.plugin else {}
    findings = [str(each) for each in programs.plugin_findings if _is_about(each, item)]
    if as_json:
        print_json(_encode(item) | parts | {"findings": findings})
        return
    rows = [(key, escape_line(str(value))) for key, value in _encode(item).items() if value]
    for key, value in parts.items():
        listed = cast("list[str]", value if isinstance(value, list) else [value])
        rows += [(key if not n else "", escape_line(str(each))) for n, each in enumerate(listed)]
    print_rows(rows)
    for finding in findings:
        print_entry(finding)


def _is_named(item: ListedPlugin, name: str) -> bool:
    return name in (item.id, item.plugin.name if item.plugin else "")


def _is_about(finding: Finding, item: ListedPlugin) -> bool:
    if item.folder and finding.where.startswith(f"{item.folder}/"):
        return True
    return item.id in finding.text


def _list_parts(plugin: Plugin, programs: UsablePrograms) -> dict[str, Any]:
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
