"""The node of a Ray cluster on which each worker process starts."""

from __future__ import annotations

from mudroom_fleet.ray_process import Node, Placement

HEAD = Node("head", "first", 0.0)
SMALL = Node("small", "second", 2.0)
LARGE = Node("large", "third", 4.0)


def test_each_node_gets_actors_in_proportion_to_its_processors() -> None:
    placement = Placement()
    chosen = [placement.choose(number, [HEAD, SMALL, LARGE]) for number in range(6)]
    assert sorted(chosen) == ["large"] * 4 + ["small"] * 2


def test_a_node_without_processors_is_used_if_there_is_no_other_one() -> None:
    assert Placement().choose(1, [HEAD]) == "head"


def test_the_place_of_an_ended_actor_is_free() -> None:
    placement = Placement()
    nodes = [SMALL, Node("other", "fourth", 2.0)]
    assert [placement.choose(number, nodes) for number in (1, 2)] == ["small", "other"]
    placement.remove(2)
    assert placement.choose(3, nodes) == "other"


def test_a_silent_node_is_avoided_for_a_minute() -> None:
    now = [100.0]
    placement = Placement(lambda: now[0])
    assert placement.choose(1, [SMALL, LARGE]) == "large"
    placement.note_silence(1)
    placement.remove(1)
    assert placement.choose(2, [SMALL, LARGE]) == "small"
    assert placement.choose(3, [LARGE]) == "large"
    placement.remove(3)
    now[0] += 61
    assert placement.choose(4, [SMALL, LARGE]) == "large"
