"""What the interactive program prints about a session when it ends."""

from __future__ import annotations

from tests.viewer.sessions import SessionBuilder

from mudroom._cli.interactive.recap import Recap
from mudroom._cli.interactive.session_loop import list_amounts
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
    tokens, costs, seconds = list_amounts(tree.roots)
    assert tokens.endswith("k tokens") and costs == "cost not known" and seconds == "2.0s"
    builder.finish_run("1", builder.at + 2, "Because.", Reason.GOAL, usd=0.25)
    tree.apply(builder.events[-1])
    assert list_amounts(tree.roots) == [tokens, "$0.25", seconds]
    builder.start_run("2", "And then?", builder.at, continues="1")
    builder.add_turn("2", 1, builder.at, 2.0, (TextBlock("Then"),), 10_000)
    tree = RunTree.from_events(builder.events)
    assert list_amounts(tree.roots)[1] == "at least $0.25"


def test_a_recap_has_the_prompts_without_attached_files_and_their_answers() -> None:
    builder = SessionBuilder()
    builder.open_session()
    prompt = 'Look at @a.py\n\n<file path="a.py">\nx = 1\n</file>'
    for run, continues in (("1", ""), ("2", "1")):
        builder.start_run(run, prompt, builder.at, continues=continues)
        builder.add_turn(run, 1, builder.at, 2.0, (TextBlock("It is short."),), 10_000)
        builder.finish_run(run, builder.at + 2, "It is short.", Reason.GOAL, usd=0.25)
    written: list[str] = []
    scrollback = Scrollback(write=written.append, columns=lambda: 80, color=False, glyphs=UNICODE)
    tree = RunTree()
    recap = Recap(tree)
    for event in builder.events:
        tree.apply(event)
        recap.apply(event)
    recap.print(scrollback, builder.session)
    lines = [line.rstrip() for line in "".join(written).splitlines() if line.strip()]
    assert lines == ["> Look at @a.py", "It is short."] * 2
