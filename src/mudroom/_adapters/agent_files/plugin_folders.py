"""Where agents, skills, commands and output styles are found: folders and plugins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, Protocol

from .locations import Location, LocationKind, find_locations

Component = Literal["agents", "skills", "commands", "output_styles"]

_KINDS: dict[Component, LocationKind] = {
    "agents": LocationKind("claude", "", is_recursive=True),
    "skills": LocationKind("claude", "", "SKILL.md", is_recursive=True),
    "commands": LocationKind("claude", "", is_recursive=True),
    "output_styles": LocationKind("claude", "", is_recursive=True),
}


class PluginFolders(Protocol):
    """Folders and files of a plugin; all paths are real and beneath `root`."""

    @property
    def name(self) -> str:
        """First part of the names of its parts."""
        ...

    @property
    def root(self) -> str:
        """Real path of its folder."""
        ...

    @property
    def is_personal(self) -> bool:
        """True if the user turned it on, not the folder of the session."""
        ...

    @property
    def place(self) -> str:
        """Project folder whose settings turned it on, "" for a plugin of the user."""
        ...

    @property
    def agents(self) -> tuple[str, ...]:
        """Paths of agent files and folders with them."""
        ...

    @property
    def skills(self) -> tuple[str, ...]:
        """Paths of SKILL.md files and folders with them."""
        ...

    @property
    def commands(self) -> tuple[str, ...]:
        """Paths of command files and folders with them."""
        ...

    @property
    def output_styles(self) -> tuple[str, ...]:
        """Paths of output styles and folders with them."""
        ...


def list_locations(
    kinds: tuple[LocationKind, ...],
    component: Component,
    folder: str,
    user_home: str,
    plugins: Iterable[PluginFolders],
    *,
    trusts_folder: bool,
) -> list[Location]:
    """Return the existing folders of one kind of parts, highest precedence first.

    Folders of the project come first because they are nearest, those of plugins last. Before the
    user trusts the project, the user's own come first: a file with a familiar name must not take
    the place of the one the user means.

    Arguments:
        folder: of the project. user_home: the user's home; "" leaves it out.
    """
    locations = [
        *find_locations(kinds, folder, user_home),
        *_list_plugin_locations(plugins, component),
    ]
    if not trusts_folder:
        locations.sort(key=lambda location: not location.is_personal)
    return locations


def _list_plugin_locations(
    plugins: Iterable[PluginFolders], component: Component
) -> Iterator[Location]:
    """Yield the places of one kind of parts; the folder of a location may be a file."""
    for plugin in plugins:
        for path in getattr(plugin, component):
            yield Location(
                _KINDS[component],
                path,
                plugin.root,
                plugin.is_personal,
                plugin.name,
                plugin.place,
            )


def make_part_name(location: Location, name: str) -> str:
    """Return the name of a part: with that of its plugin before it, if it has one."""
    return f"{location.plugin}:{name}" if location.plugin else name
