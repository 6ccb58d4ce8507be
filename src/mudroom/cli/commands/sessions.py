"""Commands for sessions that were recorded: finish, name, delete, export, check, repair."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from ...errors import UsageError
from ..actions.load_settings import CONTEXT_SETTINGS, load_settings


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", required=False, metavar="[ID]")
@click.option("--last", is_flag=True, help="The last session of this folder; so without an ID.")
@click.option("-C", "cwd", default=".", metavar="DIR", help="Whose last session.")
@click.option(
    "-o",
    "--output-format",
    type=click.Choice(["text", "json", "stream-json"]),
    help="What stdout carries.",
)
@click.option(
    "--verbose", is_flag=True, help="On stderr a line for every call, where there is no live tree."
)
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@click.option("--no-color", is_flag=True, help="No colours.")
def resume(
    session: str | None,
    last: bool,
    cwd: str,
    verbose: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> int:
    """Finish a run that was interrupted, and print its answer as -p would.

    If it came to its end before, the answer it gave is printed again.
    """
    if session and last:
        raise UsageError("--last is a session, and so is " + session, remedy="Name one of them.")
    from ..actions.session_maintenance import finish_session

    settings = load_settings(cwd, color="never" if no_color else None, **flags)
    return asyncio.run(
        finish_session(settings, session or "last", cwd=cwd, verbose=verbose, quiet=quiet)
    )


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="ID")
@click.argument("name")
def rename(session: str, name: str) -> int:
    """Give a session a name, to go on with it by (--resume NAME); "" takes it away."""
    from ...journals.sqlite.session_names import rename_session
    from ..actions.select_session import find_session

    home = load_settings(".").home
    rename_session(home, find_session(home, ".", session or "last"), name)
    return 0


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("sessions", nargs=-1, required=True, metavar="ID...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(sessions: tuple[str, ...], yes: bool) -> int:
    """Delete sessions for good: their records and their long outputs."""
    from ..actions.session_maintenance import delete_sessions

    return delete_sessions(load_settings(".").home, sessions, yes=yes)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", required=False, default="last", metavar="[ID]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "md", "html", "fixture"]),
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
    help="Where to; a folder for jsonl. Default: here, or stdout.",
)
def export(session: str, form: str, html: str | None, target: str) -> int:
    """Write a session for elsewhere, without its secrets.

    \b
    jsonl    one file for each agent, as viewers of other terminal agents read them
    md       a page to read
    html     the viewer's page with the session in it, which needs no server
    fixture  what mudroom.testing.load_replay_model gives to a test

    ID is an id from `mudroom runs`, the beginning of one, or a name; by default the last of this folder.
    """
    home = load_settings(".").home
    if html is not None or form == "html":
        from ..actions.serve_viewer import export_html

        return export_html(home, session, html or target)
    from ..actions.export import export_session as written

    return written(home, session, form, target)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("file", metavar="FILE")
@click.argument("session", required=False, default="last", metavar="[ID]")
def record(file: str, session: str) -> int:
    """Write a session to FILE as a fixture for tests, without its secrets.

    There mudroom.testing.load_replay_model("FILE") is the model: it gives the recorded answers, offline. Short for export --format fixture.
    """
    from ..actions.export import export_session as written

    return written(load_settings(".").home, session, "fixture", file)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="ID")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
def replay(session: str, quiet: bool) -> int:
    """Run a session again from its record, with no model and no effect.

    Every event must come out as it is recorded; the first that does not is shown, and the exit code is 1. To play recorded answers
    against live tools: --model replay:ID.
    """
    from ..actions.session_maintenance import replay_session

    return asyncio.run(replay_session(load_settings(".").home, session, quiet=quiet))


@click.group(context_settings=CONTEXT_SETTINGS)
def journal() -> None:
    """Check the record of a session, or repair it."""


@journal.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="ID")
def check(session: str) -> int:
    """Read a whole record; 1 if a part of it is damaged."""
    from ..actions.session_maintenance import check_journal

    return check_journal(load_settings(".").home, session)


@journal.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", metavar="ID")
@click.option(
    "-C",
    "cwd",
    default=".",
    metavar="DIR",
    help="The session's folder, should its record not say any more.",
)
def repair(session: str, cwd: str) -> int:
    """Put all that can be read of a damaged record into a new one; the damaged one is kept beside it."""
    from ..actions.session_maintenance import repair_journal

    return repair_journal(load_settings(cwd).home, session, cwd=cwd)


COMMANDS: dict[str, click.Command] = {
    "resume": resume,
    "rename": rename,
    "delete": delete,
    "export": export,
    "record": record,
    "replay": replay,
    "journal": journal,
}
