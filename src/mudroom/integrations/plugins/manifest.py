"""Reading of one plugin: its manifest, and the folders and files of its parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from ..._platform.lazy_pattern import compile_later
from ..config_files import Finding, read_json
from .spec import Plugin, Table

MANIFEST = ".claude-plugin/plugin.json"
_NAME = compile_later(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOT_USED = (
    "workflows",
    "lspServers",
    "channels",
    "dependencies",
    "monitors",
    "themes",
    "experimental",
)
"""Parts of the manifest that have no counterpart here."""
_NOT_USED_FILES = (
    (".lsp.json", "lspServers"),
    ("monitors", "monitors"),
    ("themes", "themes"),
    ("workflows", "workflows"),
)
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
"""Fields of a marketplace that stand for those of a manifest."""


class _Reader(Struct):
    """A manifest and the folder it describes."""

    root: str
    manifest: Mapping[str, Any]
    path: str
    name: str
    findings: list[Finding]

    def add(self, text: str, remedy: str = "", *, is_problem: bool = True) -> None:
        """Add a finding about the plugin."""
        self.findings.append(Finding(self.path, f"plugin {self.name}: {text}", remedy, is_problem))

    def resolve(self, field: str, text: object) -> str:
        """Return the real path of a part; "" if it does not exist or is outside of the folder."""
        if not isinstance(text, str):
            self.add(f"{field} is not used: a path must be a text", "Correct the manifest.")
            return ""
        real = os.path.realpath(os.path.join(self.root, text))
        if os.path.isabs(text) or (real != self.root and not real.startswith(f"{self.root}/")):
            self.add(f"{field} {text} is not used: it leads out of the plugin's folder")
            return ""
        if not os.path.exists(real):
            self.add(f"{field} {text} does not exist", "Correct the manifest.")
            return ""
        return real

    def list_paths(self, field: str, default: str, *, adds: bool = False) -> tuple[str, ...]:
        """Return the real paths of a kind of parts.

        Arguments:
            default: folder for a manifest that does not name one.
            adds: whether the manifest adds to this folder, and does not replace it.
        """
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
        """Return the tables of a kind of programs: of the default file, and of the manifest."""
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
    """Return the plugin in a folder; None if it has no usable name, then a finding says so.

    Arguments:
        plugin_id, origin, place: see Plugin.
        entry: what a marketplace says about it; the manifest of the folder has precedence.
        options: values of the user for `userConfig`.
    """
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
    """Add one finding for each kind of parts that is not used here."""
    unused = [field for field in _NOT_USED if reader.manifest.get(field)]
    unused += [
        field
        for file, field in _NOT_USED_FILES
        if os.path.lexists(os.path.join(reader.root, file)) and field not in unused
    ]
    for field in unused:
        reader.add(f"{field} is not used here", is_problem=False)


def _read_options(reader: _Reader, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of `userConfig`: those of the user, else the defaults.

    The names are those in the environment of programs.
    """
    variables: dict[str, str] = {}
    declared = reader.manifest.get("userConfig")
    table = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
    for key, described in table.items():
        field = cast("dict[str, Any]", described) if isinstance(described, dict) else {}
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
