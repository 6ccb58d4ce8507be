"""The lease of a session's writer, which shows other processes who writes it.

A lease only tells whether a writer is alive. The events' primary key keeps two writers from mixing
their records.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from .connections import Database, make_work
from .driver import make_lost_session_error

# How long a lease lasts unless it is renewed.
LEASE_SECONDS = 15.0

# A third of that, so that a lease survives two missed renewals.
RENEWAL_SECONDS = 5.0

_TAKE = f"""
UPDATE mudroom.sessions
SET lease_token = $2, lease_writer = $3, lease_process = $4,
    lease_until = clock_timestamp() + interval '{LEASE_SECONDS} seconds'
WHERE id = $1 AND (
    lease_token IS NULL OR lease_token = $2 OR lease_until < clock_timestamp()
    OR lease_process = $5)
RETURNING id
"""

_READ = (
    "SELECT lease_writer, lease_process FROM mudroom.sessions "
    "WHERE id = $1 AND lease_token IS NOT NULL AND lease_until > clock_timestamp()"
)

_RENEW = f"""
UPDATE mudroom.sessions SET lease_until = clock_timestamp() + interval '{LEASE_SECONDS} seconds'
WHERE id = $1 AND lease_token = $2 RETURNING id
"""

_REMOVE_EMPTY = """
DELETE FROM mudroom.sessions s
WHERE id = $1 AND lease_token = $2
    AND NOT EXISTS (SELECT FROM mudroom.events e WHERE e.session = s.id)
"""

_RELEASE = """
UPDATE mudroom.sessions SET lease_token = NULL, lease_until = NULL
WHERE id = $1 AND lease_token = $2
"""


class Lease:
    """The lease of one writer, which must be taken before use."""

    def __init__(self, database: Database, session: UUID) -> None:
        self.session = session
        self.token = uuid4()
        self._database = database
        self._until = 0.0

    async def take(self) -> bool:
        """Take the lease unless a living process holds it. Return whether it was taken."""
        # Before the statement: the lease must never seem longer here than it is in the database.
        began = _read_clock()
        holder = await read_holder(self._database, self.session)
        dead = holder["lease_process"] if holder and is_gone(holder["lease_process"]) else "-"
        rows = await self._database.run(
            make_work(_TAKE, self.session, self.token, *describe_process(), dead)
        )
        if rows:
            self._until = began + LEASE_SECONDS
        return bool(rows)

    def assume(self) -> None:
        """Use a lease that another statement has just taken."""
        self._until = _read_clock() + LEASE_SECONDS

    async def renew(self) -> None:
        """Renew the lease, in the background loop.

        Raises JournalBusy if another process has the session, and errors of the database.
        """
        began = _read_clock()
        rows = await self._database.work_once(
            make_work(_RENEW, self.session, self.token), seconds=RENEWAL_SECONDS
        )
        if not rows:
            raise make_lost_session_error(str(self.session))
        self._until = began + LEASE_SECONDS

    async def require(self) -> None:
        """Renew the lease if it has expired; errors as for `renew`."""
        if _read_clock() >= self._until:
            await self.renew()

    async def release(self) -> None:
        """Give the lease back, and remove a session without events."""
        for statement in (_REMOVE_EMPTY, _RELEASE):
            await self._database.run(make_work(statement, self.session, self.token))


async def read_holder(database: Database, session: UUID) -> Mapping[str, Any] | None:
    rows = await database.run(make_work(_READ, session))
    return rows[0] if rows else None


async def find_writer(database: Database, session: UUID) -> str:
    """Describe the process writing a session; "" if there is none."""
    holder = await read_holder(database, session)
    if holder is None or is_gone(holder["lease_process"]):
        return ""
    return holder["lease_writer"]


def describe_process() -> tuple[str, str]:
    """Describe this process for users, and identify it by a unique text."""
    pid = os.getpid()
    started = _read_start(pid)
    host = socket.gethostname()
    return f"process {pid} on {host}", f"{_identify_machine()} {pid} {started}"


def is_gone(process: str) -> bool:
    """Return whether a process was on this machine and has ended."""
    machine, _, rest = process.partition(" ")
    pid, _, started = rest.partition(" ")
    if machine != _identify_machine() or not pid.isdecimal() or started in ("", "0"):
        return False
    return str(_read_start(int(pid))) != started


def _read_start(pid: int) -> int:
    """Read a process's start, in clock ticks since the machine started; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            line = file.read(1024)
    except OSError:
        return 0
    # The program's name is in brackets and may itself contain blanks and brackets.
    fields = line[line.rindex(b")") + 2 :].split()
    is_dead = fields[0] in (b"Z", b"X")
    return 0 if is_dead else int(fields[19])


@cache
def _identify_machine() -> str:
    """Identify the process table this process sees, uniquely if that is impossible."""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}:{namespace}:{socket.gethostname()}".replace(" ", "_")
    # Matches no process, so that none is taken for dead by mistake.
    return f"unknown-{uuid4()}"


def _read_clock() -> float:
    """Read a clock, in seconds, that keeps counting while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
