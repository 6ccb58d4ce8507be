"""What the interactive program prints about a session when it ends."""

from __future__ import annotations

from tests.viewer.sessions import SessionBuilder

from mudroom._core.messages import TextBlock
from mudroom._core.runs import Reason
from mudroom.cli.interactive.recap import list_amounts
from mudroom.projections.run_tree import RunTree


def test_the_costs_of_a_run_without_an_end_are_not_claimed() -> None:
    builder = SessionBuilder()
    builder.open_session()
    builder.start_run("1", "Why?", builder.at)
    builder.add_turn("1", 1, builder.at, 2.0, (TextBlock("Because."),), 10_000)
    tree = RunTree()
    for event in builder.events:
        tree.apply(event)
    tokens, seconds = list_amounts(tree.roots, 0.0)
    assert tokens.endswith("k tokens") and seconds == "2.0s"
    builder.finish_run("1", builder.at + 2, "Because.", Reason.GOAL, usd=0.25)
    tree.apply(builder.events[-1])
    assert list_amounts(tree.roots, 0.25) == [tokens, "$0.25", seconds]
    assert list_amounts(tree.roots, None) == [tokens, seconds]
