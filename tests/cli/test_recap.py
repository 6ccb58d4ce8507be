"""What the interactive program prints about a session when it ends."""

from __future__ import annotations

from tests.viewer.sessions import SessionBuilder

from mudroom._cli.interactive.recap import list_amounts, print_recap
from mudroom._cli.output.scrollback import Scrollback
from mudroom._cli.output.text import UNICODE
from mudroom._core.messages import TextBlock
from mudroom._core.runs import Reason
from mudroom._projections.run_tree import RunTree


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


def test_a_recap_leaves_out_attached_files_and_the_state_of_a_finished_answer() -> None:
    builder = SessionBuilder()
    builder.open_session()
    prompt = 'Look at @a.py\n\n<file path="a.py">\nx = 1\n</file>'
    for run, continues in (("1", ""), ("2", "1")):
        builder.start_run(run, prompt, builder.at, continues=continues)
        builder.add_turn(run, 1, builder.at, 2.0, (TextBlock("It is short."),), 10_000)
        builder.finish_run(run, builder.at + 2, "It is short.", Reason.GOAL, usd=0.25)
    written: list[str] = []
    scrollback = Scrollback(write=written.append, columns=lambda: 80, color=False, glyphs=UNICODE)
    print_recap(scrollback, RunTree.from_events(builder.events), builder.session)
    lines = [line.rstrip() for line in "".join(written).splitlines() if line.strip()]
    assert lines == ["> Look at @a.py", "  Done", "> Look at @a.py", "It is short."]
