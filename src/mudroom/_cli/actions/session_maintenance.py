"""Actions on a recorded session as a whole: finish, rename, delete, replay, check, repair."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..._adapters.journals.sessions import read_events, read_summary, require_no_writer
from ..._adapters.models.pricing import calculate_cost
from ..._adapters.output_filters import Redactor
from ..._core.events import RunFinished, RunResumed, RunStarted, SessionOpened, StoredEvent
from ..._core.listings import count_noun
from ..._core.ports import SessionStore
from ..._core.runs import Report, find_root_id
from ..._platform.event_loop import run_event_loop
from ..._platform.paths import path_from_text
from ..._projections.ledger import LedgerBuilder
from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunView
from ..._projections.safe_text import redact_event, sanitize_line
from ..._projections.stream_json import StreamJson
from ..._session.config import Settings
from ...errors import UsageError
from ..output.json_output import encode_line
from ..output.progress import print_notice
from ..output.report import encode_answer
from .load_settings import choose_folder, load_settings
from .one_shot import run_one_shot
from .session_start import SessionStart, StartOptions
from .session_store import delete_session, find_session, read_session_folder
from .user_store import open_store, require_files

if TYPE_CHECKING:
    from ..._adapters.journals.sqlite.repair import JournalCondition


def resume_session(
    name: str | None,
    *,
    last: bool,
    cwd: str | None,
    verbose: bool,
    quiet: bool,
    no_color: bool,
    output_format: str | None,
    store: str | None = None,
) -> int:
    """Finish a session's interrupted run, or print its last answer.

    Without a name, the session is the folder's last. Raises UnknownName, JournalBusy if
    another process is writing the session, UsageError if it has no prompts.
    """
    if name and last:
        raise UsageError(f"--last and {name} each name a session", remedy="Use only one of them.")
    color = "never" if no_color else None
    here = cwd or os.curdir
    settings = load_settings(here, color=color, output_format=output_format, store=store)
    recorded = asyncio.run(_read_idle_session(settings.home, here, name or "last"))
    tree = recorded.tree
    if any(root.report is None for root in tree.roots):
        start = SessionStart(resume=recorded.id, folder=path_from_text(recorded.folder))
        folder = choose_folder(start, cwd)
        options = StartOptions(
            settings=settings, cwd=folder, start=start, verbose=verbose, quiet=quiet
        )
        return run_event_loop(run_one_shot(None, options))
    report = _get_last_report(recorded)
    if not quiet:
        print_notice("no run was interrupted; this is the last answer")
    _print_again(recorded, tree.roots[-1], report, settings)
    return 0 if report.ok else 1


class _RecordedSession(NamedTuple):
    """A recorded session that no process is writing. `tree` has only starts and ends of runs."""

    id: str
    folder: str
    tree: RunTree


async def _read_idle_session(home: str, cwd: str, name: str) -> _RecordedSession:
    """Read a session that no process is writing. Raises JournalBusy, JournalError."""
    store = open_store(home)
    session_id = await find_session(store, cwd, name)
    await require_no_writer(store, session_id)
    # A long session has many thousands of other events.
    ends = await read_events(store, session_id, (RunStarted, RunResumed, RunFinished))
    folder = await read_session_folder(store, session_id)
    return _RecordedSession(session_id, folder, RunTree.from_events(ends))


def _read_all_events(home: str, session_id: str) -> list[StoredEvent]:
    return asyncio.run(read_events(open_store(home), session_id))


def _get_last_report(recorded: _RecordedSession) -> Report:
    """Return the last root run's report. Raises UsageError if the session has no runs."""
    if not recorded.tree.roots:
        raise UsageError(
            "this session has no prompts yet",
            where=recorded.id,
            remedy=f"Give it one: mudroom --resume {recorded.id} -p PROMPT",
        )
    report = recorded.tree.roots[-1].report
    assert report is not None
    return report


def _print_again(
    recorded: _RecordedSession, root: RunView, report: Report, settings: Settings
) -> None:
    """Print a session's last answer as the run itself did."""
    if settings.output_format == "text":
        sys.stdout.buffer.write(encode_answer(report))
        return
    redact = Redactor(os.environ)
    stored = _read_all_events(settings.home, recorded.id)
    events = [redact_event(event, redact) for event in stored]
    opened = next(event for event in events if isinstance(event, SessionOpened))
    started = next(
        event for event in events if isinstance(event, RunStarted) and event.run == root.run_id
    )
    lines = StreamJson(
        session=recorded.id,
        cwd=opened.cwd,
        model=root.model,
        tools=started.brief.tools,
        agents=[],
        cost=calculate_cost,
    )
    ledger = LedgerBuilder()
    shown = [lines.make_init_line()]
    for event in events:
        if find_root_id(event.run) == root.run_id:
            ledger.apply(event)
            shown.extend(lines.make_event_lines(event))
    result = lines.make_result_line(report, msgspec.to_builtins(ledger.ledger))
    if settings.output_format == "json":
        shown = []
    for line in (*shown, result):
        sys.stdout.buffer.write(encode_line(line))


