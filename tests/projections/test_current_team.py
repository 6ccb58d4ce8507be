"""The named children of a conversation: states, runs and messages, also after a rewind."""

from __future__ import annotations

from mudroom._core.events import StoredEvent, TeamMessageSent, ToolCallFinished
from mudroom._core.runs import InboxMessage, Reason
from mudroom._core.tools import ToolResult
from mudroom._projections.run_tree import (
    RunTree,
    describe_state,
    list_idle,
    list_teammates,
    list_unread,
)
from mudroom.testing.event_builders import run_finished, run_started


def send(parent: str, name: str, child: str, message_id: str) -> TeamMessageSent:
    message = InboxMessage(message_id, f"text of {message_id}", "user")
    return TeamMessageSent(at=0, run=parent, to=name, child=child, message=message)


def make_two_prompts() -> list[StoredEvent]:
    """Return events of two prompts: alice has a run in each, bob one in the second."""
    return [
        run_started("1"),
        run_started("1.1.1", "1", name="alice", agent="general"),
        run_finished("1.1.1"),
        run_finished("1"),
        run_started("2", continues="1"),
        send("2", "alice", "1.1.1", "m1"),
        run_started(
            "2.0.alice~1", "2", name="alice", continues="1.1.1", message_ids=("m1",), depth=1
        ),
        run_finished("2.0.alice~1", Reason.ERROR, error="the model failed"),
        run_started("2.1.1", "2", name="bob"),
        run_finished("2.1.1"),
        send("2", "alice", "1.1.1", "m2"),
    ]


def describe(tree: RunTree) -> dict[str, str]:
    return {mate.name: describe_state(mate) for mate in list_teammates(tree)}


def test_the_state_counts_runs_and_unread_messages() -> None:
    tree = RunTree.from_events(make_two_prompts())
    assert describe(tree) == {
        "alice": "idle, last run: failed, 2 runs, 1 unread",
        "bob": "idle, 1 run, 0 unread",
    }
    assert [mate.name for mate in list_idle(tree)] == ["alice", "bob"]
    unread = list_unread(tree, tree.runs["2.0.alice~1"])
    assert [message.text for message in unread] == ["text of m2"]


def test_after_a_rewind_the_state_is_that_of_the_prompts_that_remain() -> None:
    tree = RunTree.from_events([*make_two_prompts(), run_finished("2")])
    tree.rewind("2")
    assert describe(tree) == {"alice": "idle, 1 run, 0 unread"}
    for event in (
        run_started("3", continues="1"),
        run_started("3.1.1", "3", name="alice", continues="1.1.1"),
    ):
        tree.apply(event)
    assert describe(tree) == {"alice": "working, 2 runs, 0 unread"}
    assert tree.runs["3.1.1"].label == "alice, run 2"


def test_a_rewind_undoes_a_stop_and_a_newer_child_of_the_name() -> None:
    events = make_two_prompts()[:4]
    result = ToolResult("stopped", detail={"stopped": "1.1.1"})
    stop = ToolCallFinished(at=0, run="2", call_id="c", name="task_stop", result=result)
    newer = [run_started("2.1.1", "2", name="alice"), run_finished("2.1.1")]
    tree = RunTree.from_events([*events, run_started("2", continues="1"), stop, *newer])
    assert [describe_state(mate) for mate in list_teammates(tree)] == [
        "replaced by a newer child, 1 run, 0 unread",
        "idle, 1 run, 0 unread",
    ]
    assert [mate.run_id for mate in list_idle(tree)] == ["2.1.1"]
    tree.rewind("2")
    assert [mate.run_id for mate in list_idle(tree)] == ["1.1.1"]


def test_a_child_of_a_task_that_is_no_prompt_is_listed() -> None:
    tree = RunTree.from_events(
        [
            run_started("1", depth=1),
            run_started("1.1.1", "1", name="alice", depth=2),
            run_finished("1.1.1"),
        ]
    )
    assert describe(tree) == {"alice": "idle, 1 run, 0 unread"}


def test_a_session_without_names_has_no_teammates() -> None:
    tree = RunTree.from_events([run_started("1"), run_started("1.1.1", "1")])
    assert list_teammates(tree) == list_idle(tree) == []
