"""The summary of a session for lists."""

from __future__ import annotations

import pytest

from mudroom import AnyEvent, Reason, Usage
from mudroom._projections.session_summary import (
    SessionSummary,
    SummaryState,
    decode_state,
    encode_state,
    summarize_session,
)
from mudroom.events import SessionOpened
from mudroom.testing.event_builders import run_finished, run_started

EMPTY = SessionSummary(id="s", when=7.0, size=10, name="first")
OPENED = SessionOpened(at=0, session="s", cwd="/work", version="0")


def summarize(*events: AnyEvent, is_live: bool = False) -> SessionSummary:
    return summarize_session(EMPTY, [OPENED, *events], is_live=is_live)


def test_summary_has_first_prompt_and_last_reason() -> None:
    summary = summarize(
        run_started("1", prompt="first"),
        run_finished("1"),
        run_started("2", prompt="second"),
        run_finished("2", Reason.MAX_TURNS),
    )
    assert (summary.id, summary.when, summary.name) == ("s", 7.0, "first")
    assert (summary.folder, summary.prompt, summary.model) == ("/work", "first", "offline")
    assert (summary.prompts, summary.reason, summary.state) == (2, "MAX_TURNS", "finished")


def test_the_topic_is_the_words_of_the_user() -> None:
    prompt = "\nreview @a.py\nand b\n\nGive this to the agent explore.\n\n<stdin>\nx\n</stdin>"
    summary = summarize(run_started("1", prompt=prompt))
    assert summary.topic == "review @a.py\nand b"
    assert summarize().topic == ""


def test_usage_of_children_counts_while_their_root_has_not_finished() -> None:
    summary = summarize(
        run_started("1"),
        run_started("1.1.1", "1"),
        run_started("1.1.1.1.1", "1.1.1"),
        run_finished("1.1.1.1.1", usage=Usage(5, 0)),
        run_finished("1.1.1", usage=Usage(20, 1)),
    )
    assert (summary.tokens, summary.reason) == (21, "")


@pytest.mark.parametrize(("is_live", "state"), [(True, "live"), (False, "interrupted")])
def test_state_of_a_run_without_end(is_live: bool, state: str) -> None:
    assert summarize(run_started("1"), is_live=is_live).state == state


def test_a_saved_state_at_any_event_gives_the_same_summary() -> None:
    events: list[AnyEvent] = [
        OPENED,
        run_started("1", prompt="first \ud800"),
        run_started("1.1.1", "1"),
        run_started("1.1.1.1.1", "1.1.1"),
        run_finished("1.1.1.1.1", usage=Usage(5, 0)),
        run_started("2", prompt="second"),
        run_finished("1.1.1", usage=Usage(20, 1)),
        run_finished("2", Reason.MAX_TURNS, usage=Usage(3, 1)),
        run_finished("1", usage=Usage(100, 10)),
        run_started("3"),
    ]
    whole = summarize_session(EMPTY, events)
    assert (whole.tokens, whole.reason, whole.state) == (114, "", "interrupted")
    for length in range(len(events) + 1):
        state = SummaryState()
        for event in events[:length]:
            state.apply(event)
        saved = decode_state(encode_state(state))
        assert summarize_session(EMPTY, events[length:], state=saved) == whole


def test_the_state_of_many_finished_tasks_is_as_small_as_that_of_one() -> None:
    states: list[str] = []
    for tasks in (1, 500):
        state = SummaryState()
        for number in range(1, tasks + 1):
            run = str(number)
            for event in (run_started(run), run_started(f"{run}.1.1", run)):
                state.apply(event)
            for event in (run_finished(f"{run}.1.1"), run_finished(run)):
                state.apply(event)
        assert state.size == 0
        states.append(encode_state(state))
    assert len(states[1]) < len(states[0]) + 20, "only the numbers have more digits"
