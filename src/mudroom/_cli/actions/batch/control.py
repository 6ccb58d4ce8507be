"""`mudroom batch status|pause|resume|set`: looks at a batch that runs, and changes it."""

from __future__ import annotations

import time

import msgspec

from ...._batches.control import BatchChange, BatchFolder, list_folders
from ...._batches.status import BatchStatus
from ...._platform.event_loop import run_event_loop
from ....errors import UsageError
from ...output.batch_progress import format_counts, format_limit, format_pace
from ...output.json_output import print_json_line
from ..load_settings import load_settings
from ..user_store import open_store
from .output import find_session
from .run import MAX_PARALLEL

_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.05
_START = "Start it with mudroom batch FILE."
_NAME_OUTPUT = "For the status of an earlier one, give its output: --out FILE."


def control_batch(cwd: str, words: tuple[str, ...], out: str, *, as_json: bool) -> int:
    """Carry out one of the words status, pause, resume, set; return the exit code.

    Arguments:
        out: output of the batch; "" for the only one that runs.
    """
    change = _parse_change(words)
    home = load_settings(cwd).home
    remedy = _START if change else _NAME_OUTPUT
    session, is_running = run_event_loop(_find_batch(home, out, remedy))
    folder = BatchFolder(home, session)
    if change is None:
        status = folder.read_status()
    elif not is_running:
        raise UsageError("the batch does not run", where=out, remedy=_START)
    else:
        status = _change(folder, change)
    if status is None:
        raise UsageError("the batch has not begun", where=out, remedy="Try again.")
    _print_status(status, is_running=is_running, as_json=as_json)
    return 0


def _parse_change(words: tuple[str, ...]) -> BatchChange | None:
    """Return the change that words ask for, None for the status. Raises UsageError."""
    match words:
        case ("status",):
            return None
        case ("pause",):
            return BatchChange(0, is_paused=True)
        case ("resume",):
            return BatchChange(0, is_paused=False)
        case ("set", setting) if setting.startswith("parallel="):
            number = setting.removeprefix("parallel=")
            if number.isdecimal() and 1 <= int(number) <= MAX_PARALLEL:
                return BatchChange(0, parallel=int(number))
            raise UsageError(f"parallel is a number from 1 to {MAX_PARALLEL:,}", where=setting)
        case _:
            pass
    raise UsageError(
        "this is neither a batch nor a change of one",
        where=" ".join(words),
        remedy="Use mudroom batch status, pause, resume, or set parallel=N.",
    )


async def _find_batch(home: str, out: str, remedy: str) -> tuple[str, bool]:
    """Return the session of a batch, and whether a process runs it.

    Arguments:
        remedy: what to do if no batch runs.

    Raises UsageError.
    """
    store = open_store(home)
    if out:
        session = await find_session(store, out)
        if not session:
            raise UsageError(
                "no recorded batch has this output",
                where=out,
                remedy="Give --out the path that the batch writes to.",
            )
        return session, bool(await store.find_writer(session))
    sessions = [
        name for name in list_folders(home) if BatchFolder(home, name).read_status() is not None
    ]
    running = [session for session in sessions if await store.find_writer(session)]
    if len(running) == 1:
        return running[0], True
    if not running:
        raise UsageError("no batch runs", remedy=remedy)
    statuses = [BatchFolder(home, session).read_status() for session in running]
    outputs = [status.output for status in statuses if status]
    raise UsageError(
        f"{len(running)} batches run", remedy="Choose one with --out: " + ", ".join(outputs)
    )


def _change(folder: BatchFolder, change: BatchChange) -> BatchStatus:
    """Ask for a change, and wait until the batch has carried it out. Raises UsageError."""
    change = folder.ask_for_change(parallel=change.parallel, is_paused=change.is_paused)
    end = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < end:
        status = folder.read_status()
        if status and status.change >= change.number:
            return status
        time.sleep(_POLL_SECONDS)
    raise UsageError(
        f"the batch has not answered within {_ANSWER_SECONDS:.0f} s",
        remedy="Look at it with mudroom batch status.",
    )


def _print_status(status: BatchStatus, *, is_running: bool, as_json: bool) -> None:
    state = status.state if is_running else "ended" if status.state == "ended" else "interrupted"
    if as_json:
        value = msgspec.to_builtins(status) | {"state": state}
        print_json_line(value)
        return
    print(f"{status.output}: {state}\n{format_counts(status)}")
    if is_running:
        print(format_pace(status) + format_limit(status))
