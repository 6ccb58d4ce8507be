"""Hooks and MCP servers of plugins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from ..config_files import Finding, as_table, make_digest
from ..hook_programs.load import HookFile, read_hooks
from ..hook_programs.spec import HookSpec
from ..mcp_servers.load import parse_servers
from ..mcp_servers.spec import ServerSpec
from .load import fill_text, fill_variables
from .spec import Plugin


def list_plugin_hooks(plugins: Iterable[Plugin], findings: list[Finding]) -> Iterator[HookSpec]:
    for plugin in plugins:
        for table in plugin.hooks:
            file = HookFile(table.path, "claude", "plugin", plugin.place)
            # The manifest may have the events without a table `hooks` around them.
            content = table.content if "hooks" in table.content else {"hooks": table.content}
            for hook in read_hooks(file, content, findings):
                yield replace(
                    hook,
                    command=fill_text(plugin.variables, hook.command),
                    args=hook.args and tuple(fill_variables(plugin, list(hook.args))),
                    url=fill_text(plugin.variables, hook.url),
                    headers=fill_variables(plugin, dict(hook.headers)),
                    env=plugin.variables,
                    digest=make_digest(hook.digest, plugin.id, dict(plugin.variables)),
                )


def list_plugin_servers(
    plugins: Iterable[Plugin], environ: Mapping[str, str], findings: list[Finding]
) -> list[ServerSpec]:
    """List plugins' MCP servers, named `plugin:PLUGIN:SERVER`."""
    servers: list[ServerSpec] = []
    for plugin in plugins:
        for table in plugin.servers:
            loaded = parse_servers(
                _name_entries(plugin, table.content),
                origin=table.path,
                folder=plugin.root,
                environ={**environ, **plugin.variables},
            )
            findings += loaded.findings
            servers += [_complete(plugin, server) for server in loaded.servers]
    return servers


def _name_entries(plugin: Plugin, content: dict[str, Any]) -> dict[str, Any]:
    return {
        f"plugin:{plugin.name}:{name}": fill_variables(plugin, entry)
        for name, entry in as_table(content.get("mcpServers", content)).items()
    }


def _complete(plugin: Plugin, server: ServerSpec) -> ServerSpec:
    env = server.env
    cwd = server.cwd
    if server.transport == "stdio":
        env = {**plugin.variables, **server.env}
        if plugin.place or cwd:
            cwd = os.path.join(plugin.place, cwd).rstrip("/")
    # A server may find its plugin by a variable, so the folder is part of its definition.
    digest = make_digest(server.digest, plugin.id, dict(plugin.variables))
    return replace(server, scope="plugin", place=plugin.place, env=env, cwd=cwd, digest=digest)


def make_data_folders(plugins: Iterable[Plugin]) -> None:
    for plugin in plugins:
        data = plugin.variables.get("CLAUDE_PLUGIN_DATA")
        if data and (plugin.hooks or plugin.servers):
            os.makedirs(data, mode=0o700, exist_ok=True)
