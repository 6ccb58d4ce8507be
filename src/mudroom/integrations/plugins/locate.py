"""Folders of plugins on this machine: installed by Claude Code, or in a local marketplace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from ..config_files import Finding, read_json
from .settings import PluginSetting

STATE = ".claude/plugins"
"""Folder below the user's home in which Claude Code keeps plugins."""
MARKET_FILE = ".claude-plugin/marketplace.json"


class FoundPlugin(Struct, frozen=True):
    """The folder of a plugin.

    Arguments:
        entry: what the marketplace says about the plugin, {} if it says nothing.
    """

    folder: str
    entry: Mapping[str, Any] = {}


def find_plugin(
    setting: PluginSetting, user_home: str, findings: list[Finding]
) -> FoundPlugin | None:
    """Return the folder of a plugin that a settings file names; None if it is not on this machine.

    The installed version has precedence over the one in the folder of its marketplace.
    """
    name, _, market = setting.id.rpartition("@")
    parts = (name, market)
    if not all(parts) or any("/" in part or part.startswith(".") for part in parts):
        findings.append(
            Finding(
                setting.origin,
                f"plugin {setting.id} is not used: it has no name of the form NAME@MARKETPLACE",
                "Correct the name.",
            )
        )
        return None
    state = os.path.join(user_home, STATE) if user_home else ""
    folder = _find_market(setting, market, state)
    entry = _find_entry(folder, name, findings) if folder else {}
    installed = _find_installed(setting, state) if state else ""
    if installed:
        return FoundPlugin(installed, entry)
    if source := entry.get("source"):
        if not isinstance(source, str):
            return None
        path = os.path.realpath(os.path.join(folder, source))
        if path != folder and not path.startswith(f"{folder}/"):
            text = f"plugin {setting.id} is not used: {source} leads out of the marketplace"
            findings.append(Finding(os.path.join(folder, MARKET_FILE), text))
            return None
        if os.path.isdir(path):
            return FoundPlugin(path, entry)
    cached = _find_cached(os.path.join(state, "cache", market, name)) if state else ""
    return FoundPlugin(cached, entry) if cached else None


def _find_market(setting: PluginSetting, market: str, state: str) -> str:
    """Return the folder of a marketplace, "" if it is not on this machine."""
    source = setting.market.get("source")
    table = _as_table(source)
    path = table.get("path")
    candidates: list[str] = []
    if isinstance(path, str) and table.get("source") in ("directory", "file", "local"):
        path = path.removesuffix(MARKET_FILE)
        base = setting.place or os.path.dirname(os.path.dirname(setting.origin))
        candidates.append(os.path.join(base, os.path.expanduser(path)))
    if state:
        known = read_json(os.path.join(state, "known_marketplaces.json"), []).get(market)
        location = _as_table(known).get("installLocation")
        if isinstance(location, str):
            candidates.append(location)
        candidates.append(os.path.join(state, "marketplaces", market))
    for folder in candidates:
        if os.path.isfile(os.path.join(folder, MARKET_FILE)):
            return os.path.realpath(folder)
    return ""


def _find_entry(folder: str, name: str, findings: list[Finding]) -> dict[str, Any]:
    table = read_json(os.path.join(folder, MARKET_FILE), findings)
    plugins = table.get("plugins")
    root = _as_table(table.get("metadata")).get("pluginRoot")
    for entry in cast("list[Any]", plugins) if isinstance(plugins, list) else []:
        fields = _as_table(entry)
        if fields.get("name") != name:
            continue
        source = fields.get("source")
        if isinstance(root, str) and isinstance(source, str):
            return {**fields, "source": os.path.join(root, source)}
        return fields
    return {}


def _find_installed(setting: PluginSetting, state: str) -> str:
    """Return the folder that the list of installed plugins has, "" for none."""
    plugins = read_json(os.path.join(state, "installed_plugins.json"), []).get("plugins")
    listed = _as_table(plugins).get(setting.id)
    entries = cast("list[Any]", listed) if isinstance(listed, list) else [listed]
    paths = [
        (entry.get("projectPath") != (setting.place or None), entry["installPath"])
        for entry in map(_as_table, entries)
        if isinstance(entry.get("installPath"), str)
    ]
    existing = (path for _, path in sorted(paths) if os.path.isdir(path))
    return next((os.path.realpath(path) for path in existing), "")


def _find_cached(folder: str) -> str:
    """Return the newest version below a folder of Claude Code's cache, "" for none."""
    try:
        with os.scandir(folder) as scan:
            versions = [entry for entry in scan if entry.is_dir()]
    except OSError:
        return ""
    newest = max(versions, key=lambda entry: entry.stat().st_mtime_ns, default=None)
    return os.path.realpath(newest.path) if newest else ""


def _as_table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
