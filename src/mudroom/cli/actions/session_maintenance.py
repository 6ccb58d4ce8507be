"""What is done with a recorded session as a whole: finish it, print its last answer again, delete it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..._core.events import RunStarted, SessionOpened, StoredEvent
from ...config import Settings
from ...errors import UsageError
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
from .list_sessions import summarize_session
from .one_shot import run_one_shot
from .select_session import find_session, session_folder
from .session_start import SessionStart

if TYPE_CHECKING:
    from ...journals.sqlite.repair import JournalCondition


async def finish_session(
    settings: Settings, name: str, *, cwd: str, verbose: bool = False, quiet: bool = False
) -> int:
    """Finish the run that was interrupted in a session, or say again what its last one answered; the exit code.

    Arguments:
        name: of the session: an id, the beginning of one, a name, or "last" for the last one of the folder `cwd`.

    Raises UnknownName, JournalBusy while another process is at it, UsageError when nothing was ever asked there.
    """
    path = find_session(settings.home, cwd, name)
    require_no_writer(path)
    events, tree = list(open_reader(path).read()), RunTree()
    for event in events:
        tree.apply(event)
    if any(root.report is None for root in tree.roots):
        start = SessionStart(resume=path.stem, folder=session_folder(path))
        return await run_one_shot(
            None, settings, cwd=start.folder or cwd, start=start, verbose=verbose, quiet=quiet
        )
    if not tree.roots:
        raise _empty(path)
    if not quiet:
        print_notice("nothing was interrupted; this is its last answer")
    return _again(path, events, tree.roots[-1], settings)


def _again(path: Path, events: Sequence[StoredEvent], root: RunView, settings: Settings) -> int:
    report = root.report
    assert report is not None
    if settings.output_format == "text":
        sys.stdout.buffer.write(encode_answer(report))
        return 0 if report.ok else 1
    opened = next(event for event in events if isinstance(event, SessionOpened))
    tools = next(
        event.brief.tools
        for event in events
        if isinstance(event, RunStarted) and event.run == root.run_id
    )
    lines = StreamJson(
        session=path.stem,
        cwd=opened.cwd,
        model=root.model,
        tools=tools,
        agents=[],
        cost=calculate_cost,
    )
    tally, stream = LedgerBuilder(), settings.output_format == "stream-json"
    shown = [lines.init_line()] if stream else []
    for event in events:
        if event.run.partition(".")[0] == root.run_id:
            tally.apply(event)
            shown += [line for line in lines.event_lines(event) if stream]
    shown.append(lines.result_line(report, msgspec.to_builtins(tally.ledger)))
    for line in shown:
        sys.stdout.buffer.write(encode_line(line))
    return 0 if report.ok else 1


async def replay_session(home: str, name: str, *, quiet: bool) -> int:
    """Run a finished session again from its record, with no model and no effect, and print its last answer; the exit code.

    Raises ReplayDiverged, which shows the first event that does not come out as it is recorded.
    """
    from ...replay import replay

    path = find_session(home, ".", name)
    require_no_writer(path)
    events, tree = list(open_reader(path).read()), RunTree()
    for event in events:
        tree.apply(event)
    if any(root.report is None for root in tree.roots):
        raise UsageError(
            "a run of this session was interrupted",
            where=path.stem,
            remedy=f"First finish it: mudroom resume {path.stem[:8]}",
        )
    if not tree.roots:
        raise _empty(path)
    await replay(events)
    if not quiet:
        print_notice(
            f"{count_noun(len(tree.runs), 'run')} came out again as recorded, event by event",
            prefix="",
        )
    report = tree.roots[-1].report
    assert report is not None
    sys.stdout.buffer.write(encode_answer(report))
    return 0


def _empty(path: Path) -> UsageError:
    return UsageError(
        "nothing was asked in this session",
        where=path.stem,
        remedy="Ask: mudroom --resume ID -p PROMPT",
    )


def delete_sessions(home: str, names: Sequence[str], *, yes: bool) -> int:
    """Delete sessions, after asking; the exit code. Raises UnknownName, or JournalBusy for one that is open; then none is deleted."""
    paths = list(dict.fromkeys(find_session(home, ".", name) for name in names))
    for path in paths:
        require_no_writer(path)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody is here to confirm it", remedy="Add --yes.")
        for path in paths:
            what = summarize_session(SessionInfo(id=path.stem, path=path, mtime=0, size=0))
            print(
                f"{path.stem}  {sanitize_line(what.name or what.prompt or what.trouble)}",
                file=sys.stderr,
            )
        print(
            f"Delete {'it' if len(paths) == 1 else f'these {len(paths)}'} for good? [y/N] ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print_notice("nothing was deleted")
            return 1
    for path in paths:
        delete_session(path)
    return 0


def check_journal(home: str, name: str) -> int:
    """Say how the record of a session is; the exit code."""
    from ...journals.sqlite.repair import check_journal

    condition = check_journal(find_session(home, ".", name))
    print(
        f"{count_noun(condition.intact, 'record')}, {'all' if not condition.lost else 'the rest'} as written{_losses(condition)}"
    )
    return 1 if condition.lost else 0


def repair_journal(home: str, name: str, *, cwd: str) -> int:
    """Repair the record of a session if it needs it, and say what was lost; the exit code."""
    from ...journals.sqlite.repair import repair_journal

    condition = repair_journal(find_session(home, cwd, name), cwd=os.path.realpath(cwd))
    if condition.damaged_copy:
        print(
            f"{count_noun(condition.intact, 'record')} kept{_losses(condition)}\nThe damaged file is {condition.damaged_copy}"
        )
    else:
        print(
            f"{count_noun(condition.intact, 'record')}, all as written: there is nothing to repair"
        )
    return 0


def _losses(condition: JournalCondition) -> str:
    stretches = ", ".join(
        str(first) if first == last else f"{first} to {last}" for first, last in condition.lost
    )
    lost = f"; lost: {stretches}" if stretches else ""
    return lost + (
        "; the last one was still being written when its process ended and is left out"
        if condition.torn_tail
        else ""
    )
