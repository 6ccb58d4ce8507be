"""One prompt, one answer: the answer goes to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..._core.agents import Mode
from ..._core.events import StoredEvent
from ..._core.runs import Report
from ..._platform.event_loop import run_event_loop
from ..._projections.run_tree import RunTree, list_names
from ..._session.session import Session
from ...errors import SessionPaused, UsageError
from ..output.notices.log import show_log
from ..output.progress import print_notice
from ..output.run_reporter import RunReporter
from ..output.signals import handle_signals
from .load_permissions import load_permissions
from .open_session import create_session, name_session
from .programs.load_programs import list_server_names, load_programs
from .prompts.print_calls import WordsRun, add_rules, find_call
from .read_prompt import read_prompt
from .session_start import SessionStart, StartOptions, describe_continued
from .session_store import delete_expired_sessions

DATA_HINT = (
    "A prompt with data on stdin may only read. To let it change files and run commands: "
    "--permission-mode acceptEdits"
)


def run_print_mode(words: str | None, options: StartOptions, *, wait_for_stdin: bool) -> int:
    """Read the prompt of `mudroom -p` and run it.

    Arguments:
        words: the command line's prompt; None if it comes from stdin.
        wait_for_stdin: read stdin to its end without a timeout.
    """
    prompt = read_prompt(words, sys.stdin, wait=wait_for_stdin, warn=print_notice)
    return run_event_loop(run_one_shot(prompt, options, words=words or ""))


async def run_one_shot(prompt: str | None, options: StartOptions, *, words: str = "") -> int:
    """Run one prompt.

    Arguments:
        prompt: None only finishes an interrupted run.
        words: the beginning of the prompt that was typed on the command line, "" for none. What
            follows it is data of another program.
    """
    settings = options.settings
    schema = None
    if settings.json_schema:
        from .parse_json_flags import load_json_schema

        schema = load_json_schema(settings.json_schema)
    # Data may contain instructions of a stranger: only mentions in the typed words count, and
    # without a permission mode nothing may be changed.
    has_data = bool(words) and prompt != words
    default_mode = Mode.DONT_ASK if has_data else Mode.DEFAULT
    programs = load_programs(settings, options.cwd)
    servers = list_server_names(programs)
    loaded = load_permissions(settings, options.cwd, default_mode=default_mode, servers=servers)
    call = find_call(words, settings, options.cwd, programs)
    loaded = add_rules(call, loaded)
    recorded: list[StoredEvent] = []
    session = create_session(settings, options.cwd, loaded, options.start, programs=programs)
    session.watch_history(recorded.append)
    async with session:
        await name_session(session, settings.home, options.start)
        if notice := await delete_expired_sessions(settings):
            print_notice(notice)
        reporter = RunReporter(
            session,
            settings,
            mode=loaded.permissions.mode,
            verbose=options.verbose,
            quiet=options.quiet,
            as_json=schema is not None,
            denial_hint=DATA_HINT if has_data and not settings.permission_mode else "",
        )
        if not options.quiet:
            _print_what_continues(session, options.start, recorded, has_prompt=prompt is not None)
        reporter.add_past_events(recorded, session.unfinished_runs)
        teammates = list_names(RunTree.from_events(recorded)) if "@" in words else []
        # A long session's events are not needed while the prompt runs.
        recorded.clear()
        signals_handled = handle_signals(
            session.cancel, session.pause, exits_after=True, must_end=True
        )
        with signals_handled as signals, reporter.screen, show_log(reporter.print_notice):
            try:
                report = await session.resume_unfinished()
                if prompt is not None and not signals:
                    run = WordsRun(session, settings, loaded, reporter.print_notice, teammates)
                    report = await run.run(call, words, prompt.removeprefix(words), outputs=schema)
            except SessionPaused:
                report = reporter.make_paused_report()
        return reporter.print_report(_require_report(report, session.id, signals), signals)


def _require_report(report: Report | None, session: str, signals: Sequence[int]) -> Report:
    """Return the report. Raises UsageError if nothing was to be done."""
    if report is None:
        raise UsageError("no run of this session was interrupted", where=session)
    if report.is_interrupted and not signals:
        raise UsageError(
            "the last prompt of this session is interrupted and waits for the next one",
            where=session,
            remedy="Give a prompt, which continues it.",
        )
    return report


def _print_what_continues(
    session: Session, start: SessionStart, events: Sequence[StoredEvent], *, has_prompt: bool
) -> None:
    if start.resume and has_prompt:
        print_notice(describe_continued(start, events))
    if session.unfinished_runs:
        print_notice("finishing the interrupted run first")
