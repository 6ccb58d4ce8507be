"""Durable appends to a session in PostgreSQL beside those to a session file.

    python -m benchmarks.appends postgresql://USER@HOST/DATABASE [ROUNDS]

64 tasks append events of 1,000 characters, one after the other each. Each round measures both
stores in this process. The sessions are deleted afterwards. The exit code is 1 when a goal of ADR
26 is missed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from statistics import median
from uuid import uuid4

from msgspec import Struct

from mudroom._adapters.journals.sessions import open_store
from mudroom.events import NoteInjected
from mudroom.ports import Journal, SessionStore

_APPENDERS = 64
_EVENTS = 100
"""Events of each appender in one round."""

_SINGLE = 50
"""Appends in one round that wait for each other."""

_LEAST_RATIO = 0.8
"""Goal of the events per second, relative to session files."""

_MOST_CPU = 15.0
"""Goal of the CPU time of this process, in microseconds per event."""


class Figures(Struct, frozen=True):
    """Cost of the appends of one round.

    Arguments:
        rate: events per second.
        cpu: microseconds of this process per event.
        wait: milliseconds of one append without others.
    """

    rate: float
    cpu: float
    wait: float


async def _append(journal: Journal, count: int) -> None:
    for n in range(count):
        await journal.append(NoteInjected(at=float(n), run="1.2", text="x" * 1_000))


async def _measure(store: SessionStore) -> Figures:
    session = str(uuid4())
    journal = await store.create(session)
    try:
        await _append(journal, 1)
        cpu = time.process_time()
        began = time.perf_counter()
        await asyncio.gather(*(_append(journal, _EVENTS) for _ in range(_APPENDERS)))
        seconds = time.perf_counter() - began
        cpu = time.process_time() - cpu
        began = time.perf_counter()
        await _append(journal, _SINGLE)
        wait = time.perf_counter() - began
    finally:
        await journal.close()
        await store.delete(session)
    events = _APPENDERS * _EVENTS
    return Figures(events / seconds, 1e6 * cpu / events, 1e3 * wait / _SINGLE)


async def _measure_rounds(url: str, rounds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="mudroom-bench-") as home:
        stores = {"files": open_store(home), "database": open_store(home, url)}
        figures: dict[str, list[Figures]] = {name: [] for name in stores}
        for number in range(rounds + 1):
            for name, store in sorted(stores.items(), reverse=bool(number % 2)):
                measured = await _measure(store)
                if number:  # the first round connects and imports
                    figures[name].append(measured)
    for name, each in figures.items():
        print(
            f"{name:<10} {median(one.rate for one in each):>7,.0f} events/s"
            f" {median(one.cpu for one in each):>6.1f} us of CPU per event"
            f" {median(one.wait for one in each):>6.2f} ms for one append"
        )
    pairs = list(zip(figures["database"], figures["files"], strict=True))
    rate = median(database.rate / file.rate for database, file in pairs)
    cpu = median(database.cpu / file.cpu for database, file in pairs)
    print(f"database / files: {rate:.2f} events/s (goal {_LEAST_RATIO}), {cpu:.2f} CPU", end="")
    print(f"; goal of the CPU time {_MOST_CPU:.0f} us; load {os.getloadavg()[0]:.1f}")
    most = median(one.cpu for one in figures["database"])
    return int(rate < _LEAST_RATIO or most > _MOST_CPU)


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    return asyncio.run(_measure_rounds(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5))


if __name__ == "__main__":
    sys.exit(main())
