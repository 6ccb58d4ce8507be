"""Command for batches: many tasks from a file."""

from __future__ import annotations

import os

import click

from ._options import CONTEXT_SETTINGS, folder_option, json_option, quiet_option, value_option

CONTROL_WORDS = ("status", "pause", "resume", "set")


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("words", nargs=-1, required=True, metavar="FILE")
@value_option("--out", "FILE", "Output (default: FILE.results.jsonl beside the input).")
@click.option("--agent", default="general", metavar="NAME", help="Agent of lines that name none.")
@value_option("-m --model", "MODEL", "Model, such as anthropic:NAME.")
@click.option(
    "--parallel",
    type=click.IntRange(1, 10_000),
    default=64,
    show_default=True,
    metavar="N",
    help="Maximum number of lines at the same time.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(("native", "openai")),
    default="native",
    show_default=True,
    help="Format of the output.",
)
@click.option("--ordered", is_flag=True, help="Sort the output like the input at the end.")
@value_option("--retry", "REASONS", "Run lines again that ended so, such as ERROR,TIMEOUT.")
@value_option(
    "--max-budget-usd", "USD", "Spending limit for all lines.", click.FloatRange(0, min_open=True)
)
@value_option("--permission-mode", "MODE", "Permission mode of the runs.")
@folder_option("Work in this folder.")
@json_option
@quiet_option
def batch(
    words: tuple[str, ...],
    cwd: str,
    out: str | None,
    agent: str,
    parallel: int,
    kind: str,
    ordered: bool,
    retry: str | None,
    max_budget_usd: float | None,
    as_json: bool,
    quiet: bool,
    **flags: object,
) -> int:
    """Run each line of a file as one task with a clean context; the results go to a file.

    A line is an object with "prompt" and perhaps "id", "agent", "model", "budget" and "outputs", a
    text in quotes, or a line of OpenAI's batch files; FILE - reads stdin. The same command again
    goes on after an interruption, and runs new and changed lines. Ctrl-C once starts no further
    lines, twice stops those that run. Exit code 0 if all lines reached their goals, else 1.

    \b
    mudroom batch status | pause | resume      look at the batch that runs, or stop giving lines
    mudroom batch set parallel=200             change how many lines run at the same time
    """
    file, *more = words
    if file in CONTROL_WORDS:
        from ..actions.batch.control import control_batch

        return control_batch(words, out or "", dict(os.environ), as_json=as_json)
    if more:
        raise click.UsageError(f"a batch has one file, not {len(words)}")
    from ..actions.batch.run import BatchFlags, run_batch

    chosen = BatchFlags(
        file=file,
        out=out or "",
        agent=agent,
        parallel=parallel,
        kind=kind,
        is_ordered=ordered,
        retry=retry or "",
        max_budget_usd=max_budget_usd,
        quiet=quiet,
    )
    return run_batch(cwd, chosen, flags)


COMMANDS = {"batch": batch}
