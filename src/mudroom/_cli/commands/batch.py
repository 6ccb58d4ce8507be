"""Command for batches: many tasks from a file."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from ._options import (
    AMOUNT,
    CONTEXT_SETTINGS,
    choice_option,
    flag_option,
    folder_option,
    mode_option,
    quiet_option,
    value_option,
    worker_option,
)

_STATUS = "status"
# Parameters that affect `mudroom batch status`.
_STATUS_OPTIONS = ("words", "cwd", "out", "as_json", "quiet")
# click cannot mix subcommands with a file name, so "status" is parsed as a word like the file.


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("words", nargs=-1, required=True, metavar="FILE")
@value_option("--out", "FILE", "Output (default: NAME.results.jsonl beside NAME.jsonl).")
@value_option("--agent", "NAME", "Agent of lines that name none.", default="general")
@value_option("-m --model", "MODEL", "provider:model of lines that name none.")
@value_option(
    "--parallel",
    "N",
    "Maximum number of lines at the same time.",
    click.IntRange(1, 10_000),
    default=64,
    show_default=True,
)
@choice_option(
    "--format kind",
    ("native", "openai"),
    "Format of the output.",
    default="native",
    show_default=True,
)
@flag_option("--ordered is_ordered", "Sort the output like the input at the end.")
@value_option("--retry", "REASONS", "Run lines with these reasons again, such as ERROR,TIMEOUT.")
@value_option("--max-budget-usd", "USD", "Spending limit for all lines.", AMOUNT)
@worker_option("lines")
@mode_option("Permission mode of the runs.")
@folder_option("Work in this folder.")
@flag_option("--json as_json", "Print the status as JSON.")
@quiet_option
def batch(words: tuple[str, ...], cwd: str, as_json: bool, **flags: Any) -> int:
    """Run each line of a file as one task with a clean context; the results go to a file.

    A line is a JSON object with "prompt" (optional: "custom_id", "agent", "model", "budget",
    "outputs"), a JSON string, or a line of OpenAI's batch files. With "-" as FILE the lines come
    from stdin. The same command again continues after an interruption, and runs new and changed
    lines. After one Ctrl-C no further lines start; a second one stops those that run. The exit code
    is 0 if all lines reached their goals.

    \b
    mudroom batch questions.jsonl --parallel 200
    mudroom batch status              show the batch that runs, or that of --out FILE
    """
    file, *more = words
    if words == (_STATUS,):
        from ..actions.batch_status import show_status

        _check_status_options()
        show_status(cwd, flags["out"], as_json=as_json)
        return 0
    if more:
        raise click.UsageError(f"a batch has one file, not {len(words)}")
    if as_json:
        raise click.UsageError("--json is for mudroom batch status; results go to the output file")
    from ..actions.batch import BatchFlags, run_batch

    own = {name: flags.pop(name) for name in BatchFlags.__struct_fields__ if name in flags}
    return run_batch(cwd, BatchFlags(file=file, **own), flags)


def _check_status_options() -> None:
    """Raise UsageError for an option that does not affect `mudroom batch status`."""
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if source is ParameterSource.COMMANDLINE and name not in _STATUS_OPTIONS:
            raise click.UsageError(f"{option.opts[-1]} has no effect on mudroom batch status")


COMMANDS = {"batch": batch}
