"""`mudroom batch status`: shows a running batch, or an earlier one."""

from __future__ import annotations

import msgspec

from ...._platform.event_loop import run_event_loop
from ....errors import UsageError
from ...batches.status import BatchStatus, StatusFile, list_batches
from ...output.batch_progress import format_counts, format_pace
from ...output.json_output import print_json_line
from ..load_settings import load_settings
from ..user_store import open_store
from .output import find_session


def show_status(cwd: str, out: str, *, as_json: bool) -> int:
    """Print the status of a batch.

    Arguments:
        out: the batch's output; "" for the only one that runs.
    """
    home = load_settings(cwd).home
    session, is_running = run_event_loop(_find_batch(home, out))
    status = StatusFile(home, session).read()
    if status is None:
        raise UsageError("the batch has not begun", where=out, remedy="Try again.")
    # A process that was killed leaves a status that still says it runs.
    state = status.state if is_running else "ended" if status.state == "ended" else "interrupted"
    if as_json:
        print_json_line(msgspec.to_builtins(status) | {"state": state})
        return 0
    print(f"{status.output}: {state}\n{format_counts(status)}")
    if is_running:
        print(format_pace(status))
    return 0


async def _find_batch(home: str, out: str) -> tuple[str, bool]:
    """Return the session of a batch, and whether a process runs it. Raises UsageError."""
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
    running: dict[str, BatchStatus] = {}
    for session in list_batches(home):
        status = StatusFile(home, session).read()
        if status and await store.find_writer(session):
            running[session] = status
    if not running:
        raise UsageError(
            "no batch runs", remedy="For the status of an earlier one, give its output: --out FILE."
        )
    if len(running) > 1:
        outputs = ", ".join(status.output for status in running.values())
        raise UsageError(f"{len(running)} batches run", remedy=f"Choose one with --out: {outputs}")
    return next(iter(running)), True
