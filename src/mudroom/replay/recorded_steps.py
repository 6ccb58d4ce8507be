"""Steps of a record: the events that a replay must make again, in order."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from .._core.checks import CHECK
from .._core.events import (
    CheckFinished,
    CheckStarted,
    FileWriteIntended,
    InputAnswered,
    MessageDelivered,
    MessageSent,
    ModelCallRetried,
    PermissionDecided,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    TeamMessageSent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnStarted,
    WorkMerged,
)
from .._core.ports import MERGE
from .._engine.call_batch import INTERRUPTED
from .._engine.recorded_conversations import is_repeated

_FROM_THE_WORLD = (
    FileWriteIntended,
    InputAnswered,
    TeamMessageSent,
    RunResumed,
    ModelCallRetried,
    WorkMerged,
    CheckStarted,
    CheckFinished,
)
"""Event types that depend on the world outside the engine: a replay does not make them."""


def list_steps(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Return the events that a replay makes again, or that reach its runs from outside.

    What an earlier process did and the next one repeated is left out, and so are messages that
    nobody read, unless they report the end of a child.
    """
    is_sent = _list_sent(events)
    steps: dict[int, StoredEvent] = {}
    queues: dict[tuple[str, ...], list[int]] = {}
    for index, event in enumerate(events):
        if isinstance(event, PermissionDecided) and event.name in (MERGE, CHECK):
            continue  # a replay merges nothing
        queue = queues.setdefault(make_order_key(event), [])
        if isinstance(event, RunResumed):
            for each in _list_unanswered_turn(steps, queue):
                del steps[each]
                queue.remove(each)
        elif isinstance(event, PermissionDecided) and queue:
            steps[queue[0]] = event  # the next process decided again, about the same call
            continue
        if isinstance(event, MessageSent) and event.message.id not in is_sent:
            continue
        if event.run and not isinstance(event, _FROM_THE_WORLD):
            steps[index] = event
            queue.append(index)
    return _put_after_children(steps.values())


def _put_after_children(steps: Iterable[StoredEvent]) -> list[StoredEvent]:
    """Return the steps with the result of each call that was cut off after the end of its child.

    A parent that is stopped right after a resume has not continued its child: the record has the
    result of the call first. A replay has both at work, and the call ends with the child.
    """
    children: dict[tuple[str, str], str] = {}
    working: set[str] = set()
    results: dict[str, StoredEvent] = {}
    ordered: list[StoredEvent] = []
    for event in steps:
        if isinstance(event, RunStarted):
            children.setdefault((event.brief.parent, event.brief.call_id), event.run)
            working.add(event.run)
        elif isinstance(event, ToolCallFinished) and event.result.text == INTERRUPTED:
            child = children.get((event.run, event.call_id), "")
            if child in working:
                results[child] = event
                continue
        ordered.append(event)
        if isinstance(event, RunFinished):
            working.discard(event.run)
            if result := results.pop(event.run, None):
                ordered.append(result)
    return [*ordered, *results.values()]


def _list_sent(events: Iterable[StoredEvent]) -> set[str]:
    """Return the ids of the messages that a run read, and of those that report ends of runs."""
    begun: set[str] = set()
    ids: set[str] = set()
    for event in events:
        if isinstance(event, RunStarted):
            begun.add(event.run)
        elif isinstance(event, MessageDelivered):
            ids.add(event.message_id)
        elif isinstance(event, MessageSent) and is_end_of_child(event, begun):
            ids.add(event.message.id)
    return ids


def is_end_of_child(event: MessageSent, begun: Container[str]) -> bool:
    """Return whether a message reports the end of a child. `begun`: ids of the runs so far."""
    return event.message.kind == "notification" and event.message.sender in begun


def _list_unanswered_turn(steps: dict[int, StoredEvent], queue: Sequence[int]) -> list[int]:
    """Return the last turn of a run if no answer came before its process ended."""
    last = [*queue[-2:]]
    repeated: list[int] = []
    if last and isinstance(failed := steps[last[-1]], TurnFailed):
        if not is_repeated(failed):
            return []
        repeated.append(last.pop())
    if last and isinstance(steps[last[-1]], TurnStarted):
        repeated.append(last.pop())
    return repeated


def make_order_key(event: StoredEvent) -> tuple[str, ...]:
    """Return the key of an event. Events with the same key are made in the recorded order.

    Tool calls have keys of their own, because calls of one turn may run in parallel.
    """
    if isinstance(event, ToolCallStarted):
        return event.run, "started", event.call.id
    if isinstance(event, ToolCallFinished | FileWriteIntended | PermissionDecided):
        return event.run, type(event).__name__, event.call_id
    if isinstance(event, MessageSent):
        return event.run, "sent", event.message.id
    return (event.run,)