def replay_session(name: str, *, quiet: bool, store: str | None = None) -> None:
    """Replay a finished session without a model or effects, and print its last answer.

    Raises ReplayDiverged, showing the first event that differs from the recorded one.
    """
    from ..._replay import replay

    home = load_settings(".", store=store).home
    recorded = asyncio.run(_read_idle_session(home, ".", name))
    if any(root.report is None for root in recorded.tree.roots):
        raise UsageError(
            "a run of this session was interrupted",
            where=recorded.id,
            remedy=f"First finish it: mudroom resume {recorded.id[:8]}",
        )
    report = _get_last_report(recorded)
    asyncio.run(replay(_read_all_events(home, recorded.id)))
    if not quiet:
        runs = count_noun(len(recorded.tree.runs), "run")
        print_notice(f"Replay matched: {runs}, every event identical.", prefix="")
    sys.stdout.buffer.write(encode_answer(report))


def rename_session(session: str, name: str, *, store: str | None = None) -> None:
    async def rename() -> None:
        sessions = open_store(load_settings(".", store=store).home)
        await sessions.rename(await find_session(sessions, ".", session or "last"), name)

    asyncio.run(rename())


def delete_sessions(names: Sequence[str], *, yes: bool, store: str | None = None) -> int:
    """Delete sessions after asking the user, unless `yes`.

    Raises UnknownName, or JournalBusy for an open session; in either case none is deleted.
    """
    home = load_settings(".", store=store).home
    return asyncio.run(_delete_sessions(home, names, yes=yes))


async def _delete_sessions(home: str, names: Sequence[str], *, yes: bool) -> int:
    store = open_store(home)
    session_ids = list(dict.fromkeys([await find_session(store, ".", name) for name in names]))
    # Check all before deleting the first.
    for session_id in session_ids:
        await require_no_writer(store, session_id)
    if not yes and not await _confirm_deletion(store, session_ids):
        print_notice("nothing was deleted")
        return 1
    for session_id in session_ids:
        await delete_session(store, home, session_id)
    return 0


async def _confirm_deletion(store: SessionStore, session_ids: Sequence[str]) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("deleting needs a confirmation at a terminal", remedy="Add --yes.")
    for info in await store.list():
        if info.id in session_ids:
            summary = await read_summary(store, info)
            title = sanitize_line(summary.name or summary.topic or summary.error)
            print(f"{info.id}  {title}", file=sys.stderr)
    question = f"Delete {count_noun(len(session_ids), 'session')} permanently? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def check_journal(name: str) -> int:
    """Print the condition of a session's journal; return 1 if it is damaged, else 0."""
    from ..._adapters.journals.sqlite import repair

    home = load_settings(".").home
    require_files("journal check")
    condition = repair.check_journal(_find_file(home, ".", name))
    extent = "" if condition.is_damaged else ", all"
    print(f"{count_noun(condition.intact, 'record')}{extent} intact{_describe_losses(condition)}")
    return int(condition.is_damaged)


def repair_journal(name: str, *, cwd: str) -> None:
    from ..._adapters.journals.sqlite import repair

    home = load_settings(cwd).home
    require_files("journal repair")
    path = _find_file(home, cwd, name)
    condition = repair.repair_journal(path, cwd=os.path.realpath(cwd))
    records = count_noun(condition.intact, "record")
    if condition.damaged_copy:
        print(f"{records} kept{_describe_losses(condition)}")
        print(f"The damaged file is {condition.damaged_copy}")
    else:
        print(f"{records}, all intact: nothing to repair")


def _find_file(home: str, cwd: str, name: str) -> Path:
    """Find a session's SQLite file; check and repair work on the file itself."""
    from ..._adapters.journals.sqlite.store import SqliteStore

    store = SqliteStore(home)
    return store.get_path(asyncio.run(find_session(store, cwd, name)))


def _describe_losses(condition: JournalCondition) -> str:
    text = ""
    if condition.lost:
        ranges = [
            str(first) if first == last else f"{first} to {last}" for first, last in condition.lost
        ]
        text = f"; lost: {', '.join(ranges)}"
    if condition.first_unreadable:
        text += (
            f"; the end of the file cannot be read: an unknown number of records is lost, "
            f"from number {condition.first_unreadable} on"
        )
    if condition.torn_tail:
        text += "; the last record was incomplete when its process ended and is left out"
    return text
