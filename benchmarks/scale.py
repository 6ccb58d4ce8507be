"""Figures of many runs at once: live streams, thousands of children, TLS, worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from mudroom._core.listings import count_noun

from .processes import SHORT_RUNS, Bench, Figures
from .rounds import compare, measure_in_turn
from .rows import Row

_FEW_PIECES = 50
_MANY_PIECES = 250
"""At 50 pieces a second: an answer of one second, and one of five."""
_MAX_RUNS = 3
"""Runs of figures that take many seconds each."""


def measure_streams(bench: Bench, times: int) -> Iterator[Row]:
    """Measure the CPU time of one piece of an answer while many answers stream.

    1,000 streams take one core at 20 us. On a machine where the loop itself needs more, the limit
    is relative to the loop.
    """
    for streams, share, least in ((1, 1.3, 0.0), (100, 0.9, 0.0), (1_000, 1.15, 20.0)):
        measure = partial(_measure_piece, bench, streams)
        costs = measure_in_turn(("mudroom", "floor"), min(times, _MAX_RUNS), measure)
        mudroom, floor = compare(*costs)
        name = f"CPU per piece, {count_noun(streams, 'stream')} of 50 pieces/s"
        yield Row(name, "us", mudroom, max(least, share * floor), least or None, floor)


def _measure_piece(bench: Bench, streams: int, which: str) -> float:
    """Return the CPU microseconds of one piece."""
    short = bench.run(which, streams, 0, pieces=_FEW_PIECES)
    long = bench.run(which, streams, 0, pieces=_MANY_PIECES)
    return 1e6 * (long.cpu - short.cpu) / (streams * (_MANY_PIECES - _FEW_PIECES))


def measure_short_answer(bench: Bench, times: int) -> Iterator[Row]:
    """Measure the wall time of one answer of half a second, which must not end late."""
    walls = measure_in_turn(
        ("mudroom", "floor"), times, lambda which: bench.run(which, 1, 0, pieces=25).wall
    )
    mudroom, floor = compare(*walls)
    yield Row("answer of 25 pieces in 0.52 s, wall", "s", mudroom, floor + 0.05, None, floor)


def measure_thousands(bench: Bench, times: int) -> Iterator[Row]:
    """Measure thousands of children that wait for their models at the same time.

    The goals are 1.3 and 1.6 times the ideal time. A slow machine needs all of its time for the
    requests. There the limit is the loop's time plus its CPU time: a request may take twice the CPU
    time of the loop (figure `request`).
    """
    module = "benchmarks.crowd_subject"
    alone = bench.run("mudroom", 1, 3, 1_000, module=module)
    for children, goal in ((2_000, 1.3), (5_000, 1.6)):
        mudroom, floor = measure_in_turn(
            ("mudroom", "floor"),
            min(times, _MAX_RUNS),
            partial(bench.run, children=children, turns=3, delay=1_000, module=module),
        )
        yield from _list_rows(children, goal, mudroom, floor, alone)


def _list_rows(
    children: int, goal: float, mudroom: list[Figures], floor: list[Figures], alone: Figures
) -> Iterator[Row]:
    ideal = 6.0
    name = f"wall / ideal, {children:,} children × 3 turns, answers after 1 s"
    walls = [run.wall / ideal for run in mudroom]
    wall, loop = compare(walls, [run.wall / ideal for run in floor])
    wall, limit = compare(walls, [(run.wall + run.cpu) / ideal for run in floor])
    yield Row(name, "×", wall, max(goal, limit), goal, loop)
    yield Row(
        f"lag of the event loop, p99, {children:,} children",
        "ms",
        1e3 * median(run.lag for run in mudroom),
        100,
        None,
        1e3 * median(run.lag for run in floor),
    )
    size = (median(run.peak for run in mudroom) - alone.peak) / children
    yield Row(f"memory per child, {children:,} children", "KiB", size, 40, 30)
    yield Row(
        f"most requests in flight, {children:,} children",
        "",
        median(run.most for run in mudroom),
        1_800,
        least=True,
    )


def measure_tls(bench: Bench, times: int) -> Iterator[Row]:
    """Measure a request over TLS, relative to a plain one, on connections that are used again."""

    def measure(which: str) -> float:
        plain, encrypted = (
            bench.run(which, 20, 62, is_encrypted=is_encrypted).cpu
            - bench.run(which, 20, 2, is_encrypted=is_encrypted).cpu
            for is_encrypted in (False, True)
        )
        return encrypted / plain

    subjects = ("mudroom", "floor")
    mudroom, floor = map(median, measure_in_turn(subjects, SHORT_RUNS * times, measure))
    yield Row("CPU per extra request over TLS / plain", "×", mudroom, 1.2, 1.1, floor)
    children = 300
    sizes = [
        (
            bench.run(which, children, 3, 1_000, is_encrypted=True).peak
            - bench.run(which, 1, 3, 1_000, is_encrypted=True).peak
        )
        / children
        for which in subjects
    ]
    name = f"memory per child over TLS, {children} children"
    yield Row(name, "KiB", sizes[0], 100, 60, sizes[1])


def measure_workers(bench: Bench, times: int) -> Iterator[Row]:
    """Measure children that need much CPU time, in two worker processes and in one process."""
    with TemporaryDirectory(prefix="mudroom-bench-") as folder:
        _write_tree(Path(folder))
        one, two = compare(
            *measure_in_turn(
                ("mudroom", "processes"),
                min(times, _MAX_RUNS),
                lambda which: bench.run(which, 500, 2, tool="glob", folder=folder).wall,
            )
        )
    name = "speed-up by 2 worker processes, 500 children × 2 searches"
    # Two processes need two free cores.
    must = 1.7 if (os.cpu_count() or 1) > 1 else 0.0
    yield Row(name, "×", one / two, must, 1.9, least=True)


def _write_tree(folder: Path) -> None:
    """Write the 800 files that the children search by name."""
    for number in range(800):
        path = folder / f"part-{number % 20}" / f"file-{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.touch()
