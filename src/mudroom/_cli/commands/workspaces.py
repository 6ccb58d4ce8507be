"""Commands for the work of isolated workspaces."""

from __future__ import annotations

import click

from ._options import CONTEXT_SETTINGS, folder_option, json_option

_work_id = click.argument("name", metavar="ID")


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@folder_option("Folder of the project.")
@click.pass_context
def workspaces(ctx: click.Context, cwd: str) -> int | None:
    """List what runs made of their isolated workspaces, and merge it.

    A run with an isolated workspace changes files of its own. Its work is kept when it ends.
    """
    ctx.obj = cwd
    if ctx.invoked_subcommand:
        return None
    return ctx.invoke(list_workspaces, all_folders=False, as_json=False)


@workspaces.command("list", context_settings=CONTEXT_SETTINGS)
@click.option("--all", "all_folders", is_flag=True, help="Those of all folders.")
@json_option
@click.pass_obj
def list_workspaces(cwd: str, all_folders: bool, as_json: bool) -> int:
    """List the work of the runs of this folder (the default)."""
    from ..actions.workspaces import print_workspaces

    return print_workspaces(cwd, all_folders=all_folders, as_json=as_json)


@workspaces.command("show", context_settings=CONTEXT_SETTINGS)
@_work_id
@click.pass_obj
def show_work(cwd: str, name: str) -> int:
    """Print the changes of a run as a unified difference."""
    from ..actions.workspaces import print_difference

    return print_difference(cwd, name)


@workspaces.command("overlap", context_settings=CONTEXT_SETTINGS)
@json_option
@click.pass_obj
def list_overlaps(cwd: str, as_json: bool) -> int:
    """List the files that several runs of the last session here changed."""
    from ..actions.workspaces import print_overlaps

    return print_overlaps(cwd, as_json=as_json)


@workspaces.command("apply", context_settings=CONTEXT_SETTINGS)
@_work_id
@click.option(
    "--ignored", "with_ignored", is_flag=True, help="Also the kept files that git ignores."
)
@click.pass_obj
def apply_work(cwd: str, name: str, with_ignored: bool) -> int:
    """Merge the work of a run into its folder: all of it, or nothing."""
    from ..actions.workspaces import apply_work

    return apply_work(cwd, name, with_ignored=with_ignored)


@workspaces.command("git", context_settings=CONTEXT_SETTINGS)
@_work_id
@click.argument("folder", required=False, metavar="[FOLDER]")
@click.pass_obj
def write_git_work(cwd: str, name: str, folder: str | None) -> int:
    """Write commits, stashes and staged files that are only in a run's git into a new FOLDER."""
    from ..actions.workspaces import write_git_work

    return write_git_work(cwd, name, folder)


@workspaces.command("drop", context_settings=CONTEXT_SETTINGS)
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def drop_work(cwd: str, names: tuple[str, ...]) -> int:
    """Remove the kept work of runs."""
    from ..actions.workspaces import drop_work

    return drop_work(cwd, names)


COMMANDS: dict[str, click.Command] = {"workspaces": workspaces}
