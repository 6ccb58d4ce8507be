"""Names of children in the prompt: each working child has a name of its own."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mudroom._cli.output.child_names import make_child_name
from mudroom._cli.output.text import UNICODE, measure_width
from mudroom._core.events import AnyEvent
from mudroom._projections.run_tree import RunTree
from mudroom.testing.event_builders import run_finished, run_started


def name_children(*titles: str, columns: int = 26, ended: Iterable[int] = ()) -> list[str]:
    """Return the names of children of one agent with these titles."""
    events: list[AnyEvent] = [run_started("1", agent="main", prompt="Look around")]
    for number, title in enumerate(titles, 1):
        started = run_started(
            f"1.1.{number}", "1", agent="general", description=title, call_id=f"c{number}"
        )
        events.append(started)
    events += [run_finished(f"1.1.{number}") for number in ended]
    tree = RunTree.from_events(events)
    ids = [run for run in tree.runs if run != "1"]
    return [make_child_name(tree, run, columns, UNICODE) for run in ids]


def test_children_of_one_agent_have_different_names() -> None:
    assert name_children("count lines", "count words") == [
        "general (count lines)",
        "general (count words)",
    ]


@pytest.mark.parametrize(
    "titles", [("count", "count"), ("Summarise 5 files in src/a", "Summarise 5 files in src/b")]
)
def test_children_whose_names_would_look_alike_have_their_ids(titles: tuple[str, str]) -> None:
    assert name_children(*titles) == ["general#1.1.1", "general#1.1.2"]


def test_an_ended_child_does_not_change_the_name_of_one_that_works() -> None:
    assert name_children("count", "count", ended=[1])[1] == "general (count)"


@pytest.mark.parametrize("title", ["统计每一个文件的行数和字数", "x" * 80, "evil\x1b[31m text"])
def test_names_fit_and_are_safe_to_print(title: str) -> None:
    (name,) = name_children(title)
    assert measure_width(name) <= 26 and "\x1b" not in name
    assert name.startswith("general (") and name.endswith(")")


def test_a_narrow_name_is_the_agent_with_its_id() -> None:
    assert name_children("count", columns=8) == ["general#1.1.1"]
