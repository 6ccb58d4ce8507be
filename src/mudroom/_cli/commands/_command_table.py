"""Table of the commands; a command's module is imported when the command is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

import click

from ._command_line import reject_blank_texts

# Module of this folder -> the names in its `COMMANDS`, in the order of the help.
MODULES = {
    "sessions": "runs show resume rename delete export record replay journal",
    "viewer": "view",
    "permissions": "permissions trust",
    "programs": "mcp hooks plugins",
    "editors": "acp",
    "serve": "serve",
    "agents": "agents",
    "batch": "batch",
    "fleet": "fleet",
    "board": "board",
    "workspaces": "workspaces",
    "setup": "models doctor completion config init",
    "root": "help",
}


class CommandTable(Mapping[str, click.Command]):
    def __init__(self) -> None:
        self._modules = {name: module for module in MODULES for name in MODULES[module].split()}
        self._commands: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._commands:
            module = import_module(f"{__package__}.{self._modules[name]}")
            command: click.Command = module.COMMANDS[name]
            reject_blank_texts([command])
            self._commands[name] = command
        return self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        # Without reading the command.
        return name in self._modules


ALL_COMMANDS = CommandTable()
