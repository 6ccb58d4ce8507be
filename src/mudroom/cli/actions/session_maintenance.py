"""What is done with a recorded session as a whole: finish it, print its last answer again, delete it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..._core.events import RunStarted, SessionOpened, Stored
from ...config import Settings
from ...errors import UsageError
from ...journals.sqlite.journal import read_only
from ...journals.sqlite.store import SessionInfo, free, remove
from ...pricing import cost
from ...projections.ledger import Tally
from ...projections.run_tree import RunView, Tree
from ..output.progress import say
from ..output.report import answered
from ..output.stream_json import Stream, encode
from ..output.text import one_line, plural
from .list_sessions import summary
from .one_shot import one_shot
from .select_session import folder, found
from .session_start import Start

if TYPE_CHECKING:
    from ...journals.sqlite.repair import Condition


async def finish(
    settings: Settings, name: str, *, cwd: str, verbose: bool = False, quiet: bool = False
) -> int:
    """Finish the run that was interrupted in a session, or say again what its last one answered; the exit code.

    Arguments:
        name: of the session: an id, the beginning of one, a name, or "last" for the last one of the folder `cwd`.

    Raises UnknownName, JournalBusy while another process is at it, UsageError when nothing was ever asked there.
    """
    path = found(settings.home, cwd, name)
    free(path)
    events, tree = list(read_only(path).read()), Tree()
    for event in events:
        tree.apply(event)
    if any(root.report is None for root in tree.roots):
        start = Start(resume=path.stem, folder=folder(path))
        return await one_shot(
            None, settings, cwd=start.folder or cwd, start=start, verbose=verbose, quiet=quiet
        )
    if not tree.roots:
        raise _empty(path)
    if not quiet:
        say("nothing was interrupted; this is its last answer")
    return _again(path, events, tree.roots[-1], settings)


def _again(path: Path, events: Sequence[Stored], root: RunView, settings: Settings) -> int:
    report = root.report
    assert report is not None
    if settings.output_format == "text":
        sys.stdout.buffer.write(answered(report))
        return 0 if report.ok else 1
    opened = next(event for event in events if isinstance(event, SessionOpened))
    tools = next(
        event.brief.tools
        for event in events
        if isinstance(event, RunStarted) and event.run == root.run_id
    )
    lines = Stream(
        session=path.stem, cwd=opened.cwd, model=root.model, tools=tools, agents=[], cost=cost
    )
    tally, stream = Tally(), settings.output_format == "stream-json"
    shown = [lines.opening()] if stream else []
    for event in events:
        if event.run.partition(".")[0] == root.run_id:
            tally.apply(event)
            shown += [line for line in lines.feed(event) if stream]
    shown.append(lines.result(report, msgspec.to_builtins(tally.ledger)))
    for line in shown:
        sys.stdout.buffer.write(encode(line))
    return 0 if report.ok else 1


async def again(home: str, name: str, *, quiet: bool) -> int:
    """Run a finished session again from its record, with no model and no effect, and print its last answer; the exit code.

    Raises ReplayDiverged, which shows the first event that does not come out as it is recorded.
    """
    from ...replay import replay

    path = found(home, ".", name)
    free(path)
    events, tree = list(read_only(path).read()), Tree()
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
        say(
            f"{plural(len(tree.runs), 'run')} came out again as recorded, event by event", prefix=""
        )
    report = tree.roots[-1].report
    assert report is not None
    sys.stdout.buffer.write(answered(report))
    return 0


def _empty(path: Path) -> UsageError:
    return UsageError(
        "nothing was asked in this session",
        where=path.stem,
        remedy="Ask: mudroom --resume ID -p PROMPT",
    )


def delete_all(home: str, names: Sequence[str], *, yes: bool) -> int:
    """Delete sessions, after asking; the exit code. Raises UnknownName, or JournalBusy for one that is open; then none is deleted."""
    paths = list(dict.fromkeys(found(home, ".", name) for name in names))
    for path in paths:
        free(path)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody is here to confirm it", remedy="Add --yes.")
        for path in paths:
            what = summary(SessionInfo(id=path.stem, path=path, mtime=0, size=0))
            print(
                f"{path.stem}  {one_line(what.name or what.prompt or what.trouble)}",
                file=sys.stderr,
            )
        print(
            f"Delete {'it' if len(paths) == 1 else f'these {len(paths)}'} for good? [y/N] ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            say("nothing was deleted")
            return 1
    for path in paths:
        remove(path)
    return 0


def checked(home: str, name: str) -> int:
    """Say how the record of a session is; the exit code."""
    from ...journals.sqlite.repair import check

    condition = check(found(home, ".", name))
    print(
        f"{plural(condition.kept, 'record')}, {'all' if not condition.lost else 'the rest'} as written{_losses(condition)}"
    )
    return 1 if condition.lost else 0


def repaired(home: str, name: str, *, cwd: str) -> int:
    """Repair the record of a session if it needs it, and say what was lost; the exit code."""
    from ...journals.sqlite.repair import repair

    condition = repair(found(home, cwd, name), cwd=os.path.realpath(cwd))
    if condition.damaged:
        print(
            f"{plural(condition.kept, 'record')} kept{_losses(condition)}\nThe damaged file is {condition.damaged}"
        )
    else:
        print(f"{plural(condition.kept, 'record')}, all as written: there is nothing to repair")
    return 0


def _losses(condition: Condition) -> str:
    stretches = ", ".join(
        str(first) if first == last else f"{first} to {last}" for first, last in condition.lost
    )
    lost = f"; lost: {stretches}" if stretches else ""
    return lost + (
        "; the last one was still being written when its process ended and is left out"
        if condition.cut_off
        else ""
    )
