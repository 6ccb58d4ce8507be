"""Actions on a recorded session as a whole: finish, rename, delete, replay, check, repair."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..._core.events import RunStarted, SessionOpened, StoredEvent
from ..._core.runs import Report
from ...config import Settings
from ...errors import UsageError
from ...journals.sqlite import session_names
from ...journals.sqlite.lock import require_no_writer
from ...journals.sqlite.reader import open_reader
from ...journals.sqlite.store import SessionInfo, delete_session
from ...pricing import calculate_cost
from ...projections.ledger import LedgerBuilder
from ...projections.run_tree import RunTree, RunView
from ...projections.safe_text import sanitize_line
from ..output.progress import print_notice
from ..output.report import encode_answer
from ..output.stream_json import StreamJson, encode_line
from ..output.text import count_noun
from .list_sessions import read_summary
from .load_settings import load_settings
from .one_shot import run_one_shot
from .select_session import find_session, session_folder
from .session_start import SessionStart, StartOptions

if TYPE_CHECKING:
    from ...journals.sqlite.repair import JournalCondition


def resume_session(
    name: str | None,
    *,
    last: bool,
    cwd: str,
    verbose: bool,
    quiet: bool,
    no_color: bool,
    output_format: str | None,
) -> int:
    """Finish the interrupted run of a session, or print its last answer; return the exit code.

    Arguments:
        name: id, beginning of an id, or name; None is the last session of the folder `cwd`.
        last: the user asks for the last session. verbose, quiet: see `StartOptions`.

    Raises UnknownName, JournalBusy if another process writes the session, UsageError if it has
    no prompts.
    """
    if name and last:
        raise UsageError(f"--last and {name} each name a session", remedy="Use only one of them.")
    color = "never" if no_color else None
    settings = load_settings(cwd, color=color, output_format=output_format)
    path = find_session(settings.home, cwd, name or "last")
    events, tree = _read_idle_session(path)
    if any(root.report is None for root in tree.roots):
        start = SessionStart(resume=path.stem, folder=session_folder(path))
        options = StartOptions(
            settings=settings, cwd=start.folder or cwd, start=start, verbose=verbose, quiet=quiet
        )
        return asyncio.run(run_one_shot(None, options))
    report = _last_report(tree, path)
    if not quiet:
        print_notice("no run was interrupted; this is the last answer")
    _print_again(path, events, tree.roots[-1], report, settings)
    return 0 if report.ok else 1


def _read_idle_session(path: Path) -> tuple[list[StoredEvent], RunTree]:
    """Read a session that no process writes. Raises JournalBusy, JournalError."""
    require_no_writer(path)
    events = list(open_reader(path).read())
    tree = RunTree()
    for event in events:
        tree.apply(event)
    return events, tree


def _last_report(tree: RunTree, path: Path) -> Report:
    """Return the report of the last root run. Raises UsageError if the session has no runs."""
    if not tree.roots:
        raise UsageError(
            "this session has no prompts yet",
            where=path.stem,
            remedy=f"Give it one: mudroom --resume {path.stem} -p PROMPT",
        )
    report = tree.roots[-1].report
    assert report is not None
    return report


def _print_again(
    path: Path, events: Sequence[StoredEvent], root: RunView, report: Report, settings: Settings
) -> None:
    """Print the last answer of a session as the run itself did."""
    if settings.output_format == "text":
        sys.stdout.buffer.write(encode_answer(report))
        return
    opened = next(event for event in events if isinstance(event, SessionOpened))
    started = next(
        event for event in events if isinstance(event, RunStarted) and event.run == root.run_id
    )
    lines = StreamJson(
        session=path.stem,
        cwd=opened.cwd,
        model=root.model,
        tools=started.brief.tools,
        agents=[],
        cost=calculate_cost,
    )
    ledger = LedgerBuilder()
    shown = [lines.init_line()]
    for event in events:
        if event.run.partition(".")[0] == root.run_id:
            ledger.apply(event)
            shown.extend(lines.event_lines(event))
    result = lines.result_line(report, msgspec.to_builtins(ledger.ledger))
    if settings.output_format == "json":
        shown = []
    for line in (*shown, result):
        sys.stdout.buffer.write(encode_line(line))


def replay_session(name: str, *, quiet: bool) -> int:
    """Replay a finished session without a model or effects, and print its last answer.

    Raises ReplayDiverged, which shows the first event that differs from the recorded one.
    """
    from ...replay import replay

    path = find_session(load_settings(".").home, ".", name)
    events, tree = _read_idle_session(path)
    if any(root.report is None for root in tree.roots):
        raise UsageError(
            "a run of this session was interrupted",
            where=path.stem,
            remedy=f"First finish it: mudroom resume {path.stem[:8]}",
        )
    report = _last_report(tree, path)
    asyncio.run(replay(events))
    if not quiet:
        runs = count_noun(len(tree.runs), "run")
        print_notice(f"Replay matched: {runs}, every event identical.", prefix="")
    sys.stdout.buffer.write(encode_answer(report))
    return 0


def rename_session(session: str, name: str) -> int:
    """Give a session a name, "" to remove it, and return the exit code."""
    home = load_settings(".").home
    session_names.rename_session(home, find_session(home, ".", session or "last"), name)
    return 0


def delete_sessions(names: Sequence[str], *, yes: bool) -> int:
    """Delete sessions after asking the user; return the exit code.

    Arguments:
        yes: do not ask.

    Raises UnknownName, or JournalBusy for a session that is open; then none is deleted.
    """
    home = load_settings(".").home
    paths = list(dict.fromkeys(find_session(home, ".", name) for name in names))
    for path in paths:
        require_no_writer(path)
    if not yes and not _confirm_deletion(paths):
        print_notice("nothing was deleted")
        return 1
    for path in paths:
        delete_session(path)
    return 0


def _confirm_deletion(paths: Sequence[Path]) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("deleting needs a confirmation at a terminal", remedy="Add --yes.")
    for path in paths:
        summary = read_summary(SessionInfo(id=path.stem, path=path, mtime=0, size=0))
        title = sanitize_line(summary.name or summary.prompt or summary.error)
        print(f"{path.stem}  {title}", file=sys.stderr)
    question = f"Delete {count_noun(len(paths), 'session')} permanently? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def check_journal(name: str) -> int:
    """Print the condition of a session's journal; return 1 if it is damaged, else 0."""
    from ...journals.sqlite import repair

    condition = repair.check_journal(find_session(load_settings(".").home, ".", name))
    extent = "the rest" if condition.lost else "all"
    print(f"{count_noun(condition.intact, 'record')}, {extent} intact{_describe_losses(condition)}")
    return 1 if condition.lost else 0


def repair_journal(name: str, *, cwd: str) -> int:
    """Repair the journal of a session if it is damaged, print the losses, return the exit code."""
    from ...journals.sqlite import repair

    path = find_session(load_settings(cwd).home, cwd, name)
    condition = repair.repair_journal(path, cwd=os.path.realpath(cwd))
    records = count_noun(condition.intact, "record")
    if condition.damaged_copy:
        print(f"{records} kept{_describe_losses(condition)}")
        print(f"The damaged file is {condition.damaged_copy}")
    else:
        print(f"{records}, all intact: nothing to repair")
    return 0


def _describe_losses(condition: JournalCondition) -> str:
    text = ""
    if condition.lost:
        ranges = [
            str(first) if first == last else f"{first} to {last}" for first, last in condition.lost
        ]
        text = f"; lost: {', '.join(ranges)}"
    if condition.torn_tail:
        text += "; the last record was incomplete when its process ended and is left out"
    return text
