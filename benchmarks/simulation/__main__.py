"""The command: `python -m benchmarks.simulation measure|validate|report`."""

from __future__ import annotations

import gc
import sys
import time
from statistics import median

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..processes import Bench
from .measure import (
    compute_costs,
    measure_costs,
    read_costs,
    run_session,
    run_sessions,
    write_costs,
)
from .session import Costs, Outcome, Workload, simulate

_ALLOWED = 0.15
"""Largest allowed difference between a simulated session and the real one."""
_VALIDATED = (100, 1_000, 10_000)
_TURNS = 3
_ANSWER = 1.0
_ROUNDS = 3


def _measure() -> int:
    with Bench() as bench:
        costs = measure_costs(bench)
    write_costs(costs)
    for name, value in asdict(costs).items():
        print(f"{name:<18} {value:.3g}")
    return 0


class _Comparison(Struct, frozen=True):
    """A simulated session and the real one.

    Arguments:
        shares: of the time in which the session's process worked.
    """

    walls: tuple[float, float]
    shares: tuple[float, float]

    def differences(self) -> tuple[float, float]:
        """Return how much more the simulated wall time and share are, as parts of the real ones."""
        (real_wall, wall), (real_share, share) = self.walls, self.shares
        return wall / real_wall - 1, share / real_share - 1


def _validate(costs: Costs) -> int:
    """Compare simulated sessions with real ones. Return 1 if one differs too much.

    The speed of a machine changes. So each round measures the costs just before the real sessions,
    and the medians of the differences in all rounds count.
    """
    compared: dict[int, list[_Comparison]] = {children: [] for children in _VALIDATED}
    print("children   wall: real  simulated       session's process works: real  simulated")
    with Bench() as bench:
        for _ in range(_ROUNDS):
            loop = compute_costs(run_sessions(bench))
            now = replace(costs, session=loop.session, child=loop.child, request=loop.request)
            for children in _VALIDATED:
                comparison = _compare(bench, children, now)
                compared[children].append(comparison)
                (real_wall, wall), (real_share, share) = comparison.walls, comparison.shares
                by_wall, by_share = comparison.differences()
                print(
                    f"{children:>8,} {real_wall:>10.2f} s {wall:>8.2f} s ({by_wall:+.0%})"
                    f" {real_share:>29.0%} {share:>9.0%} ({by_share:+.0%})",
                    flush=True,
                )
    differs = False
    for children, comparisons in compared.items():
        pairs = zip(*(each.differences() for each in comparisons), strict=True)
        by_wall, by_share = map(median, pairs)
        print(f"{children:>8,} medians: wall {by_wall:+.0%}, share {by_share:+.0%}")
        differs |= max(abs(by_wall), abs(by_share)) > _ALLOWED
    return int(differs)


def _compare(bench: Bench, children: int, costs: Costs) -> _Comparison:
    """Run a session and simulate it on a machine that is as busy with other programs."""
    real = run_session(bench, children, _TURNS, round(1_000 * _ANSWER))
    load = Workload(children=children, turns=_TURNS, at_once=children, answer=_ANSWER)
    outcome = simulate(load, costs.scale(real.main / (real.main - real.waiting)))
    return _Comparison((real.wall, outcome.wall), (real.main / real.wall, outcome.home))


def _report(costs: Costs) -> int:
    """Print what is busy first, up to a million children."""
    small = Workload(children=1_000, turns=_TURNS, at_once=1_000, answer=5.0, spread=0.5)
    loads = {
        "one process": small,
        "1 worker process per 1,000 children at once": replace(
            small, children=10_000, at_once=10_000, workers=10
        ),
        "20 worker processes": replace(small, children=100_000, at_once=20_000, workers=20),
        "20 worker processes, a million": replace(
            small, children=1_000_000, at_once=20_000, workers=20
        ),
        "4,000 requests a minute": replace(small, children=10_000, rate=4_000 / 60),
    }
    for name, load in loads.items():
        start = time.perf_counter()
        outcome = simulate(load, costs)
        _print_outcome(name, load, outcome, time.perf_counter() - start)
    return 0


def _print_outcome(name: str, load: Workload, outcome: Outcome, seconds: float) -> None:
    print(
        f"{name}: {load.children:,} children, {outcome.most:,} at once: {outcome.wall:,.0f} s; "
        f"busy: session's process {outcome.home:.0%}, worker {outcome.worker:.0%}, "
        f"journal {outcome.journal:.0%}, provider {outcome.provider:.0%}; "
        f"first at its limit: {outcome.busiest} (simulated in {seconds:.0f} s)",
        flush=True,
    )


def main() -> int:
    """Run the command and return its exit code."""
    # The simulation makes many small objects and no cycles.
    gc.disable()
    match sys.argv[1:]:
        case ["measure"]:
            return _measure()
        case ["validate"]:
            return _validate(read_costs())
        case ["report"]:
            return _report(read_costs())
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
