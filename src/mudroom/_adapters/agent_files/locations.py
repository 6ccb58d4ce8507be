"""Locations of agent files, skills and commands: in project folders, the home and plugins."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from ..._platform.git_folders import list_project_folders
from ..._platform.open_beneath import find_real_path, is_beneath
from .safe_read import Diagnostic, find_files


class LocationKind(Struct, frozen=True):
    """Where and how a program keeps its agents."""

    dialect: str  # the program's name
    folder: str  # below a project folder or the user's home
    suffix: str = ".md"
    is_recursive: bool = False
    user_folder: str = ""  # below the user's home, if it differs from `folder`
    is_project_only: bool = False


AGENT_LOCATIONS = (
    LocationKind("agents", ".agents/agents"),
    LocationKind("agents", ".mudroom/agents"),
    LocationKind("claude", ".claude/agents", is_recursive=True),
    LocationKind("gemini", ".gemini/agents"),
    LocationKind(
        "opencode",
        ".opencode/agents",
        is_recursive=True,
        user_folder=".config/opencode/agents",
    ),
    LocationKind(
        "opencode", ".opencode/agent", is_recursive=True, user_folder=".config/opencode/agent"
    ),
    LocationKind("codex", ".codex", "config.toml"),
    LocationKind("codex", ".codex/agents", ".toml"),
    LocationKind("qwen", ".qwen/agents"),
    LocationKind("goose", ".goose/agents"),
    LocationKind("github", ".github/agents", user_folder=".copilot/agents"),
)
SKILL_LOCATIONS = (
    LocationKind("agents", ".agents/skills", "SKILL.md", is_recursive=True),
    LocationKind("agents", ".mudroom/skills", "SKILL.md", is_recursive=True),
    LocationKind("claude", ".claude/skills", "SKILL.md", is_recursive=True),
    LocationKind("plain", "skills", ".md", is_recursive=True, is_project_only=True),
)
COMMAND_LOCATIONS = (
    LocationKind("agents", ".agents/commands", is_recursive=True),
    LocationKind("agents", ".mudroom/commands", is_recursive=True),
    LocationKind("claude", ".claude/commands", is_recursive=True),
    LocationKind("gemini", ".gemini/commands", ".toml", is_recursive=True),
)
STYLE_LOCATIONS = (
    LocationKind("agents", ".agents/output-styles"),
    LocationKind("agents", ".mudroom/output-styles"),
    LocationKind("claude", ".claude/output-styles"),
)


SOURCES = ("user", "project", "local")
"""Whose files to read: the user's, the project's, and the user's own files in the project."""


class Places(NamedTuple):
    """Where to read files; "" for places left out."""

    folder: str
    user_home: str
    reads_local: bool  # also the user's own files in the project


def find_places(sources: bool | Collection[str], folder: str, user_home: str) -> Places:
    """Find the places of sources; "local" files are only read with "project" files."""
    names = (SOURCES if sources else ()) if isinstance(sources, bool) else sources
    return Places(
        folder if "project" in names else "",
        user_home if "user" in names else "",
        "local" in names,
    )


class Location(Struct, frozen=True):
    """An existing folder with agent files or skills.

    Arguments:
        folder: for a plugin, may be the path of a single file.
        boundary: real path that the files must lie beneath, links resolved; "" for anywhere.
        is_personal: true in the user's home, false in the project.
        plugin_place: the project folder whose settings turned on the plugin, "" for none.
        variables: values for `${NAME}` in the texts of the plugin's files.
    """

    kind: LocationKind
    folder: str
    boundary: str
    is_personal: bool
    plugin: str = ""
    plugin_place: str = ""
    variables: Mapping[str, str] = {}

    @property
    def place(self) -> str:
        """The project folder it belongs to, "" if it is the user's."""
        if self.is_personal or self.plugin:
            return self.plugin_place
        return self.folder.removesuffix(f"/{self.kind.folder}")


def find_locations(
    kinds: tuple[LocationKind, ...], folder: str, user_home: str
) -> Iterator[Location]:
    """Yield the existing folders, highest precedence first, each once."""
    project = list_project_folders(folder) if folder else []
    home = os.path.realpath(user_home) if user_home else ""
    seen = set[str]()
    for parent in project:
        for kind in kinds:
            path = os.path.join(parent, kind.folder)
            # The home may be a repository or hold the session; its files are still the user's.
            location = Location(kind, path, project[-1], parent == home)
            if _remember_folder(location, seen):
                yield location
    if not user_home:
        return
    for kind in kinds:
        if kind.is_project_only:
            continue
        path = os.path.join(user_home, kind.user_folder or kind.folder)
        location = Location(kind, path, "", True)
        if _remember_folder(location, seen):
            yield location


def _remember_folder(location: Location, seen: set[str]) -> bool:
    """Add a folder to `seen`; false if already there, a file, or nonexistent."""
    path = location.folder
    real = find_real_path(path)
    # A broken link counts as existing: `find_files` reports what cannot be listed.
    if real in seen or not os.path.lexists(path) or os.path.isfile(path):
        return False
    if not location.boundary or is_beneath(real, location.boundary):
        seen.add(real)
    return True


Component = Literal["agents", "skills", "commands", "output_styles"]


class PluginFolders(Protocol):
    """A plugin's files, and folders that contain them; all paths are real and beneath `root`."""

    @property
    def name(self) -> str: ...

    @property
    def root(self) -> str: ...

    @property
    def is_personal(self) -> bool:
        """True if turned on by the user, false if by the session's folder."""
        ...

    @property
    def place(self) -> str:
        """The project folder whose settings turned it on, "" for the user's plugins."""
        ...

    @property
    def text_variables(self) -> Mapping[str, str]:
        """Values for `${NAME}` in the texts of its files, by name."""
        ...

    @property
    def agents(self) -> tuple[str, ...]: ...

    @property
    def skills(self) -> tuple[str, ...]: ...

    @property
    def commands(self) -> tuple[str, ...]: ...

    @property
    def output_styles(self) -> tuple[str, ...]: ...


def list_locations(
    kinds: tuple[LocationKind, ...],
    component: Component,
    folder: str,
    user_home: str,
    plugins: Iterable[PluginFolders],
    *,
    trusts_folder: bool,
) -> list[Location]:
    """List the existing folders for one kind of part, highest precedence first.

    A project's folders come first, being nearest; plugins' come last.
    """
    locations = [
        *find_locations(kinds, folder, user_home),
        *_list_plugin_locations(plugins, component),
    ]
    # A file with a familiar name must not replace the one the user means.
    if not trusts_folder:
        locations.sort(key=lambda location: not location.is_personal)
    return locations


def _list_plugin_locations(
    plugins: Iterable[PluginFolders], component: Component
) -> Iterator[Location]:
    suffix = "SKILL.md" if component == "skills" else ".md"
    kind = LocationKind("claude", "", suffix, is_recursive=True)
    for plugin in plugins:
        for path in getattr(plugin, component):
            yield Location(
                kind,
                path,
                plugin.root,
                plugin.is_personal,
                plugin.name,
                plugin.place,
                plugin.text_variables,
            )


def list_files(location: Location, diagnostics: list[Diagnostic]) -> Iterator[str]:
    kind = location.kind
    if os.path.isfile(location.folder):
        yield location.folder
    else:
        yield from find_files(
            location.folder,
            kind.suffix,
            diagnostics,
            boundary=location.boundary,
            recursive=kind.is_recursive,
        )


def make_part_name(location: Location, name: str) -> str:
    return f"{location.plugin}:{name}" if location.plugin else name
