"""Command files: Markdown or TOML prompts that the user calls by name, with arguments."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from .locations import (
    COMMAND_LOCATIONS,
    Location,
    PluginFolders,
    list_files,
    list_locations,
    make_part_name,
)
from .prompt_template import PromptTemplate, load_template
from .safe_read import Diagnostic


class CommandFile(Struct, frozen=True):
    """A command and its file. For the last fields see `Location`."""

    name: str
    path: str
    boundary: str = ""
    is_personal: bool = False
    place: str = ""
    variables: Mapping[str, str] = {}

    @property
    def description(self) -> str:
        return self.load_template().description

    def load_template(self) -> PromptTemplate:
        return load_template(self.path, self.boundary, self.variables, is_command=True)


def load_commands(
    folder: str,
    *,
    user_home: str,
    plugins: Iterable[PluginFolders] = (),
    trusts_folder: bool = True,
    diagnostics: list[Diagnostic] | None = None,
) -> dict[str, CommandFile]:
    """Load the commands of a project's folder, the user and plugins, by name.

    A command in a subfolder is called `SUBFOLDER:NAME`. Among commands with the same name, the
    nearest is used; in an untrusted folder, the user's own.
    """
    diagnostics = [] if diagnostics is None else diagnostics
    commands: dict[str, CommandFile] = {}
    locations = list_locations(
        COMMAND_LOCATIONS, "commands", folder, user_home, plugins, trusts_folder=trusts_folder
    )
    for location in locations:
        for path in list_files(location, diagnostics):
            name = _derive_name(path, location)
            file = CommandFile(
                name,
                path,
                location.boundary,
                location.is_personal,
                location.place,
                location.variables,
            )
            commands.setdefault(name, file)
    return commands


def check_commands(
    folder: str, *, user_home: str, plugins: Iterable[PluginFolders] = ()
) -> list[Diagnostic]:
    diagnostics: list[Diagnostic] = []
    commands = load_commands(folder, user_home=user_home, plugins=plugins, diagnostics=diagnostics)
    for command in commands.values():
        diagnostics += command.load_template().errors
    return diagnostics


def _derive_name(path: str, location: Location) -> str:
    if path == location.folder:
        parts = [os.path.basename(path)]
    else:
        parts = os.path.relpath(path, location.folder).split(os.sep)
    return make_part_name(location, ":".join(parts).removesuffix(location.kind.suffix))


def find_by_name(names: Collection[str], typed: str) -> str:
    """Find the full name of a command typed without its folders or plugin; "" if unclear."""
    if typed in names:
        return typed
    matching = [name for name in names if name.rpartition(":")[2] == typed]
    return matching[0] if len(matching) == 1 else ""
