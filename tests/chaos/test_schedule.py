"""The schedule of the faults of a chaos test."""

from __future__ import annotations

from .faults import make_schedule


def test_a_seed_repeats_its_schedule() -> None:
    assert make_schedule(7, 1_000, 3) == make_schedule(7, 1_000, 3)
    assert make_schedule(7, 1_000, 3) != make_schedule(8, 1_000, 3)
