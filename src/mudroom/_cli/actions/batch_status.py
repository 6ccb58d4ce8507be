"""A batch's output, which identifies it, and `mudroom batch status`.

Other spellings of the output's path, and links to it, mean the same batch.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from ..._core.ports import SessionStore
from ..._platform.event_loop import run_event_loop
from ...errors import UnknownName, UsageError
from ..batches.status import BatchStatus, StatusFile, list_batches
from ..output.batch_progress import format_counts, format_pace
from ..output.json_output import print_json_line
from .load_settings import load_settings
from .user_store import open_store

STDIN = "-"


def choose_output(file: str, out: str | None) -> str:
    """Choose the output's path, as the command line spells it. Raises UsageError."""
    if out:
        return out
    if file == STDIN:
        raise UsageError("a batch from stdin needs a place for its output", remedy="Add --out.")
    path = Path(file).absolute()
    return str(path.with_name(f"{path.stem}.results.jsonl"))


def check_output(out: str) -> None:
    """Raise UsageError if this cannot be a batch's output."""
    remedy = "Name a file for the results with --out."
    if out == STDIN:
        raise UsageError("results go to a file, not to stdout", where=out, remedy=remedy)
    if out.endswith(os.sep) or os.path.isdir(out):
        raise UsageError("this is a folder", where=out, remedy=remedy)
    # Results replace the whole file, which would destroy a device or a pipe.
    if os.path.exists(out) and not os.path.isfile(out):
        raise UsageError(
            "this cannot hold results: it is no regular file", where=out, remedy=remedy
        )
    folder = resolve_output(out).parent
    if not folder.is_dir():
        raise UsageError("no such directory", where=str(folder), remedy="Create it.")


def resolve_output(out: str) -> Path:
    return Path(os.path.realpath(out))


def name_session(output: Path) -> str:
    """Name the session of a batch by its output, an absolute path."""
    # The hash tells outputs with the same name apart; the stem is for people listing sessions.
    stem = "".join(each if each.isalnum() or each in "-_." else "-" for each in output.name)[:40]
    return f"batch-{stem}-{sha256(str(output).encode()).hexdigest()[:8]}"


async def find_session(store: SessionStore, out: str) -> str:
    """Find the session of the batch with this output, "" if there is none."""
    with suppress(UnknownName):
        return await store.find(name_session(resolve_output(out)))
    return ""


def show_status(cwd: str, out: str | None, *, as_json: bool) -> None:
    """Print a batch's status, by default that of the only one running."""
    home = load_settings(cwd).home
    session, is_running = run_event_loop(_find_batch(home, out))
    status = StatusFile(home, session).read()
    if status is None:
        raise UsageError("the batch has not begun", where=out or "", remedy="Try again.")
    # A killed process leaves a status that still says it is running.
    state = status.state if is_running else "ended" if status.state == "ended" else "interrupted"
    if as_json:
        print_json_line(msgspec.to_builtins(status) | {"state": state})
        return
    print(f"{status.output}: {state}\n{format_counts(status)}")
    if is_running:
        print(format_pace(status))


async def _find_batch(home: str, out: str | None) -> tuple[str, bool]:
    """Find a batch's session, and whether a process is running it. Raises UsageError."""
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
