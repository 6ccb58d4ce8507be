"""Command files: prompts in Markdown files, which the user calls by name with arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from msgspec import Struct

from .diagnostics import Diagnostic, FileDiagnostics
from .frontmatter import Document, parse_document
from .locations import COMMAND_LOCATIONS, Location, find_locations
from .plugin_folders import PluginFolders, list_plugin_locations, make_part_name
from .safe_read import list_files, read_text

_PLACEHOLDER = re.compile(r"\$(?:ARGUMENTS|([1-9])(?![\d.,]*\d))")


class CommandFile(Struct, frozen=True):
    """A command of a file.

    Arguments:
        name: file name without its suffix, after the names of its plugin and its folders.
        path: absolute path.
        boundary: see `safe_read.read_text`.
    """

    name: str
    path: str
    boundary: str = ""

    @property
    def description(self) -> str:
        """The description of the frontmatter, else the first line."""
        document, text = self._read()
        entry = document.entries.get("description") if document else None
        if entry and isinstance(entry.value, str):
            return entry.value
        return text.strip().partition("\n")[0].strip("# ")

    def load_text(self, arguments: str = "") -> str:
        """Return the text with $ARGUMENTS and $1 to $9 filled in, "" if it cannot be read.

        Arguments without a placeholder are added at the end. No command in the text is run.
        """
        _, text = self._read()
        words = arguments.split()
        has_placeholder = False

        def fill(match: re.Match[str]) -> str:
            nonlocal has_placeholder
            if match[1] is None:
                has_placeholder = True
                return arguments
            if not words:
                return match[0]  # without arguments "$5" is an amount of money
            has_placeholder = True
            number = int(match[1])
            return words[number - 1] if number <= len(words) else ""

        body = _PLACEHOLDER.sub(fill, text)
        return body if has_placeholder or not arguments else f"{body}\n\n{arguments}"

    def _read(self) -> tuple[Document | None, str]:
        """Return the frontmatter and the text below it."""
        diagnostics = FileDiagnostics(self.path)
        text = read_text(self.path, self.boundary, diagnostics) or ""
        document = parse_document(text, diagnostics)
        return document, document.body if document else text


def load_commands(
    folder: str, *, user_home: str, plugins: Iterable[PluginFolders] = ()
) -> dict[str, CommandFile]:
    """Return the commands of a project's folder, of the user and of plugins by name.

    A command in a subfolder is named `SUBFOLDER:NAME`. Of several with one name, the nearest one
    counts.
    """
    commands: dict[str, CommandFile] = {}
    diagnostics: list[Diagnostic] = []
    locations = [
        *find_locations(COMMAND_LOCATIONS, folder, user_home),
        *list_plugin_locations(plugins, "commands"),
    ]
    for location in locations:
        for path in list_files(location.folder, ".md", diagnostics, boundary=location.boundary):
            name = _derive_name(path, location)
            commands.setdefault(name, CommandFile(name, path, location.boundary))
    return commands


def _derive_name(path: str, location: Location) -> str:
    """Return the name of a command: with the folders below that of all commands."""
    if path == location.folder:
        parts = [os.path.basename(path)]
    else:
        parts = os.path.relpath(path, location.folder).split(os.sep)
    return make_part_name(location, ":".join(parts).removesuffix(".md"))


def find_by_name(names: Collection[str], typed: str) -> str:
    """Return the full name of a command that is typed without its folders or its plugin.

    "" if there is none, or more than one.
    """
    if typed in names:
        return typed
    matching = [name for name in names if name.rpartition(":")[2] == typed]
    return matching[0] if len(matching) == 1 else ""
