"""What the children took in, what came back, and the figures' words."""

from __future__ import annotations

from typing import Any

from mudroom._core.agents import Agent, Brief, Reason, Report
from mudroom._core.budgets import Budget
from mudroom._core.events import AnyEvent, RunFinished, RunStarted, ToolCallFinished, TurnFinished
from mudroom._core.messages import AssistantMessage, TextBlock, Usage
from mudroom._core.tools import ToolResult
from mudroom.projections.ledger import Ledger, LedgerBuilder, compute_ledger, describe_ledger


def began(run: str, parent: str = "") -> RunStarted:
    who = Agent(name="general")
    brief = Brief(
        run_id=run,
        agent=who,
        prompt="p",
        tools=(),
        model="m",
        budget=Budget(),
        parent=parent,
        depth=run.count("."),
    )
    return RunStarted(at=0, run=run, brief=brief)


def gave(run: str, name: str, text: str, *, refused: bool = False) -> ToolCallFinished:
    return ToolCallFinished(
        at=0, run=run, call_id="c", name=name, result=ToolResult(text), refused=refused
    )


def answered(run: str, read: int, wrote: int = 10) -> TurnFinished:
    return TurnFinished(
        at=0, run=run, message=AssistantMessage((TextBlock("t"),), usage=Usage(read, wrote))
    )


def session() -> list[AnyEvent]:
    return [
        began("1"),
        gave("1", "read", "the parent's own reading\n" * 50),
        answered("1", 1000),
        began("1.1.1", "1"),
        began("1.1.1.1.1", "1.1.1"),
        gave("1.1.1", "read", "line\n" * 700),
        gave("1.1.1.1.1", "bash", "一二三"),
        answered("1.1.1.1.1", 300),
        gave("1.1.1", "task", "a report between children"),
        answered("1.1.1", 2000),
        gave("1", "task", "no such agent", refused=True),
        gave("1", "task", "pytest\n"),
        answered("1", 1100),
        answered("1", 900),
    ]


def test_children_s_results_are_taken_and_only_what_reached_the_root_is_returned():
    got = compute_ledger(session())
    assert got.children == 2
    assert (got.taken_lines, got.taken_bytes, got.taken_tokens) == (701, 3509, 1003)
    assert (got.returned_lines, got.returned_bytes, got.returned_tokens) == (1, 7, 2)
    assert got.child_tokens == 2320


def test_without_children_is_the_largest_prompt_less_what_came_back_plus_what_was_taken():
    got = compute_ledger(session())
    assert got.parent_tokens == 1100
    assert got.without_children_tokens == 1100 - 2 + 1003


def test_the_tally_is_right_at_any_moment():
    tally = LedgerBuilder()
    for n, event in enumerate(session(), 1):
        tally.apply(event)
        assert tally.ledger == compute_ledger(session()[:n])


def test_reports_to_a_program_came_back_too():
    brief = Brief(
        run_id="1",
        agent=Agent(name="explore"),
        prompt="p",
        tools=(),
        model="m",
        budget=Budget(),
        depth=1,
    )
    report = Report(text="two\nlines", reason=Reason.GOAL, run_id="1", outputs=dict[str, Any]())
    events = [
        RunStarted(at=0, run="1", brief=brief),
        gave("1", "read", "x\n" * 9),
        answered("1", 40),
    ]
    got = compute_ledger([*events, RunFinished(at=1, run="1", report=report)])
    assert (
        got.children,
        got.taken_lines,
        got.returned_lines,
        got.parent_tokens,
        got.child_tokens,
    ) == (1, 9, 2, 0, 50)


def test_a_session_without_events_is_an_empty_ledger():
    assert compute_ledger([]) == Ledger()


def test_the_sentence_says_it_in_plain_words():
    got = Ledger(
        children=5,
        taken_lines=7412,
        taken_bytes=268_000,
        taken_tokens=76_571,
        returned_lines=41,
        returned_bytes=2100,
        returned_tokens=600,
        parent_tokens=3100,
        without_children_tokens=79_071,
    )
    assert describe_ledger(got) == (
        "5 children read 7,412 lines (268 kB, ~76,600 tokens); 41 lines (2.1 kB, ~600 tokens) came back. "
        "Parent context: 3,100 tokens; without children about 79,100."
    )


def test_the_sentence_is_right_for_one_for_none_and_where_no_tokens_were_told():
    one = Ledger(children=1, taken_lines=1, taken_bytes=900, taken_tokens=257, returned_lines=0)
    assert (
        describe_ledger(one)
        == "1 child read 1 line (900 B, ~257 tokens); 0 lines (0 B, ~0 tokens) came back."
    )
    assert (
        describe_ledger(Ledger(parent_tokens=1234))
        == "No children ran. Parent context: 1,234 tokens."
    )
    assert "4,321 lines (12.3" not in describe_ledger(
        Ledger(children=2, taken_lines=4321, taken_bytes=12_345_678)
    )
    assert "4,321 lines (12 MB" in describe_ledger(
        Ledger(children=2, taken_lines=4321, taken_bytes=12_345_678)
    )
