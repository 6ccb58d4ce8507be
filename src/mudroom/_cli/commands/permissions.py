"""Commands that explain permissions and list the trusted folders."""

from __future__ import annotations

import click

from ._definitions import CommandGroup
from ._options import (
    choice_option,
    flag_option,
    folder_option,
    json_option,
    mode_option,
    rules_option,
    value_option,
)

_folder = click.argument("folder", default=".")

_permissions = CommandGroup(
    "permissions",
    "permissions.print_permissions",
    "Show the permission mode and the rules of this folder.",
    folder_option("Show the rules of this folder."),
)
_permissions.define(
    "explain",
    "permissions.explain_call",
    "Explain whether a command would be allowed, and by which rule.",
    click.argument("subject", metavar="COMMAND"),
    value_option(
        "--tool",
        "NAME",
        "A tool other than bash; COMMAND is then its file, agent or address.",
        default="bash",
    ),
    folder_option("Use the rules of this folder.", default=None),
    rules_option("allowed", "Assume that this flag is given."),
    rules_option("disallowed", "Assume that this flag is given."),
    mode_option("Assume this mode."),
    choice_option("--sandbox", ["auto", "full", "file", "off"], "Assume this sandbox."),
    flag_option("--headless", "Assume that no user can be asked."),
    json_option,
)

_trust = CommandGroup(
    "trust",
    "permissions.print_trusted",
    """List the folders whose files are trusted, and the programs of this folder.

    Programs are the MCP servers and hooks that files of a folder declare.
    """,
)
_trust.define(
    "list",
    "permissions.print_trusted",
    "List the trusted folders and the programs of this folder (the default).",
    json_option,
)
_trust.define(
    "add",
    "permissions.add_trusted",
    """Trust a folder and all folders below it.

    The agent files in them get the rights that they ask for. The MCP servers and hooks that the
    folder declares now are listed and may start; when one changes, they need a new answer.
    """,
    _folder,
)
_trust.define(
    "remove", "permissions.remove_trusted", "Stop trusting a folder and its programs.", _folder
)

COMMANDS: dict[str, click.Command] = {"permissions": _permissions, "trust": _trust}
