"""Benchmarks compare mudroom with its floor in rounds."""

from __future__ import annotations

from benchmarks.rounds import compare, measure_in_turn


def test_each_subject_is_measured_once_a_round_and_the_order_alternates() -> None:
    order: list[str] = []

    def measure(subject: str) -> int:
        order.append(subject)
        return len(order)

    assert measure_in_turn(("mudroom", "floor"), 3, measure) == [[1, 4, 5], [2, 3, 6]]
    assert order == ["mudroom", "floor", "floor", "mudroom", "mudroom", "floor"]


def test_a_machine_that_changes_its_speed_between_rounds_does_not_change_the_ratio() -> None:
    speeds = (1.0, 2.0, 1.5, 0.7, 3.0)
    figure, floor = compare([1.8 * speed for speed in speeds], speeds)
    assert figure == 1.8 * 1.5
    assert round(figure / floor, 9) == 1.8


def test_one_disturbed_round_does_not_change_the_ratio() -> None:
    figure, floor = compare([1.5, 1.5, 9.0], [1.0, 1.0, 1.0])
    assert (figure, floor) == (1.5, 1.0)
