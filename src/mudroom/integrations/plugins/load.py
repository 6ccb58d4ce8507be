"""Loading of the plugins that settings files and flags turn on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

from msgspec.structs import replace

from ..._platform.lazy_pattern import compile_later
from ..config_files import Finding
from ..file_names import list_places
from .locate import find_plugin
from .manifest import read_plugin
from .settings import PluginSetting, load_plugin_settings
from .spec import ListedPlugin, Plugin

T = TypeVar("T")
_VARIABLE = compile_later(r"\$\{(CLAUDE_PLUGIN_(?:ROOT|DATA)|user_config\.(\w+))\}")


class LoadedPlugins(NamedTuple):
    """The plugins that settings and flags name, and remarks."""

    listed: list[ListedPlugin]
    findings: list[Finding]

    @property
    def plugins(self) -> list[Plugin]:
        """The plugins that are used."""
        return [item.plugin for item in self.listed if item.plugin]


def load_plugins(
    folder: str, *, user_home: str, plugin_dirs: Iterable[str] = (), data_home: str = ""
) -> LoadedPlugins:
    """Load the plugins of a folder and of the user. Start nothing; read no text of their parts.

    Arguments:
        folder: of the session; its parents up to the root of the repository are read, too.
        user_home: the user's home folder, "" for none.
        plugin_dirs: folders of further plugins, which need no trust.
        data_home: folder for the data of plugins, "" for none.
    """
    findings: list[Finding] = []
    settings = load_plugin_settings(list_places(folder), user_home, findings)
    listed = [_load_folder(path, findings) for path in plugin_dirs]
    listed += [_load_setting(setting, user_home, findings) for setting in settings.enabled]
    used: dict[str, Plugin] = {}
    for index, item in enumerate(listed):
        if item.plugin is None:
            continue
        first = used.setdefault(item.plugin.name, item.plugin)
        if first is item.plugin:
            plugin = _add_variables(item.plugin, data_home)
            listed[index] = replace(item, plugin=plugin)
        elif first.root == item.plugin.root:
            reason = f"{first.origin} turns it on already"
            listed[index] = replace(item, plugin=None, reason=reason)
        else:
            reason = f"{first.root} has the same name and takes precedence"
            listed[index] = replace(item, plugin=None, reason=reason)
    return LoadedPlugins(listed, list(dict.fromkeys(findings)))


def _load_folder(path: str, findings: list[Finding]) -> ListedPlugin:
    """Load the plugin in a folder that a flag names."""
    origin = "--plugin-dir"
    folder = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(folder):
        text = f"{path} is not used: there is no such folder"
        findings.append(Finding(origin, text, "Name the folder of a plugin."))
        return ListedPlugin(id=path, origin=origin, reason="there is no such folder")
    name = os.path.basename(folder)
    plugin = read_plugin(folder, plugin_id=name, origin=origin, findings=findings)
    reason = "" if plugin else "its manifest cannot be used"
    return ListedPlugin(id=name, origin=origin, folder=folder, plugin=plugin, reason=reason)


def _load_setting(setting: PluginSetting, user_home: str, findings: list[Finding]) -> ListedPlugin:
    found = find_plugin(setting, user_home, findings)
    if found is None:
        text = f"plugin {setting.id} is not used: it is not on this machine"
        remedy = "Install it with Claude Code, or name its folder with --plugin-dir."
        # A repository may name plugins that the user does not want.
        findings.append(Finding(setting.origin, text, remedy, is_problem=not setting.place))
        reason = "it is not on this machine"
        return ListedPlugin(id=setting.id, origin=setting.origin, reason=reason)
    plugin = read_plugin(
        found.folder,
        plugin_id=setting.id,
        origin=setting.origin,
        place=setting.place,
        entry=found.entry,
        options=setting.options,
        findings=findings,
    )
    reason = "" if plugin else "its manifest cannot be used"
    return ListedPlugin(
        id=setting.id, origin=setting.origin, folder=found.folder, plugin=plugin, reason=reason
    )


def _add_variables(plugin: Plugin, data_home: str) -> Plugin:
    variables = {"CLAUDE_PLUGIN_ROOT": plugin.root, **plugin.variables}
    if data_home:
        variables["CLAUDE_PLUGIN_DATA"] = os.path.join(data_home, plugin.id.replace("@", "-"))
    return replace(plugin, variables=variables)


def fill_variables(plugin: Plugin, value: T) -> T:
    """Return a text, list or table of a plugin with its variables filled in.

    A variable without a value stays as it is.
    """
    filled = _map_texts(value, lambda text: fill_text(plugin.variables, text))
    return cast("T", filled)


def fill_text(variables: Mapping[str, str], text: str) -> str:
    """Return a text with `${CLAUDE_PLUGIN_ROOT}` and similar names filled in."""

    def fill(match: re.Match[str]) -> str:
        name = f"CLAUDE_PLUGIN_OPTION_{match[2]}" if match[2] else match[1]
        return variables.get(name, match[0])

    return _VARIABLE.sub(fill, text) if "${" in text else text


def _map_texts(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {key: _map_texts(item, change) for key, item in table.items()}
    return value
