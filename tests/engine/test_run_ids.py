"""Ids of runs: each part is found again."""

from __future__ import annotations

import pytest

from mudroom._core.runs import (
    count_above,
    find_first_id,
    find_parent_id,
    find_root_id,
    is_child_id,
    is_next_run,
    is_run_above,
    join_run_id,
    list_above,
    make_first_id,
    make_next_id,
    make_sort_key,
    split_run_id,
)


@pytest.mark.parametrize(
    ("run_id", "parts"),
    [
        ("1.3.2", ("1", 3, "2")),
        ("1.3.2~2", ("1", 3, "2~2")),
        ("2.0.alice~1", ("2", 0, "alice~1")),
        ("1.3.2~2.4.c1", ("1.3.2~2", 4, "c1")),
    ],
)
def test_an_id_has_parent_turn_and_position(run_id: str, parts: tuple[str, int, str]) -> None:
    assert split_run_id(run_id) == parts
    assert join_run_id(*parts) == run_id
    assert find_parent_id(run_id) == parts[0]
    assert find_root_id(run_id) == parts[0][0]
    assert list(list_above(run_id))[-1] == find_root_id(run_id)
    assert len(list(list_above(run_id))) == count_above(run_id)
    assert is_child_id(run_id)


def test_a_root_run_has_no_parent() -> None:
    assert (find_parent_id("12"), find_root_id("12"), count_above("12")) == ("", "12", 0)
    assert not is_child_id("12")
    with pytest.raises(ValueError, match="unpack"):
        split_run_id("12")


def test_only_whole_parts_make_a_run_one_above() -> None:
    assert is_run_above("1.3.2", "1.3.2.1.1")
    assert not is_run_above("1.3.2", "1.3.21")
    assert not is_run_above("1.3.2", "1.3.2")


def test_next_runs_have_the_id_of_the_first_one() -> None:
    assert make_next_id("1.3.2", 2) == "1.3.2~2"
    assert make_next_id(make_first_id("2", "alice"), 1) == "2.0.alice~1"
    assert find_first_id("1.3.2~2") == "1.3.2"
    assert is_next_run("1.3.2~2")


def test_a_child_of_a_next_run_is_a_first_run() -> None:
    assert find_first_id("1.3.2~2.1.1") == "1.3.2~2.1.1"
    assert find_first_id("1.3.2~2.1.1~3") == "1.3.2~2.1.1"
    assert not is_next_run("1.3.2~2.1.1")


def test_ids_are_sorted_by_turns_and_calls() -> None:
    ids = ["1.1.10", "1.10.1", "1.1.2~2", "1.1.2", "1.0.bob~1", "1.0.alice~1"]
    expected = ["1.0.alice~1", "1.0.bob~1", "1.1.2", "1.1.2~2", "1.1.10", "1.10.1"]
    assert sorted(ids, key=make_sort_key) == expected
