"""Commands for the task board of a project."""

from __future__ import annotations

import click

from ._definitions import CommandGroup
from ._options import COUNT, folder_option, json_option, quiet_option, value_option

_task_ids = click.argument("task_ids", type=COUNT, nargs=-1, required=True, metavar="ID...")
_folder = click.argument("folder", default=".tasks", metavar="[DIR]")

_board = CommandGroup(
    "board",
    "board.print_board",
    """List and change the tasks of this project.

    The sessions and processes of a project share one board. A task can depend on other tasks; it is
    ready when they are completed.
    """,
    folder_option("Folder of the project."),
)
_board.define("list", "board.print_board", "List the tasks (the default).", json_option)
_board.define(
    "show",
    "board.print_task",
    "Show one task with its description and its report.",
    click.argument("task_id", type=COUNT, metavar="ID"),
    json_option,
)
_board.define(
    "add",
    "board.add_task",
    "Add a task.",
    click.argument("subject"),
    value_option("-d --description", "TEXT", "What to do, in detail."),
    value_option(
        "--after blockers",
        "ID",
        "A task that must be completed before. Can be given several times.",
        COUNT,
        multiple=True,
    ),
    value_option(
        "--metadata entries",
        "KEY=VALUE",
        "A further value, such as agent=NAME or priority=N. Can be given several times.",
        multiple=True,
    ),
)
_board.define("done", "board.complete_task", "Mark tasks as completed.", _task_ids)
_board.define(
    "reopen",
    "board.reopen_tasks",
    "Make tasks pending again; tasks that depend on them wait again.",
    _task_ids,
)
_board.define(
    "remove", "board.remove_tasks", "Remove tasks. Their ids are not used again.", _task_ids
)
_board.define(
    "run",
    "board_run.run_board",
    """Let runs work on the ready tasks until none is left.

    Each task gets a clean context with its subject, its description, and the reports of the tasks
    that it depends on. It is completed if its run reaches its goal; otherwise it is tried once
    more. Several processes can work on one board. Exit code 1 if tasks stay open.
    """,
    value_option(
        "--agent", "NAME", "Agent of tasks that name none (default: general).", default="general"
    ),
    value_option(
        "--parallel",
        "N",
        "Maximum number of tasks at the same time.",
        COUNT,
        default=4,
        show_default=True,
    ),
    value_option("-m --model", "MODEL", "Model, such as anthropic:NAME."),
    value_option("--permission-mode", "MODE", "Permission mode of the runs."),
    quiet_option,
)
_board.define(
    "import",
    "board.import_task_files",
    "Add the tasks of a folder with files task_N.json (default: .tasks).",
    _folder,
)
_board.define(
    "export",
    "board.export_task_files",
    "Write the tasks as files task_N.json to a folder (default: .tasks).",
    _folder,
)

COMMANDS: dict[str, click.Command] = {"board": _board}
