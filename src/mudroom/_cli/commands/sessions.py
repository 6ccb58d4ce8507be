"""Commands for recorded sessions: list, show, resume, rename, delete, export, replay, repair."""

from __future__ import annotations

from typing import Any

import click

from ._options import (
    CONTEXT_SETTINGS,
    COUNT,
    folder_option,
    format_option,
    json_option,
    no_color_option,
    quiet_option,
    store_option,
    verbose_option,
)


@click.command(context_settings=CONTEXT_SETTINGS)
@json_option
@click.option("-C", "cwd", metavar="DIR", help="List only the sessions of this folder.")
@click.option(
    "-n",
    "--limit",
    type=COUNT,
    default=20,
    show_default=True,
    help="Maximum number of sessions.",
)
@store_option
def runs(as_json: bool, cwd: str | None, limit: int, store: str | None) -> int:
    """List recorded sessions, newest first."""
    from ..actions.list_sessions import print_sessions

    return print_sessions(cwd, as_json=as_json, limit=limit, store=store)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", default="last", metavar="[ID]")
@click.option(
    "--run",
    "run_id",
    metavar="ID",
    help="Show the transcript of this child run (id or name as in the tree).",
)
@click.option(
    "--context",
    "turn_name",
    metavar="TURN",
    help="Show only what the model knew at this turn after compactions (1.8: turn 8 of run 1).",
)
@no_color_option
@store_option
def show(
    session: str, run_id: str | None, turn_name: str | None, no_color: bool, store: str | None
) -> int:
    """Show a recorded session: its run tree, ledger and transcript.

    ID is an id from `mudroom runs`, the beginning of one, a name, or "last": the last session of
    this folder, which is also the default.
    """
    from ..actions.show_session import print_context, print_session

    if turn_name is not None:
        return print_context(session, turn_name, store=store)
    return print_session(session, run_id, no_color=no_color, store=store)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", required=False, metavar="[ID]")
@click.option("--last", is_flag=True, help="Choose the last session of this folder (the default).")
@folder_option("Folder of the session, if it has moved.", default=None)
@format_option
@verbose_option
@quiet_option
@no_color_option
@store_option
def resume(session: str | None, **options: Any) -> int:
    """Finish an interrupted run, and print its answer as -p does.

    The session works as it was started; docs/sessions.md lists the flags. If no run was
    interrupted, the last answer is printed again.
    """
    from ..actions.session_maintenance import resume_session

    return resume_session(session, **options)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="ID")
@click.argument("name", type=click.UNPROCESSED)
@store_option
def rename(session: str, name: str, store: str | None) -> int:
    """Give a session a name for --resume; "" removes it."""
    from ..actions.session_maintenance import rename_session

    return rename_session(session, name, store=store)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("sessions", nargs=-1, required=True, metavar="ID...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@store_option
def delete(sessions: tuple[str, ...], yes: bool, store: str | None) -> int:
    """Delete sessions: their journals and their saved long outputs."""
    from ..actions.session_maintenance import delete_sessions

    return delete_sessions(sessions, yes=yes, store=store)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", required=False, default="last", metavar="[ID]")
@click.option(
    "--format",
    "export_format",
    type=click.Choice(["jsonl", "md", "html", "fixture", "otel"]),
    default="jsonl",
    show_default=True,
)
@click.option(
    "--html",
    is_flag=False,
    flag_value="-",
    metavar="FILE",
    help="The same as --format html -o FILE.",
)
@click.option(
    "-o",
    "--output",
    "target",
    default="-",
    metavar="DIR|FILE",
    help="File to write, or a folder for jsonl (default: stdout; this folder for jsonl).",
)
@store_option
def export(
    session: str, export_format: str, html: str | None, target: str, store: str | None
) -> int:
    """Export a session (secrets removed).

    \b
    jsonl    one file per agent, as viewers of other terminal agents read them
    md       a page in Markdown
    html     the viewer's page with the session in it; needs no server
    fixture  for mudroom.testing.load_replay_model in tests
    otel     spans, sent to the server of OTEL_EXPORTER_OTLP_ENDPOINT

    ID is an id from `mudroom runs`, the beginning of one, or a name; the default is the last
    session of this folder.
    """
    if html is not None or export_format == "html":
        from ..actions.export import export_html

        return export_html(session, html or target, store=store)
    if export_format == "otel":
        if target != "-":
            raise click.UsageError("--format otel sends the spans; it takes no -o")
        from ..actions.export_traces import export_traces

        return export_traces(session, store=store)
    from ..actions.export import export_session

    return export_session(session, export_format, target, store=store)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("file", metavar="FILE")
@click.argument("session", required=False, default="last", metavar="[ID]")
@store_option
def record(file: str, session: str, store: str | None) -> int:
    """Write a session to FILE as a test fixture (secrets removed).

    In a test, mudroom.testing.load_replay_model("FILE") is a model that gives the recorded answers
    offline. The same as export --format fixture.
    """
    from ..actions.export import export_session

    return export_session(session, "fixture", file, store=store)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="ID")
@quiet_option
@store_option
def replay(session: str, quiet: bool, store: str | None) -> int:
    """Replay a session without calling the model or running tools.

    Each event must be equal to the recorded one; the first difference is shown and the exit
    code is 1. To use recorded answers with live tools: --model replay:ID.
    """
    from ..actions.session_maintenance import replay_session

    return replay_session(session, quiet=quiet, store=store)


@click.group(context_settings=CONTEXT_SETTINGS)
def journal() -> None:
    """Check the journal of a session, or repair it."""


@journal.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="ID")
def check(session: str) -> int:
    """Read a whole journal; exit code 1 if it is damaged."""
    from ..actions.session_maintenance import check_journal

    return check_journal(session)


@journal.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="ID")
@folder_option("Folder of the session, if the journal no longer names it.")
def repair(session: str, cwd: str) -> int:
    """Recover a damaged session into a new file; the damaged file is kept."""
    from ..actions.session_maintenance import repair_journal

    return repair_journal(session, cwd=cwd)


COMMANDS: dict[str, click.Command] = {
    "runs": runs,
    "show": show,
    "resume": resume,
    "rename": rename,
    "delete": delete,
    "export": export,
    "record": record,
    "replay": replay,
    "journal": journal,
}
