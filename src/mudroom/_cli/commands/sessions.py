"""Commands for recorded sessions: list, show, resume, rename, delete, export, replay, view."""

from __future__ import annotations

import click

from ._definitions import CommandGroup, define_command
from ._options import (
    COUNT,
    choice_option,
    flag_option,
    folder_option,
    format_option,
    json_option,
    no_color_option,
    quiet_option,
    store_option,
    value_option,
    verbose_option,
)

_session = click.argument("name", metavar="ID")
_session_or_last = click.argument("name", default="last", metavar="[ID]")

_journal = CommandGroup("journal", "", "Check the journal of a session, or repair it.")
_journal.define(
    "check",
    "session_maintenance.check_journal",
    "Read a whole journal; exit code 1 if it is damaged.",
    _session,
)
_journal.define(
    "repair",
    "session_maintenance.repair_journal",
    "Recover a damaged session into a new file; the damaged file is kept.",
    _session,
    folder_option("Folder of the session, if the journal no longer names it."),
)

_COMMANDS = (
    define_command(
        "runs",
        "list_sessions.print_sessions",
        "List recorded sessions, newest first.",
        json_option,
        value_option("-C folder", "DIR", "List only the sessions of this folder."),
        click.option(
            "-n",
            "--limit",
            type=COUNT,
            default=20,
            show_default=True,
            help="Maximum number of sessions.",
        ),
        store_option,
    ),
    define_command(
        "show",
        "show_session.print_session",
        """Show a recorded session: its run tree, ledger and transcript.

        ID is an id from `mudroom runs`, the beginning of one, a name, or "last": the last session
        of this folder, which is also the default.
        """,
        _session_or_last,
        value_option(
            "--run run_id",
            "ID",
            "Show the transcript of this child run (id or name as in the tree).",
        ),
        value_option(
            "--context turn_name",
            "TURN",
            "Show only what the model knew at this turn after compactions (1.8: turn 8 of run 1).",
        ),
        no_color_option,
        store_option,
    ),
    define_command(
        "resume",
        "session_maintenance.resume_session",
        """Finish an interrupted run, and print its answer as -p does.

        The session works as it was started; docs/sessions.md lists the flags. If no run was
        interrupted, the last answer is printed again.
        """,
        click.argument("name", required=False, metavar="[ID]"),
        flag_option("--last", "Choose the last session of this folder (the default)."),
        folder_option("Folder of the session, if it has moved.", default=None),
        format_option,
        verbose_option,
        quiet_option,
        no_color_option,
        store_option,
    ),
    define_command(
        "rename",
        "session_maintenance.rename_session",
        'Give a session a name for --resume; "" removes it.',
        click.argument("session", metavar="ID"),
        click.argument("name", type=click.UNPROCESSED),
        store_option,
    ),
    define_command(
        "delete",
        "session_maintenance.delete_sessions",
        "Delete sessions: their journals and their saved long outputs.",
        click.argument("names", nargs=-1, required=True, metavar="ID..."),
        flag_option("-y --yes", "Do not ask."),
        store_option,
    ),
    define_command(
        "export",
        "export.export_session",
        """Export a session (secrets removed).

        \b
        jsonl    one file per agent, as viewers of other terminal agents read them
        md       a page in Markdown
        html     the viewer's page with the session in it; needs no server
        fixture  for mudroom.testing.load_replay_model in tests
        otel     spans, sent to the server of OTEL_EXPORTER_OTLP_ENDPOINT

        ID is an id from `mudroom runs`, the beginning of one, or a name; the default is the last
        session of this folder.
        """,
        _session_or_last,
        choice_option(
            "--format export_format",
            ["jsonl", "md", "html", "fixture", "otel"],
            default="jsonl",
            show_default=True,
        ),
        click.option(
            "--html",
            is_flag=False,
            flag_value="-",
            metavar="FILE",
            help="The same as --format html -o FILE.",
        ),
        value_option(
            "-o --output target",
            "DIR|FILE",
            "File to write, or a folder for jsonl (default: stdout; this folder for jsonl).",
            default="-",
        ),
        store_option,
    ),
    define_command(
        "record",
        "export.record_fixture",
        """Write a session to FILE as a test fixture (secrets removed).

        In a test, mudroom.testing.load_replay_model("FILE") is a model that gives the recorded
        answers offline. The same as export --format fixture.
        """,
        click.argument("target", metavar="FILE"),
        _session_or_last,
        store_option,
    ),
    define_command(
        "replay",
        "session_maintenance.replay_session",
        """Replay a session without calling the model or running tools.

        Each event must be equal to the recorded one; the first difference is shown and the exit
        code is 1. To use recorded answers with live tools: --model replay:ID.
        """,
        _session,
        quiet_option,
        store_option,
    ),
    _journal,
    define_command(
        "view",
        "serve_viewer.serve_viewer",
        """Show runs in a browser: tree, timeline, transcripts, ledger.

        RUN is an id from `mudroom runs`, the beginning of one, or a name; the default is the last
        session of this folder, else the last of all.
        """,
        click.argument("session", required=False, metavar="[RUN]"),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=7575,
            show_default=True,
            help="First port to try; 0 is any.",
        ),
        click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            help="Address to listen on. Only the token in the URL protects it.",
        ),
        click.option(
            "--open/--no-open",
            "open_browser",
            default=True,
            help="Open a browser, or only print the address.",
        ),
        value_option(
            "--export target",
            "FILE",
            "Write a page with this session to FILE and start no server; - is stdout.",
        ),
        store_option,
    ),
)

COMMANDS: dict[str, click.Command] = {str(command.name): command for command in _COMMANDS}
