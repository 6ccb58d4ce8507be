"""The ledger: text that children read, text that came back, and its description."""

from __future__ import annotations

import pytest

from mudroom import AnyEvent, Ledger, ToolResult, Usage
from mudroom._projections.ledger import LedgerBuilder, PromptLedgers, describe_ledger
from mudroom.events import MessageDelivered, ToolCallFinished, ToolCallStarted
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_finished,
    tool_call_started,
    turn_finished,
)


def make_result_event(run: str, name: str, text: str, *, refused: bool = False) -> AnyEvent:
    return tool_call_finished(run, "c", text, name=name, refused=refused)


def make_task_events(run: str, text: str, *, refused: bool = False) -> list[AnyEvent]:
    started = tool_call_started(run, tool_call("c", "task"))
    return [started, make_result_event(run, "task", text, refused=refused)]


def answer(run: str, input_tokens: int) -> AnyEvent:
    return turn_finished(run, text="t", usage=Usage(input_tokens, 10))


def make_session() -> list[AnyEvent]:
    return [
        run_started("1"),
        make_result_event("1", "read", "the parent's own reading\n" * 50),
        answer("1", 1000),
        run_started("1.1.1", "1"),
        run_started("1.1.1.1.1", "1.1.1"),
        make_result_event("1.1.1", "read", "line\n" * 700),
        make_result_event("1.1.1.1.1", "bash", "一二三"),
        answer("1.1.1.1.1", 300),
        *make_task_events("1.1.1", "a report between children"),
        answer("1.1.1", 2000),
        *make_task_events("1", "no such agent", refused=True),
        *make_task_events("1", "pytest\n"),
        answer("1", 1100),
        answer("1", 900),
    ]


def test_results_of_children_are_taken_and_reports_to_the_root_are_returned() -> None:
    got = Ledger.from_events(make_session())
    assert got.children == 2
    assert (got.read_lines, got.read_bytes, got.read_tokens) == (701, 3509, 877)
    assert (got.returned_lines, got.returned_bytes, got.returned_tokens) == (1, 7, 2)
    assert got.child_tokens == 2320


def test_reports_and_messages_of_background_children_are_returned() -> None:
    def deliver(run: str, text: str, origin: str) -> AnyEvent:
        return MessageDelivered(at=3, run=run, turn=2, text=text, origin=origin, message_id="m")

    started = ToolResult("started\n", detail={"run": "1.1.1", "background": True})
    events: list[AnyEvent] = [
        run_started("1"),
        run_started("1.1.1", "1"),
        run_started("1.1.1.1.1", "1.1.1"),
        ToolCallStarted(at=2, run="1", call=tool_call("c", "task"), view="run"),
        ToolCallFinished(at=3, run="1", call_id="c", name="task", result=started),
        deliver("1", "<task-notification>\nreport\n</task-notification>\n", "1.1.1"),
        deliver("1.1.1", "a message between children", "1.1.1.1.1"),
        deliver("1", "faster, please", "user"),
        deliver("1", "the engine's own", "mudroom"),
    ]
    got = Ledger.from_events(events)
    assert got.returned_lines == 3
    assert got.returned_bytes == len("<task-notification>\nreport\n</task-notification>\n")


def test_a_child_with_several_runs_is_one_child() -> None:
    events = [run_started("1"), run_started("1.1.1", "1"), run_started("1.1.1~2", "1")]
    assert Ledger.from_events(events).children == 1
    later = [run_started("2"), run_started("2.0.alice", "2"), run_started("2.0.alice~1", "2")]
    assert Ledger.from_events(later).children == 1


def test_estimate_without_children_replaces_reports_by_what_children_read() -> None:
    got = Ledger.from_events(make_session())
    assert got.parent_tokens == 1100
    assert got.without_children_tokens == 1100 - 2 + 877


def test_reports_in_records_without_views_are_known_by_their_run() -> None:
    events: list[AnyEvent] = [
        run_started("1"),
        ToolCallStarted(at=2, run="1", call=tool_call("c", "task")),
        ToolCallFinished(
            at=3, run="1", call_id="c", name="task", result=ToolResult("x", detail={"run": "1.1.1"})
        ),
    ]
    assert Ledger.from_events(events).returned_bytes == 1


def test_builder_is_right_after_every_event() -> None:
    tally = LedgerBuilder()
    for n, event in enumerate(make_session(), 1):
        tally.apply(event)
        assert tally.ledger == Ledger.from_events(make_session()[:n])


def test_reports_to_a_program_count_as_returned() -> None:
    events = [
        run_started("1", depth=1),
        make_result_event("1", "read", "x\n" * 9),
        answer("1", 40),
        run_finished("1", text="two\nlines"),
    ]
    got = Ledger.from_events(events)
    assert (
        got.children,
        got.read_lines,
        got.returned_lines,
        got.parent_tokens,
        got.child_tokens,
    ) == (1, 9, 2, 0, 50)


@pytest.mark.parametrize(
    ("ledger", "words"),
    [
        (
            Ledger(
                children=5,
                read_lines=7412,
                read_bytes=268_000,
                read_tokens=76_571,
                returned_lines=41,
                returned_bytes=2100,
                returned_tokens=600,
                parent_tokens=3100,
                without_children_tokens=79_071,
            ),
            "5 children read 7,412 lines (268 kB, ~76,600 tokens); 41 lines (2.1 kB, "
            "~600 tokens) came back. "
            "Parent context: 3,100 tokens, 96% less than without children (about 79,100).",
        ),
        (
            Ledger(children=1, read_lines=1, read_bytes=900, read_tokens=257),
            "1 child read 1 line (900 B, ~257 tokens); 0 lines (0 B, ~0 tokens) came back.",
        ),
        (
            Ledger(children=2, read_lines=4321, read_bytes=12_345_678),
            "2 children read 4,321 lines (12 MB, ~0 tokens); 0 lines (0 B, ~0 tokens) came back.",
        ),
        (Ledger(parent_tokens=1234), "No children ran. Parent context: 1,234 tokens."),
    ],
)
def test_description_of_a_ledger(ledger: Ledger, words: str) -> None:
    assert describe_ledger(ledger) == words


def test_a_ledger_says_in_words_that_children_saved_nothing() -> None:
    for without_children in (478, 496):
        ledger = Ledger(children=1, parent_tokens=496, without_children_tokens=without_children)
        assert describe_ledger(ledger).endswith(
            "Parent context: 496 tokens; the reports are no shorter than what the children read."
        )


@pytest.mark.parametrize(
    ("without_children", "share"),
    [(497, "slightly"), (505, "2%"), (620, "20%"), (49_600, "99%")],
)
def test_a_ledger_states_every_share_that_was_saved(without_children: int, share: str) -> None:
    ledger = Ledger(children=1, parent_tokens=496, without_children_tokens=without_children)
    assert describe_ledger(ledger).endswith(
        f"496 tokens, {share} less than without children (about {without_children:,})."
    )


def test_a_prompt_has_a_ledger_of_its_own() -> None:
    ledgers = PromptLedgers()
    for number in ("1", "2"):
        ledgers.apply(run_started(number))
        ledgers.apply(run_started(f"{number}.1.1", number))
    assert (ledgers.session.children, ledgers.prompt.children) == (2, 1)
