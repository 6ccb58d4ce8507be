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
    """A plugin's folders and files; all paths are real and beneath `root`."""

    @property
    def name(self) -> str:
        """The prefix of the names of its parts."""
        ...

    @property
    def root(self) -> str: ...

    @property
    def is_personal(self) -> bool:
        """True if the user turned it on, false if the session's folder did."""
        ...

    @property
    def place(self) -> str:
        """The project folder whose settings turned it on, "" for a plugin of the user."""
        ...

    @property
    def agents(self) -> tuple[str, ...]:
        """Agent files, and folders that contain them."""
        ...

    @property
    def skills(self) -> tuple[str, ...]:
        """SKILL.md files, and folders that contain them."""
        ...

    @property
    def commands(self) -> tuple[str, ...]:
        """Command files, and folders that contain them."""
        ...

    @property
    def output_styles(self) -> tuple[str, ...]:
        """Output styles, and folders that contain them."""
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
    """Return the existing folders for one kind of part, highest precedence first.

    A project's folders come first because they are nearest, those of plugins last.

    Arguments:
        folder: the project's folder. user_home: "" leaves it out.
    """
    locations = [
        *find_locations(kinds, folder, user_home),
        *_list_plugin_locations(plugins, component),
    ]
    # A file with a familiar name must not take the place of the one that the user means.
    if not trusts_folder:
        locations.sort(key=lambda location: not location.is_personal)
    return locations


def _list_plugin_locations(
    plugins: Iterable[PluginFolders], component: Component
) -> Iterator[Location]:
    """Yield a location for each path; its `folder` may be a file."""
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
    """Prefix the name with the plugin's, if there is one."""
    return f"{location.plugin}:{name}" if location.plugin else name
