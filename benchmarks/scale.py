"""Figures of many runs at once: live streams, thousands of children, TLS, worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from mudroom._core.counts import count_noun

from .processes import Bench, Figures
from .rows import Row

_FEW_PIECES = 50
_MANY_PIECES = 250
"""At 50 pieces a second: an answer of one second, and one of five."""
_MAX_RUNS = 3
"""Runs of figures that take many seconds each."""


def measure_streams(bench: Bench, times: int) -> Iterator[Row]:
    """Measure the CPU time of one piece of an answer while many answers stream."""
    for streams, share in ((1, 1.3), (100, 0.9), (1_000, 0.0)):
        costs: dict[str, list[float]] = {"mudroom": [], "floor": []}
        for _ in range(min(times, _MAX_RUNS)):
            for which, values in costs.items():
                short = bench.run(which, streams, 0, pieces=_FEW_PIECES)
                long = bench.run(which, streams, 0, pieces=_MANY_PIECES)
                pieces = streams * (_MANY_PIECES - _FEW_PIECES)
                values.append(1e6 * (long.cpu - short.cpu) / pieces)
        mudroom, floor = (median(values) for values in costs.values())
        name = f"CPU per piece, {count_noun(streams, 'stream')} of 50 pieces/s"
        # 1,000 streams take one core at 20 us.
        yield Row(name, "us", mudroom, share * floor or 20.0, None, floor)


def measure_short_answer(bench: Bench, times: int) -> Iterator[Row]:
    """Measure the wall time of one answer of half a second, which must not end late."""
    mudroom, floor = (
        median(bench.run(which, 1, 0, pieces=25).wall for _ in range(times))
        for which in ("mudroom", "floor")
    )
    yield Row("answer of 25 pieces in 0.52 s, wall", "s", mudroom, floor + 0.05, None, floor)


def measure_thousands(bench: Bench, _: int) -> Iterator[Row]:
    """Measure thousands of children that wait for their models at the same time; one run each."""
    alone = bench.run("mudroom", 1, 3, 1_000, module="benchmarks.crowd_subject")
    for children, limit in ((2_000, 1.3), (5_000, 1.6)):
        mudroom, floor = (
            bench.run(which, children, 3, 1_000, module="benchmarks.crowd_subject")
            for which in ("mudroom", "floor")
        )
        yield from _list_rows(children, limit, mudroom, floor, alone)


def _list_rows(
    children: int, limit: float, mudroom: Figures, floor: Figures, alone: Figures
) -> Iterator[Row]:
    ideal = 6.0
    name = f"wall / ideal, {children:,} children × 3 turns, answers after 1 s"
    yield Row(name, "×", mudroom.wall / ideal, limit, None, floor.wall / ideal)
    yield Row(
        f"lag of the event loop, p99, {children:,} children",
        "ms",
        1e3 * mudroom.lag,
        100,
        None,
        1e3 * floor.lag,
    )
    size = (mudroom.peak - alone.peak) / children
    yield Row(f"memory per child, {children:,} children", "KiB", size, 40, 30)
    yield Row(
        f"most requests in flight, {children:,} children",
        "",
        mudroom.most,
        1_800,
        least=True,
    )


def measure_tls(bench: Bench, times: int) -> Iterator[Row]:
    """Measure a request over TLS, relative to a plain one, on connections that are used again."""
    ratios: dict[str, list[float]] = {"mudroom": [], "floor": []}
    for _ in range(times):
        for which, values in ratios.items():
            plain, encrypted = (
                bench.run(which, 20, 22, is_encrypted=is_encrypted).cpu
                - bench.run(which, 20, 2, is_encrypted=is_encrypted).cpu
                for is_encrypted in (False, True)
            )
            values.append(encrypted / plain)
    mudroom, floor = (median(values) for values in ratios.values())
    yield Row("CPU per extra request over TLS / plain", "×", mudroom, 1.2, 1.1, floor)
    children = 300
    sizes = [
        (
            bench.run(which, children, 3, 1_000, is_encrypted=True).peak
            - bench.run(which, 1, 3, 1_000, is_encrypted=True).peak
        )
        / children
        for which in ratios
    ]
    name = f"memory per child over TLS, {children} children"
    yield Row(name, "KiB", sizes[0], 100, 60, sizes[1])


def measure_workers(bench: Bench, times: int) -> Iterator[Row]:
    """Measure children that need much CPU time, in two worker processes and in one process."""
    with TemporaryDirectory(prefix="mudroom-bench-") as folder:
        _write_tree(Path(folder))
        walls = [
            median(
                bench.run(which, 500, 2, tool="glob", folder=folder).wall
                for _ in range(min(times, _MAX_RUNS))
            )
            for which in ("mudroom", "processes")
        ]
    name = "speed-up by 2 worker processes, 500 children × 2 searches"
    # Two processes need two free cores.
    must = 1.7 if (os.cpu_count() or 1) > 1 else 0.0
    yield Row(name, "×", walls[0] / walls[1], must, 1.9, least=True)


def _write_tree(folder: Path) -> None:
    """Write the 800 files that the children search by name."""
    for number in range(800):
        path = folder / f"part-{number % 20}" / f"file-{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.touch()
