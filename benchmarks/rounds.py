"""Comparison of mudroom with the loop without a harness, measured in rounds.

The speed of a virtual machine may double within seconds. One round measures each subject once, so
their ratio within a round hardly depends on that speed. The median of these ratios varies half as
much as the ratio of two medians.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def measure_in_turn(subjects: Sequence[S], times: int, measure: Callable[[S], T]) -> list[list[T]]:
    """Return the figures of each subject, one per round.

    Every second round has the opposite order, so that a machine that gets slower favours none.
    """
    figures: list[list[T]] = [[] for _ in subjects]
    for number in range(times):
        places = range(len(subjects))
        for place in reversed(places) if number % 2 else places:
            figures[place].append(measure(subjects[place]))
    return figures


def compare(figures: Sequence[float], floors: Sequence[float]) -> tuple[float, float]:
    """Return the median figure, and the floor at the speed of the machine in that round.

    Arguments:
        figures, floors: what was measured with mudroom and without a harness, one per round.

    Example: `compare([2.0, 4.2, 6.0], [1.0, 2.0, 3.0]) == (4.2, 2.1)`, since the median of the
    ratios is 2.
    """
    figure = median(figures)
    ratio = median(one / floor for one, floor in zip(figures, floors, strict=True))
    return figure, figure / ratio
