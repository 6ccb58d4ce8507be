"""Speed of mudroom beside a loop without a harness, measured in the same run; medians.

`python -m benchmarks -h` lists the figures. Children make TURNS calls of `read` (2,000 bytes) and
end; the parent makes one answer with all `task` calls, and one to end. So CHILDREN × TURNS takes
CHILDREN × (TURNS + 1) + 2 requests, and with answers after 200 ms at least (TURNS + 3) × 0.2
seconds. The exit code is 1 when a figure exceeds its limit.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import msgspec
from msgspec import Struct

from .history import Entry, append_entry, make_entry, read_last_entry
from .job_price import measure_prices
from .many_children import measure_reserving, measure_resuming
from .pages import PERFORMANCE, find_commit, format_performance, write_figures
from .processes import SHORT_RUNS, Bench
from .rounds import compare, measure_in_turn
from .rows import Row
from .scale import (
    measure_short_answer,
    measure_streams,
    measure_thousands,
    measure_tls,
    measure_workers,
)
from .sessions import measure_sessions
from .terminal import measure_prompt
from .worker_costs import measure_worker_costs

_MARK = ',"cache_control":{"type":"ephemeral"}'


def compute_median(times: int, measure: Callable[[], float]) -> float:
    return median(measure() for _ in range(times))


def measure_each(
    bench: Bench,
    subjects: Sequence[str],
    times: int,
    children: int,
    turns: int,
    *,
    folder: str = "",
) -> list[list[float]]:
    """Return CPU milliseconds of one more request in a run of that shape, by subject and round.

    The cost of a run with 1 child × 1 turn is subtracted.
    """

    def measure(which: str) -> float:
        small = bench.run(which, 1, 1, folder=folder)
        large = bench.run(which, children, turns, folder=folder)
        return 1000 * (large.cpu - small.cpu) / (large.requests - small.requests)

    return measure_in_turn(subjects, times, measure)


def request(bench: Bench, times: int) -> Iterator[Row]:
    subjects = ("mudroom", "memory", "floor")
    *measured, floors = measure_each(bench, subjects, 3 * SHORT_RUNS * times, 20, 10)
    durable, floor = compare(measured[0], floors)
    name = "CPU per extra request, 20 children × 10 turns"
    yield Row(name, "ms", durable, 2.0 * floor, 1.5 * floor, floor)
    memory, floor = compare(measured[1], floors)
    yield Row("the same, journal in memory", "ms", memory, 1.7 * floor, 1.3 * floor, floor)


def measure_history(bench: Bench, times: int) -> Iterator[Row]:
    folder = bench.make_folder(10_000)
    costs = measure_each(bench, ("mudroom", "floor"), times, 2, 200, folder=folder)
    mudroom, floor = compare(*costs)
    name = "CPU per extra request, 2 children × 200 turns of 10 KB"
    yield Row(name, "ms", mudroom, 1.2 * floor, floor, floor)


def measure_growth(bench: Bench, times: int) -> Iterator[Row]:
    def measure(which: str) -> float:
        start = bench.run(which, 1, 1)
        short = bench.run(which, 5, 20)
        long = bench.run(which, 5, 80)
        costs = [(run.cpu - start.cpu) / (run.requests - start.requests) for run in (short, long)]
        return costs[1] / costs[0]

    growths = measure_in_turn(("mudroom", "floor"), SHORT_RUNS * times, measure)
    mudroom, floor = map(median, growths)
    must = max(1.15, floor)
    yield Row("the same at 80 turns / at 20 turns, 5 children", "×", mudroom, must, 1.0, floor)


def measure_crowd(bench: Bench, times: int) -> Iterator[Row]:
    ideal = 6 * 0.2
    children = 500
    sizes: list[float] = []
    subjects = ("mudroom", "floor")
    crowds = measure_in_turn(
        subjects, SHORT_RUNS * times, lambda which: bench.run(which, children, 3, 200)
    )
    singles = measure_in_turn(subjects, times, lambda which: bench.run(which, 1, 3, 200))
    for crowd, single in zip(crowds, singles, strict=True):
        alone = median(run.peak for run in single)
        sizes.append((median(run.peak for run in crowd) - alone) / children)
    wall, loop = compare(*([run.wall / ideal for run in crowd] for crowd in crowds))
    name = "wall / ideal, 500 children × 3 turns, answers after 200 ms"
    yield Row(name, "×", wall, 1.15 * loop, 1.05 * loop, loop)
    yield Row("memory per child, 500 children", "KiB", sizes[0], 40, 30, sizes[1])


def start(bench: Bench, times: int) -> Iterator[Row]:
    python = compute_median(times, lambda: bench.measure_process([sys.executable, "-c", "pass"]))
    imported = compute_median(
        times, lambda: bench.measure_process([sys.executable, "-c", "import mudroom"])
    )
    starts = measure_in_turn(("mudroom", "floor"), SHORT_RUNS * times, bench.measure_first_request)
    first, floor = compare(*starts)
    yield Row(
        "start of `mudroom -p` to its first request", "s", first, 1.3 * floor, 1.1 * floor, floor
    )
    yield Row(
        "`mudroom --version`, CPU",
        "s",
        compute_median(times, lambda: bench.measure_command("--version")),
        0.12,
        None,
        python,
    )
    yield Row("`import mudroom`, CPU", "s", imported, 0.06, None, python)


class _Body(Struct):
    messages: msgspec.Raw
    tools: msgspec.Raw = msgspec.Raw(b"")
    system: msgspec.Raw = msgspec.Raw(b"")


def measure_requests(bench: Bench, _: int) -> Iterator[Row]:
    last: dict[str, str] = {}
    heads: set[tuple[bytes, bytes]] = set()
    exact = total = 0
    for name, body in bench.list_bodies(5, 10):
        plain = body.replace(_MARK, "")
        if name in last:
            total += 1
            exact += plain.startswith(last[name].removesuffix("]}"))
        last[name] = plain
        parts = msgspec.json.decode(body, type=_Body)
        if name != "parent":
            heads.add((bytes(parts.tools), bytes(parts.system)))
    yield Row(
        "tools + system of a child's request",
        "bytes",
        max(len(tools) + len(system) for tools, system in heads),
        2400,
        2000,
    )
    yield Row("kinds of tools + system among siblings and turns", "", len(heads), 1)
    yield Row(
        "share of requests that extend the one before, byte for byte",
        "",
        exact / total,
        1.0,
        least=True,
    )


FIGURES = {
    "request": request,
    "growth": measure_growth,
    "history": measure_history,
    "crowd": measure_crowd,
    "start": start,
    "prompt": measure_prompt,
    "requests": measure_requests,
    "tls": measure_tls,
    "sessions": measure_sessions,
    "answer": measure_short_answer,
    "streams": measure_streams,
    "thousands": measure_thousands,
    "workers": measure_workers,
    "worker-costs": measure_worker_costs,
    "reserving": measure_reserving,
    "resuming": measure_resuming,
    "price": measure_prices,
}


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _format(row: Row, last: Entry | None) -> str:
    verdict = "held" if row.held else "MISSED"
    sign = "≥" if row.least else "≤"
    figures = (
        _format_number(row.measured),
        f"{sign} {_format_number(row.must)}",
        _format_number(row.aim),
        _format_number(row.floor),
        _format_number(row.ratio),
        _format_number(last.get_ratio(row.name) if last else None),
    )
    return (
        f"{row.name:<60} {row.unit:>5} "
        + " ".join(f"{figure:>9}" for figure in figures)
        + f"  {verdict}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "figures", nargs="*", metavar="FIGURE", help=f"{', '.join(FIGURES)}; all by default"
    )
    parser.add_argument(
        "--history",
        action="store_true",
        help="append the figures to the history, and write them to docs/performance.md",
    )
    parser.add_argument("--runs", type=int, default=5, help="runs for each figure (default 5)")
    arguments = parser.parse_args()
    if unknown := set(arguments.figures) - set(FIGURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    commit = find_commit() if arguments.history else ""
    columns = ("measured", "must", "aim", "floor", "ratio", "last")
    head = " " * 66 + " ".join(f"{column:>9}" for column in columns)
    last = read_last_entry()
    load = os.getloadavg()[0]
    print(f"medians of {arguments.runs}; {os.cpu_count()} cores, load {load:.1f}")
    if last:
        print(f"ratio: measured / floor; last: the ratio on {last.date} at {last.commit}")
    print(head, flush=True)
    rows: list[Row] = []
    with Bench() as bench:
        for name in arguments.figures or FIGURES:
            for row in FIGURES[name](bench, arguments.runs):
                print(_format(row, last), flush=True)
                rows.append(row)
    if arguments.history:
        entry = make_entry(rows, load, commit)
        append_entry(entry)
        write_figures(PERFORMANCE, format_performance(entry))
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
