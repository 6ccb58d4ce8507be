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
from collections.abc import Callable, Iterator
from statistics import median

import msgspec
from msgspec import Struct

from .processes import Bench
from .rows import Row
from .scale import (
    measure_short_answer,
    measure_streams,
    measure_thousands,
    measure_tls,
    measure_workers,
)
from .sessions import measure_sessions

_MARK = ',"cache_control":{"type":"ephemeral"}'


def compute_median(times: int, measure: Callable[[], float]) -> float:
    return median(measure() for _ in range(times))


def measure_each(bench: Bench, which: str, times: int, children: int, turns: int) -> float:
    """Return CPU milliseconds of one more request in a run of that shape.

    The cost of a run with 1 child × 1 turn is subtracted.
    """
    small = [bench.run(which, 1, 1) for _ in range(times)]
    large = [bench.run(which, children, turns) for _ in range(times)]
    more = large[0].requests - small[0].requests
    return 1000 * (median(run.cpu for run in large) - median(run.cpu for run in small)) / more


def request(bench: Bench, times: int) -> Iterator[Row]:
    mudroom, floor = (measure_each(bench, which, times, 20, 10) for which in ("mudroom", "floor"))
    yield Row(
        "CPU per extra request, 20 children × 10 turns",
        "ms",
        mudroom,
        2.0 * floor,
        1.5 * floor,
        floor,
    )


def measure_growth(bench: Bench, times: int) -> Iterator[Row]:
    mudroom, floor = (
        measure_each(bench, which, times, 5, 80) / measure_each(bench, which, times, 5, 20)
        for which in ("mudroom", "floor")
    )
    must = max(1.15, floor)
    yield Row("the same at 80 turns / at 20 turns, 5 children", "×", mudroom, must, 1.0, floor)


def measure_crowd(bench: Bench, times: int) -> Iterator[Row]:
    ideal = 6 * 0.2
    children = 500
    walls: list[float] = []
    sizes: list[float] = []
    for which in ("mudroom", "floor"):
        runs = [bench.run(which, children, 3, delay=200) for _ in range(times)]
        alone = median(bench.run(which, 1, 3, delay=200).peak for _ in range(times))
        walls.append(median(run.wall for run in runs) / ideal)
        sizes.append((median(run.peak for run in runs) - alone) / children)
    yield Row(
        "wall / ideal, 500 children × 3 turns, answers after 200 ms",
        "×",
        walls[0],
        1.15 * walls[1],
        1.05 * walls[1],
        walls[1],
    )
    yield Row("memory per child, the same", "KiB", sizes[0], 40, 30, sizes[1])


def start(bench: Bench, times: int) -> Iterator[Row]:
    python = compute_median(times, lambda: bench.measure_process([sys.executable, "-c", "pass"]))
    imported = compute_median(
        times, lambda: bench.measure_process([sys.executable, "-c", "import mudroom"])
    )
    first, floor = (
        compute_median(times, lambda which=which: bench.measure_first_request(which))
        for which in ("mudroom", "floor")
    )
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
    "crowd": measure_crowd,
    "start": start,
    "requests": measure_requests,
    "tls": measure_tls,
    "sessions": measure_sessions,
    "answer": measure_short_answer,
    "streams": measure_streams,
    "thousands": measure_thousands,
    "workers": measure_workers,
}


def _format(row: Row) -> str:
    def format_number(value: float | None) -> str:
        return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    verdict = "held" if row.held else "MISSED"
    sign = "≥" if row.least else "≤"
    figures = (
        format_number(row.measured),
        f"{sign} {format_number(row.must)}",
        format_number(row.aim),
        format_number(row.floor),
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
    parser.add_argument("--runs", type=int, default=5, help="runs for each figure (default 5)")
    arguments = parser.parse_args()
    if unknown := set(arguments.figures) - set(FIGURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    head = f"{'':<60} {'':>5} {'measured':>9} {'must':>9} {'aim':>9} {'floor':>9}"
    load = os.getloadavg()[0]
    print(f"medians of {arguments.runs}; {os.cpu_count()} cores, load {load:.1f}")
    print(head, flush=True)
    held = True
    with Bench() as bench:
        for name in arguments.figures or FIGURES:
            for row in FIGURES[name](bench, arguments.runs):
                print(_format(row), flush=True)
                held &= row.held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
