"""Commands for the task board of a project."""

from __future__ import annotations

import click

from ._options import CONTEXT_SETTINGS, COUNT, folder_option, json_option, quiet_option

_task_ids = click.argument("task_ids", type=COUNT, nargs=-1, required=True, metavar="ID...")


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@folder_option("Folder of the project.")
@click.pass_context
def board(ctx: click.Context, cwd: str) -> int | None:
    """List and change the tasks of this project.

    The sessions and processes of a project share one board. A task can depend on other tasks; it is
    ready when they are completed.
    """
    ctx.obj = cwd
    return None if ctx.invoked_subcommand else ctx.invoke(list_tasks, as_json=False)


@board.command("list", context_settings=CONTEXT_SETTINGS)
@json_option
def list_tasks(as_json: bool) -> int:
    """List the tasks (the default)."""
    from ..actions.board import print_board

    return print_board(click.get_current_context().obj, as_json=as_json)


@board.command("show", context_settings=CONTEXT_SETTINGS)
@click.argument("task_id", type=COUNT, metavar="ID")
@json_option
@click.pass_obj
def show_task(cwd: str, task_id: int, as_json: bool) -> int:
    """Show one task with its description and its report."""
    from ..actions.board import print_task

    return print_task(cwd, task_id, as_json=as_json)


@board.command("add", context_settings=CONTEXT_SETTINGS)
@click.argument("subject")
@click.option("-d", "--description", metavar="TEXT", help="What to do, in detail.")
@click.option(
    "--after",
    "blockers",
    type=COUNT,
    multiple=True,
    metavar="ID",
    help="A task that must be completed before. Can be given several times.",
)
@click.option(
    "--metadata",
    "entries",
    multiple=True,
    metavar="KEY=VALUE",
    help="A further value, such as agent=NAME or priority=N. Can be given several times.",
)
@click.pass_obj
def add_task(
    cwd: str,
    subject: str,
    description: str | None,
    blockers: tuple[int, ...],
    entries: tuple[str, ...],
) -> int:
    """Add a task."""
    from ..actions.board import add_task

    return add_task(cwd, subject, description or "", blockers, entries)


@board.command("done", context_settings=CONTEXT_SETTINGS)
@_task_ids
@click.pass_obj
def complete_task(cwd: str, task_ids: tuple[int, ...]) -> int:
    """Mark tasks as completed."""
    from ..actions.board import complete_task

    return complete_task(cwd, task_ids)


@board.command("reopen", context_settings=CONTEXT_SETTINGS)
@_task_ids
@click.pass_obj
def reopen_task(cwd: str, task_ids: tuple[int, ...]) -> int:
    """Make tasks pending again; tasks that depend on them wait again."""
    from ..actions.board import reopen_tasks

    return reopen_tasks(cwd, task_ids)


@board.command("remove", context_settings=CONTEXT_SETTINGS)
@_task_ids
@click.pass_obj
def remove_task(cwd: str, task_ids: tuple[int, ...]) -> int:
    """Remove tasks. Their ids are not used again."""
    from ..actions.board import remove_tasks

    return remove_tasks(cwd, task_ids)


@board.command("run", context_settings=CONTEXT_SETTINGS)
@click.option(
    "--agent",
    default="general",
    metavar="NAME",
    help="Agent of tasks that name none (default: general).",
)
@click.option(
    "--parallel",
    type=COUNT,
    default=4,
    show_default=True,
    metavar="N",
    help="Maximum number of tasks at the same time.",
)
@click.option("-m", "--model", metavar="MODEL", help="Model, such as anthropic:NAME.")
@click.option("--permission-mode", metavar="MODE", help="Permission mode of the runs.")
@quiet_option
@click.pass_obj
def run_tasks(cwd: str, agent: str, parallel: int, quiet: bool, **flags: object) -> int:
    """Let runs work on the ready tasks until none is left.

    Each task gets a clean context with its subject, its description, and the reports of the tasks
    that it depends on. It is completed if its run reaches its goal; otherwise it is tried once
    more. Several processes can work on one board. Exit code 1 if tasks stay open.
    """
    from ..actions.board_run import run_board

    return run_board(cwd, agent=agent, parallel=parallel, quiet=quiet, flags=flags)


@board.command("import", context_settings=CONTEXT_SETTINGS)
@click.argument("folder", default=".tasks", metavar="[DIR]")
@click.pass_obj
def import_tasks(cwd: str, folder: str) -> int:
    """Add the tasks of a folder with files task_N.json (default: .tasks)."""
    from ..actions.board import import_task_files

    return import_task_files(cwd, folder)


@board.command("export", context_settings=CONTEXT_SETTINGS)
@click.argument("folder", default=".tasks", metavar="[DIR]")
@click.pass_obj
def export_tasks(cwd: str, folder: str) -> int:
    """Write the tasks as files task_N.json to a folder (default: .tasks)."""
    from ..actions.board import export_task_files

    return export_task_files(cwd, folder)


COMMANDS: dict[str, click.Command] = {"board": board}
