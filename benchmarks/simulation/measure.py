"""Measurement of the costs that the simulation needs, on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom.testing.event_builders import tool_call, tool_call_events

from ..processes import Bench, Figures
from .session import Costs

COSTS = Path(__file__).with_name("costs.json")

_CHILDREN = 1_000
_TURNS = 4
_DELAY = 1_000
"""Milliseconds before each answer, so that all children live at the same time."""
_COMMITS = 100
_GROUP = 512
"""Events of a large commit."""
_ROUNDS = 3


Sessions = tuple[Figures, Figures, Figures]
"""Figures of three sessions: one child without turns, many without turns, and many with turns."""


class LoopCosts(Struct, frozen=True):
    """Seconds for which the event loop of the session's process works; see `Costs`."""

    session: float
    child: float
    request: float


def run_session(
    bench: Bench, children: int, turns: int, delay: int, *, has_workers: bool = False
) -> Figures:
    """Run a real session, with two worker processes or without."""
    which = "processes" if has_workers else "mudroom"
    return bench.run(which, children, turns, delay, module="benchmarks.simulation.subject")


def run_sessions(bench: Bench, *, has_workers: bool = False) -> Sessions:
    """Run the sessions from which costs are computed."""
    alone, short, long = (
        run_session(bench, children, turns, _DELAY, has_workers=has_workers)
        for children, turns in ((1, 0), (_CHILDREN, 0), (_CHILDREN, _TURNS))
    )
    return alone, short, long


def compute_costs(sessions: Sessions) -> LoopCosts:
    """Compute the costs of the event loop from sessions. A child without turns has one request."""
    alone, short, long = (each.main - each.waiting for each in sessions)
    request = (long - short) / _CHILDREN / _TURNS
    child = (short - alone) / (_CHILDREN - 1) - request
    return LoopCosts(session=alone - child - request, child=child, request=request)


def find_median(costs: Sequence[LoopCosts]) -> LoopCosts:
    """Return the median of each cost, 0 where it is smaller than the noise of its measurement."""
    columns = zip(*map(astuple, costs), strict=True)
    return LoopCosts(*(max(median(column), 0.0) for column in columns))


def measure_costs(bench: Bench) -> Costs:
    """Measure all costs; medians of three rounds."""
    local = find_median([compute_costs(run_sessions(bench)) for _ in range(_ROUNDS)])
    far = [run_sessions(bench, has_workers=True) for _ in range(_ROUNDS)]
    home = find_median([compute_costs(sessions) for sessions in far])
    commit, commit_event = asyncio.run(_measure_commits())
    return Costs(
        session=local.session,
        child=local.child,
        request=local.request,
        home_child=home.child,
        home_request=home.request,
        worker_request=median(
            (long.workers - short.workers) / _CHILDREN / _TURNS for _, short, long in far
        ),
        commit=commit,
        commit_event=commit_event,
    )


async def _measure_commits() -> tuple[float, float]:
    """Return the wall seconds of a commit of the journal, and of each event in it."""
    call = tool_call("c1", "read", path="notes-1.txt")
    (event, *_) = tool_call_events("1.1.1", call)
    with TemporaryDirectory(prefix="mudroom-bench-") as home:
        journal = await SqliteStore(home).create("commits")
        singles: list[float] = []
        groups: list[float] = []
        for _ in range(_COMMITS):
            start = time.perf_counter()
            await journal.append(event)
            singles.append(time.perf_counter() - start)
            start = time.perf_counter()
            await asyncio.gather(*(journal.append(event) for _ in range(_GROUP)))
            groups.append(time.perf_counter() - start)
        await journal.close()
    each = max(median(groups) - median(singles), 0.0) / (_GROUP - 1)
    return median(singles) - each, each


def write_costs(costs: Costs) -> None:
    """Write the costs to `costs.json`."""
    rounded = {name: float(f"{value:.3g}") for name, value in msgspec.structs.asdict(costs).items()}
    COSTS.write_bytes(msgspec.json.format(msgspec.json.encode(rounded), indent=2) + b"\n")


def read_costs() -> Costs:
    """Read the costs that `measure` has written."""
    return msgspec.json.decode(COSTS.read_bytes(), type=Costs)
