"""Loads plugins turned on by settings files and flags, from folders and marketplaces."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...._core.json_values import map_texts
from ...._platform.git_folders import list_project_folders
from ...._platform.open_beneath import is_beneath
from ...._platform.patterns import compile_later
from ..config_files import Finding, as_table, read_bytes, read_json
from .spec import ListedPlugin, Plugin, Table

SETTINGS = (".claude/settings.local.json", ".claude/settings.json")  # highest precedence first


class PluginSetting(Struct, frozen=True):
    id: str  # NAME@MARKETPLACE
    origin: str  # the file's path
    place: str  # as in Plugin
    options: Mapping[str, Any]  # the user's values
    market: Mapping[str, Any]  # source of the marketplace, from the same file


class _Settings(Struct, rename="camel"):
    enabled_plugins: Any = None
    extra_known_marketplaces: Any = None
    plugin_configs: Any = None
    disable_skill_shell_execution: Any = None


class PluginSettings(Struct, frozen=True):
    """Settings about plugins and commands."""

    enabled: tuple[PluginSetting, ...] = ()
    # The file that forbids shell commands in skills and command files.
    forbids_commands: str = ""


def load_plugin_settings(
    places: Sequence[str], user_home: str, findings: list[Finding]
) -> PluginSettings:
    """Load settings about plugins from the user's and a folder's settings files.

    Only the user's file can turn off a plugin the user turned on, so that a repository cannot
    remove a hook that guards the user. Only that file has values of options. Project folders come
    nearest first.
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
            options |= as_table(settings.plugin_configs)
        markets = as_table(settings.extra_known_marketplaces)
        for name, is_on in as_table(settings.enabled_plugins).items():
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
            market = as_table(markets.get(name.rpartition("@")[2]))
            own = as_table(as_table(options.get(name)).get("options"))
            chosen[name] = PluginSetting(name, path, place, own, market)
    return PluginSettings(tuple(filter(None, chosen.values())), forbids)


def _read(path: str) -> _Settings:
    """Read a file's settings; none if it is missing or wrong, which other readers report."""
    data = read_bytes(path, [])
    if not data:
        return _Settings()
    try:
        return msgspec.json.decode(data, type=_Settings)
    except (ValueError, RecursionError):
        return _Settings()


T = TypeVar("T")
_VARIABLE = compile_later(r"\$\{(CLAUDE_PLUGIN_(?:ROOT|DATA)|user_config\.(\w+))\}")


class LoadedPlugins(NamedTuple):
    listed: list[ListedPlugin]
    findings: list[Finding]

    @property
    def plugins(self) -> list[Plugin]:
        return [item.plugin for item in self.listed if item.plugin]


def load_plugins(
    folder: str, *, user_home: str, plugin_dirs: Iterable[str] = (), data_home: str = ""
) -> LoadedPlugins:
    """Load the plugins of a folder, its parents, and the user; `plugin_dirs` need no trust."""
    findings: list[Finding] = []
    settings = load_plugin_settings(list_project_folders(folder), user_home, findings)
    listed = [_load_folder(path, findings) for path in plugin_dirs]
    listed += [_load_setting(setting, user_home, findings) for setting in settings.enabled]
    used: dict[str, Plugin] = {}
    for index, item in enumerate(listed):
        if item.plugin is None:
            continue
        first = used.setdefault(item.plugin.name, item.plugin)
        if first is item.plugin:
            listed[index] = replace(item, plugin=_add_variables(item.plugin, data_home))
            continue
        reason = f"{first.root} has the same name and takes precedence"
        if first.root == item.plugin.root:
            reason = f"{first.origin} turns it on already"
        listed[index] = replace(item, plugin=None, reason=reason)
    return LoadedPlugins(listed, list(dict.fromkeys(findings)))


def _load_folder(path: str, findings: list[Finding]) -> ListedPlugin:
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
        # A repository may name plugins the user does not want.
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
    # A variable without a value stays as it is.
    return cast("T", map_texts(value, lambda text: fill_text(plugin.variables, text)))


