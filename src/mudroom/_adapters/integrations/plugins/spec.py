"""The parts of a plugin, and where it was turned on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class Table(Struct, frozen=True):
    """A table with hooks or MCP servers. `path`: the file it is in."""

    path: str
    content: dict[str, Any]


class Plugin(Struct, frozen=True, kw_only=True):
    """A plugin, as described by its folder and manifest.

    Arguments:
        id: name in settings files, such as `formatter@tools`; `name` for a folder from a flag.
        name: first part of the names of its agents, skills and commands.
        origin: settings file or flag that turned it on.
        place: folder whose settings turned it on, which needs trust; "" for the user's settings.
        agents, skills, commands, output_styles: real paths of folders and files beneath `root`.
        hooks, servers: tables from files and the manifest.
        variables: values for `${CLAUDE_PLUGIN_ROOT}` and similar names, also in its hooks' and
            servers' environment.

    Example:
        programs = load_usable_programs(".", plugin_dirs=["./formatter"])
        Session(integrations=Integrations(plugins=programs.plugins, agent_files=True))
    """

    id: str
    name: str
    root: str
    origin: str
    place: str = ""
    version: str = ""
    description: str = ""
    agents: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    output_styles: tuple[str, ...] = ()
    hooks: tuple[Table, ...] = ()
    servers: tuple[Table, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_personal(self) -> bool:
        return not self.place

    @property
    def text_variables(self) -> dict[str, str]:
        # Without the user's options, which may be secrets: models read these texts.
        names = ("CLAUDE_PLUGIN_ROOT", "CLAUDE_PLUGIN_DATA")
        return {name: self.variables[name] for name in names if name in self.variables}


class ListedPlugin(Struct, frozen=True, kw_only=True):
    id: str
    origin: str
    folder: str = ""  # "" if it is not on this machine
    plugin: Plugin | None = None
    reason: str = ""  # why it is not used
