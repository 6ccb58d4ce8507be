"""`mudroom fleet`: shows and drains the worker processes of running sessions."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..._adapters.workers.remote.fleet_control import (
    FleetFolder,
    FleetRequest,
    FleetStatus,
    WorkerStatus,
    list_fleets,
)
from ..._core.listings import count_noun, format_size
from ...errors import UsageError
from ..output.json_output import print_json
from ..output.listing import print_entry, print_rows
from ..output.progress import print_notice
from .load_settings import load_settings

# Time that a busy session may take to answer.
_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.05
_WAIT_SECONDS = 0.2
_SHOWN_RUNS = 4
_SHORT_ID = 8
_STATUS_REQUEST = FleetRequest()


def print_status(session: str | None = None, *, as_json: bool = False) -> None:
    """Print the workers of running sessions.

    `session` is the start of an id, to show only that session.
    """
    home = load_settings(".").home
    statuses, silent = _ask_all(home, _find_sessions(home, session))
    for each in silent:
        print_notice(f"session {each[:_SHORT_ID]} has not answered within {_ANSWER_SECONDS:.0f} s")
    if as_json:
        print_json(statuses)
        return
    if not statuses and not silent:
        print_entry("No running session has worker processes.")
        print_entry('Start one: mudroom --worker process -p "PROMPT"')
    for status in statuses:
        _print_workers(status)


def drain_workers(worker: str | None, session: str | None, *, wait: bool) -> None:
    """Drain one session's workers.

    `worker` is a number or a machine's name, None for all; `session` is the start of an id,
    None for the only session.
    """
    home = load_settings(".").home
    sessions = _find_sessions(home, session)
    if len(sessions) > 1:
        raise UsageError(
            f"{len(sessions)} running sessions have worker processes",
            where="--session",
            remedy="Choose one: " + ", ".join(sessions),
        )
    status = _ask(home, sessions[0]) if sessions else None
    if status is None or not status.workers:
        raise UsageError(
            "no running session has worker processes", remedy="There is nothing to drain."
        )
    numbers = _select(status, worker)
    status = _ask(home, status.session, FleetRequest(drain=numbers))
    for each in status.workers if status else ():
        if each.number in numbers:
            runs = count_noun(len(each.running) + each.waiting, "run")
            print_entry(f"worker {each.number}: no further children; {runs} to finish")
    while wait and status and any(each.number in numbers for each in status.workers):
        time.sleep(_WAIT_SECONDS)
        status = _ask(home, status.session)
    if wait:
        print_entry(f"ended: {', '.join(map(str, numbers))}")


def _find_sessions(home: str, start: str | None) -> list[str]:
    sessions = [each for each in list_fleets(home) if each.startswith(start or "")]
    if start and not sessions:
        raise UsageError(
            "no running session with worker processes has this id",
            where=f"--session {start}",
            remedy="List them with mudroom fleet status.",
        )
    return sessions


def _select(status: FleetStatus, worker: str | None) -> tuple[int, ...]:
    chosen = [
        each.number
        for each in status.workers
        if not worker or worker == str(each.number) or (each.host and worker == each.host)
    ]
    if worker and not chosen:
        names = [str(each.number) for each in status.workers]
        hosts = sorted({each.host for each in status.workers if each.host})
        raise UsageError(
            f"session {status.session[:_SHORT_ID]} has no such worker",
            where=worker,
            remedy="Use one of: " + ", ".join((*names, *hosts)),
        )
    return tuple(chosen)


def _ask(home: str, session: str, request: FleetRequest = _STATUS_REQUEST) -> FleetStatus | None:
    """Ask for the session's status, None if it has ended.

    Raises UsageError if it does not answer.
    """
    statuses, silent = _ask_all(home, [session], request)
    if silent:
        raise UsageError(
            f"the session has not answered within {_ANSWER_SECONDS:.0f} s",
            where=session,
            remedy="Try again.",
        )
    return statuses[0] if statuses else None


def _ask_all(
    home: str, sessions: Sequence[str], request: FleetRequest = _STATUS_REQUEST
) -> tuple[list[FleetStatus], list[str]]:
    """Send a request to sessions; return the answers, and the silent sessions.

    Ended sessions are in neither list. Raises UsageError if a request cannot be written.
    """
    names = {each: _write_request(FleetFolder(home, each), request) for each in sessions}
    waiting = {each: name for each, name in names.items() if name}
    statuses: list[FleetStatus] = []
    end = time.monotonic() + _ANSWER_SECONDS
    while waiting and time.monotonic() < end:
        for session, name in list(waiting.items()):
            folder = FleetFolder(home, session)
            if status := folder.take_answer(name):
                statuses.append(status)
                del waiting[session]
            elif not folder.has_session():
                # Left in place, the request would be carried out later, when nobody expects it.
                folder.withdraw(name)
                del waiting[session]
        if waiting:
            time.sleep(_POLL_SECONDS)
    for session, name in waiting.items():
        FleetFolder(home, session).withdraw(name)
    return sorted(statuses, key=lambda status: status.session), list(waiting)


def _write_request(folder: FleetFolder, request: FleetRequest) -> str:
    """Write a request and return its name, or "" if the session has ended. Raises UsageError."""
    try:
        return folder.write_request(request)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(
            f"cannot ask the session: {error}", where=str(folder.path), remedy="Try again."
        ) from error


def _print_workers(status: FleetStatus) -> None:
    waiting = f", {status.waiting} more wait for a worker" if status.waiting else ""
    where = f"pid {status.pid} on {status.host}"
    print_entry(f"session {status.session[:_SHORT_ID]}  --worker {status.kind}  {where}{waiting}")
    rows = [("  WORKER", "WHERE", "STATE", "RUNNING", "WAITING", "LEASE", "MEMORY", "RUNS")]
    print_rows([*rows, *map(_make_row, status.workers)])


def _make_row(worker: WorkerStatus) -> tuple[str, ...]:
    place = f"{worker.host}:{worker.pid}" if worker.pid else "not started"
    lease = "-" if worker.lease_seconds is None else f"{worker.lease_seconds:.1f} s"
    memory = "-" if worker.memory_bytes is None else format_size(worker.memory_bytes)
    return (
        f"  {worker.number}",
        f"{place} {worker.node[:_SHORT_ID]}".rstrip(),
        worker.state,
        str(len(worker.running)),
        str(worker.waiting),
        lease,
        memory,
        _list_runs(worker.running),
    )


def _list_runs(runs: Sequence[str]) -> str:
    shown = " ".join(runs[:_SHOWN_RUNS])
    hidden = len(runs) - _SHOWN_RUNS
    return f"{shown} +{hidden}" if hidden > 0 else shown or "-"