def fill_text(variables: Mapping[str, str], text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        name = f"CLAUDE_PLUGIN_OPTION_{match[2]}" if match[2] else match[1]
        return variables.get(name, match[0])

    return _VARIABLE.sub(fill, text) if "${" in text else text


# Claude Code keeps plugins there, below the user's home.
STATE = ".claude/plugins"
MARKET_FILE = ".claude-plugin/marketplace.json"


class FoundPlugin(Struct, frozen=True):
    folder: str
    entry: Mapping[str, Any] = {}  # the plugin's entry in the marketplace


def find_plugin(
    setting: PluginSetting, user_home: str, findings: list[Finding]
) -> FoundPlugin | None:
    """Find a plugin's folder: the installed one, or else the one in its marketplace's folder."""
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
        if not is_beneath(path, folder):
            text = f"plugin {setting.id} is not used: {source} leads out of the marketplace"
            findings.append(Finding(os.path.join(folder, MARKET_FILE), text))
            return None
        if os.path.isdir(path):
            return FoundPlugin(path, entry)
    cached = _find_cached(os.path.join(state, "cache", market, name)) if state else ""
    return FoundPlugin(cached, entry) if cached else None


def _find_market(setting: PluginSetting, market: str, state: str) -> str:
    source = setting.market.get("source")
    table = as_table(source)
    path = table.get("path")
    candidates: list[str] = []
    if isinstance(path, str) and table.get("source") in ("directory", "file", "local"):
        path = path.removesuffix(MARKET_FILE)
        base = setting.place or os.path.dirname(os.path.dirname(setting.origin))
        candidates.append(os.path.join(base, os.path.expanduser(path)))
    if state:
        known = read_json(os.path.join(state, "known_marketplaces.json"), []).get(market)
        location = as_table(known).get("installLocation")
        if isinstance(location, str):
            candidates.append(location)
        candidates.append(os.path.join(state, "marketplaces", market))
    existing = (each for each in candidates if os.path.isfile(os.path.join(each, MARKET_FILE)))
    return next(map(os.path.realpath, existing), "")


def _find_entry(folder: str, name: str, findings: list[Finding]) -> dict[str, Any]:
    table = read_json(os.path.join(folder, MARKET_FILE), findings)
    plugins = table.get("plugins")
    root = as_table(table.get("metadata")).get("pluginRoot")
    for entry in cast("list[Any]", plugins) if isinstance(plugins, list) else []:
        fields = as_table(entry)
        if fields.get("name") != name:
            continue
        source = fields.get("source")
        if isinstance(root, str) and isinstance(source, str):
            return {**fields, "source": os.path.join(root, source)}
        return fields
    return {}


def _find_installed(setting: PluginSetting, state: str) -> str:
    plugins = read_json(os.path.join(state, "installed_plugins.json"), []).get("plugins")
    listed = as_table(plugins).get(setting.id)
    entries = cast("list[Any]", listed) if isinstance(listed, list) else [listed]
    paths = [
        (entry.get("projectPath") != (setting.place or None), entry["installPath"])
        for entry in map(as_table, entries)
        if isinstance(entry.get("installPath"), str)
    ]
    existing = (path for _, path in sorted(paths) if os.path.isdir(path))
    return next((os.path.realpath(path) for path in existing), "")


def _find_cached(folder: str) -> str:
    """Find the newest version in a folder of Claude Code's cache; "" if there is none."""
    try:
        with os.scandir(folder) as scan:
            versions = [entry for entry in scan if entry.is_dir()]
    except OSError:
        return ""
    newest = max(versions, key=lambda entry: entry.stat().st_mtime_ns, default=None)
    return os.path.realpath(newest.path) if newest else ""


MANIFEST = ".claude-plugin/plugin.json"
_NAME = compile_later(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# These parts of the manifest have no counterpart here.
_NOT_USED = (
    "workflows",
    "lspServers",
    "channels",
    "dependencies",
    "monitors",
    "themes",
    "experimental",
)
_NOT_USED_FILES = (
    (".lsp.json", "lspServers"),
    ("monitors", "monitors"),
    ("themes", "themes"),
    ("workflows", "workflows"),
)
# Fields of a marketplace that replace a manifest's.
_ENTRY_FIELDS = (
    "version",
    "description",
    "skills",
    "commands",
    "agents",
    "outputStyles",
    "hooks",
    "mcpServers",
    "userConfig",
)


class _Reader(Struct):
    root: str
    manifest: Mapping[str, Any]
    path: str
    name: str
    findings: list[Finding]

    def add(self, text: str, remedy: str = "", *, is_problem: bool = True) -> None:
        self.findings.append(Finding(self.path, f"plugin {self.name}: {text}", remedy, is_problem))

    def resolve(self, field: str, text: object) -> str:
        """Resolve a part's path; "" if it does not exist or is outside the folder."""
        if not isinstance(text, str):
            self.add(f"{field} is not used: a path must be a text", "Correct the manifest.")
            return ""
        real = os.path.realpath(os.path.join(self.root, text))
        if os.path.isabs(text) or not is_beneath(real, self.root):
            self.add(f"{field} {text} is not used: it leads out of the plugin's folder")
            return ""
        if not os.path.exists(real):
            self.add(f"{field} {text} does not exist", "Correct the manifest.")
            return ""
        return real

    def list_paths(self, field: str, default: str, *, adds: bool = False) -> tuple[str, ...]:
        """List the real paths of parts. The manifest's replace the default, or are added to it."""
        declared = self.manifest.get(field)
        paths: list[str] = []
        if (declared is None or adds) and os.path.lexists(os.path.join(self.root, default)):
            paths.append(self.resolve(field, default))
        if isinstance(declared, dict):
            self.add(f"{field} is not used: a table is not supported", "Use a list of paths.")
            declared = None
        items = cast("list[Any]", declared if isinstance(declared, list) else [declared])
        paths += [self.resolve(field, item) for item in items if item is not None]
        return tuple(dict.fromkeys(filter(None, paths)))

    def list_tables(self, field: str, default: str) -> tuple[Table, ...]:
        """List the tables of one kind of program, from the default file and the manifest."""
        declared = self.manifest.get(field)
        items = cast("list[Any]", declared if isinstance(declared, list) else [declared])
        if os.path.lexists(os.path.join(self.root, default)):
            items = [default, *items]
        tables: dict[str, Table] = {}
        for item in items:
            if isinstance(item, dict):
                path = f"{self.path}#{len(tables)}" if self.path in tables else self.path
                tables[path] = Table(self.path, cast("dict[str, Any]", item))
            elif item is not None and (path := self.resolve(field, item)):
                tables[path] = Table(path, read_json(path, self.findings))
        return tuple(tables.values())


def read_plugin(
    folder: str,
    *,
    plugin_id: str,
    origin: str,
    findings: list[Finding],
    place: str = "",
    entry: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Plugin | None:
    """Read the plugin in a folder; its manifest takes precedence over a marketplace's entry."""
    root = os.path.realpath(folder)
    path = os.path.join(root, MANIFEST)
    manifest = read_json(path, findings)
    known = {key: value for key, value in (entry or {}).items() if key in _ENTRY_FIELDS}
    fields = {**known, **manifest}
    default = plugin_id.rpartition("@")[0] or os.path.basename(root)
    name = fields.get("name", default)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        findings.append(
            Finding(
                path,
                f"the plugin is not used: its name {name!r} has other characters than letters, "
                "digits, hyphens, underscores and dots",
                "Correct the name.",
            )
        )
        return None
    reader = _Reader(root, fields, path, name, findings)
    _report_unused(reader)
    skills = reader.list_paths("skills", "skills", adds=True)
    if not skills and os.path.lexists(os.path.join(root, "SKILL.md")):
        skills = tuple(filter(None, [reader.resolve("skills", "SKILL.md")]))
    plugin = Plugin(
        id=plugin_id,
        name=name,
        root=root,
        origin=origin,
        place=place,
        version=_get_text(fields, "version"),
        description=" ".join(_get_text(fields, "description").split()),
        agents=reader.list_paths("agents", "agents"),
        skills=skills,
        commands=reader.list_paths("commands", "commands"),
        output_styles=reader.list_paths("outputStyles", "output-styles"),
        hooks=reader.list_tables("hooks", "hooks/hooks.json"),
        servers=reader.list_tables("mcpServers", ".mcp.json"),
    )
    return replace(plugin, variables=_read_options(reader, options or {}))


def _report_unused(reader: _Reader) -> None:
    unused = [field for field in _NOT_USED if reader.manifest.get(field)]
    unused += [
        field
        for file, field in _NOT_USED_FILES
        if os.path.lexists(os.path.join(reader.root, file)) and field not in unused
    ]
    for field in unused:
        reader.add(f"{field} is not used here", is_problem=False)


def _read_options(reader: _Reader, options: Mapping[str, Any]) -> dict[str, str]:
    # Named as in the environment of programs.
    variables: dict[str, str] = {}
    for key, described in as_table(reader.manifest.get("userConfig")).items():
        field = as_table(described)
        value = options.get(key, field.get("default"))
        if value is None:
            if field.get("required") is True:
                reader.add(
                    f"the option {key} has no value",
                    f"Set pluginConfigs.{reader.name}@MARKETPLACE.options.{key} in your "
                    ".claude/settings.json.",
                )
            continue
        variables[f"CLAUDE_PLUGIN_OPTION_{key}"] = _format_option(value)
    return variables


def _format_option(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_format_option(item) for item in cast("Iterable[object]", value))
    return str(value)


def _get_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
