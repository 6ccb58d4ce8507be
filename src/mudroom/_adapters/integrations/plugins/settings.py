"""Which plugins settings files turn on or off, and the marketplaces that these files name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..config_files import Finding, read_bytes

# Highest precedence first.
SETTINGS = (".claude/settings.local.json", ".claude/settings.json")


class PluginSetting(Struct, frozen=True):
    """A plugin that a settings file turns on.

    Arguments:
        id: `NAME@MARKETPLACE`. origin: the file's path. place: see Plugin.
        options: values that the user set for it.
        market: source of the marketplace as the same file has it, {} if it has none.
    """

    id: str
    origin: str
    place: str
    options: Mapping[str, Any]
    market: Mapping[str, Any]


class _Settings(Struct, rename="camel"):
    enabled_plugins: Any = None
    extra_known_marketplaces: Any = None
    plugin_configs: Any = None
    disable_skill_shell_execution: Any = None


class PluginSettings(Struct, frozen=True):
    """What settings say about plugins and commands.

    Arguments:
        forbids_commands: path of the file that forbids shell commands in skills and command files,
            "" for none.
    """

    enabled: tuple[PluginSetting, ...] = ()
    forbids_commands: str = ""


def load_plugin_settings(
    places: Sequence[str], user_home: str, findings: list[Finding]
) -> PluginSettings:
    """Load what the settings files of the user and of a folder say about plugins.

    Only the user's file turns off a plugin that the user turned on, so that a repository cannot
    remove a hook that guards the user. Only that file has values of options.

    Arguments:
        places: folders of the project, nearest first. user_home: "" for none.
    """
    home = os.path.realpath(user_home) if user_home else ""
    files = [(os.path.join(home, name), "") for name in SETTINGS if home]
    files += [
        (os.path.join(place, name), place) for place in places if place != home for name in SETTINGS
    ]
    options: dict[str, Any] = {}
    chosen: dict[str, PluginSetting | None] = {}
    forbids = ""
    for path, place in files:
        settings = _read(path)
        if settings.disable_skill_shell_execution is True:
            forbids = forbids or path
        if not place:
            options |= _as_table(settings.plugin_configs)
        markets = _as_table(settings.extra_known_marketplaces)
        for name, is_on in _as_table(settings.enabled_plugins).items():
            first = chosen.get(name)
            if name in chosen:
                if first and is_on is False and place and not first.place:
                    text = f"plugin {name} stays on: only a file of yours turns it off"
                    findings.append(Finding(path, text, is_problem=False))
                continue
            if is_on is False:
                chosen[name] = None
                findings.append(Finding(path, f"plugin {name} is turned off", is_problem=False))
                continue
            market = _as_table(markets.get(name.rpartition("@")[2]))
            own = _as_table(_as_table(options.get(name)).get("options"))
            chosen[name] = PluginSetting(name, path, place, own, market)
    return PluginSettings(tuple(filter(None, chosen.values())), forbids)


def _read(path: str) -> _Settings:
    """Read the settings in a file; none if it is missing or wrong, which other readers report."""
    data = read_bytes(path, [])
    if not data:
        return _Settings()
    try:
        return msgspec.json.decode(data, type=_Settings)
    except (ValueError, RecursionError):
        return _Settings()


def _as_table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
