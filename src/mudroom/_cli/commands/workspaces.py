"""Commands for work in isolated workspaces."""

from __future__ import annotations

import click

from ._definitions import CommandGroup
from ._options import flag_option, folder_option, json_option

_work_id = click.argument("name", metavar="ID")

_workspaces = CommandGroup(
    "workspaces",
    "workspaces.print_workspaces",
    """List what runs made of their isolated workspaces, and merge it.

    A run with an isolated workspace changes files of its own. Its work is kept when it ends.
    """,
    folder_option("Folder of the project."),
)
_workspaces.define(
    "list",
    "workspaces.print_workspaces",
    "List the work of the runs of this folder (the default).",
    flag_option("--all all_folders", "Those of all folders."),
    json_option,
)
_workspaces.define(
    "show",
    "workspaces.print_difference",
    "Print the changes of a run as a unified difference.",
    _work_id,
)
_workspaces.define(
    "overlap",
    "workspaces.print_overlaps",
    "List the files that several runs of the last session here changed.",
    json_option,
)
_workspaces.define(
    "apply",
    "workspaces.apply_work",
    "Merge the work of a run into its folder: all of it, or nothing.",
    _work_id,
    flag_option("--ignored with_ignored", "Also the kept files that git ignores."),
)
_workspaces.define(
    "git",
    "workspaces.write_git_work",
    "Write commits, stashes and staged files that are only in a run's git into a new FOLDER.",
    _work_id,
    click.argument("folder", required=False, metavar="[FOLDER]"),
)
_workspaces.define(
    "drop",
    "workspaces.drop_work",
    "Remove the kept work of runs.",
    click.argument("names", nargs=-1, required=True, metavar="ID..."),
)

COMMANDS: dict[str, click.Command] = {"workspaces": _workspaces}
