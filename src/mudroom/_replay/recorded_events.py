"""The journal of a replay, which goes through the recorded events one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from .._core.events import (
    FileWriteIntended,
    MessageDelivered,
    MessageSent,
    NoteInjected,
    PermissionDecided,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from .._core.ports import MERGE
from .._core.runs import Report
from .._engine.conversation import INTERRUPTED
from .._engine.session_context import CHECK
from ..errors import MudroomError
from .recorded_stops import (
    RecordedStops,
    asks_for_summary,
    is_about_limit,
    is_interrupt,
    list_past_ends,
)


class ReplayDiverged(MudroomError):
    """An event of the replay differs from the recorded one."""


MAX_ERROR_LENGTH = 2_000
_MAX_SHOWN = 800  # characters of an event, from shortly before the difference
_NEVER = -1  # place in the record of whatever waits for a stop instead of an event


class RecordedEvents:
    """The port Journal for a replay: accepts the recorded events, in the recorded order.

    A run ahead of the record waits until the events before its next one have come again. So at each
    step it finds what it found when it was recorded: the messages that had arrived, the children
    that had ended. Whatever comes from outside (a prompt, a message, a stop) comes when the record
    has reached it.

    Attributes:
        on_message: called with each message that a run has from now on.
        on_run_due: called with the id of each run that must start next.
        on_run_ended: called with the report of each run that was ended by no process.
        difference: gets an exception at the first difference, after which all events are accepted.
        moves: a number that changes with every step of the replay.
    """

    def __init__(self, events: Sequence[StoredEvent], remove_times: Callable[[str], str]) -> None:
        self.on_message: Callable[[MessageSent], None] = _ignore
        self.on_run_due: Callable[[str], None] = _ignore
        self.on_run_ended: Callable[[Report], None] = _ignore
        self.difference: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()
        self.accepted: list[StoredEvent] = []
        self.moves = 0
        self._remove_times = remove_times
        marked_steps = list_steps(events)
        self.stops = RecordedStops(marked_steps, list_past_ends(events))
        self._steps = [event for event in marked_steps if not isinstance(event, RunResumed)]
        self._position = 0
        self._begun = {event.run for event in self._steps if isinstance(event, RunStarted)}
        self._queues: dict[tuple[str, ...], deque[int]] = {}
        self._own: dict[str, deque[int]] = {}
        for index, event in enumerate(self._steps):
            if not self._is_from_outside(event):
                self._queues.setdefault(make_order_key(event), deque()).append(index)
            if not isinstance(event, MessageSent) and id(event) not in self.stops.past_ends:
                self._own.setdefault(event.run, deque()).append(index)
        self._arrived: dict[int, tuple[StoredEvent, asyncio.Future[None]]] = {}
        self._early: set[str] = set()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}

    def _is_from_outside(self, event: StoredEvent) -> bool:
        """Return whether no replayed run makes the event, such as a message not sent by a child."""
        if isinstance(event, MessageSent):
            return not is_end_of_child(event, self._begun)
        return id(event) in self.stops.past_ends

    @property
    def next_event(self) -> StoredEvent | None:
        """The next recorded event, None at the end of the record."""
        return self._steps[self._position] if self._position < len(self._steps) else None

    async def append(self, *events: StoredEvent) -> int:
        """Wait until the record has reached the events, and compare them with the recorded ones.

        Does not return from the last event before the run was stopped: the stop cuts it off.
        """
        arrivals = [self._submit(event) for event in events]
        self.advance()
        for arrival in arrivals:
            if arrival is None:
                await self.park()  # the run was stopped before this event
            else:
                await arrival
        if self.difference.done():
            return len(self.accepted)
        for event in events[-1:]:
            if self._is_last_before_stop(event):
                await self.park()
        return len(self.accepted)

    def _submit(self, event: StoredEvent) -> asyncio.Future[None] | None:
        """Keep an event until its turn. Return a future for that, None if its run stops before."""
        self.moves += 1
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(make_order_key(event))
        index = queue[0] if queue else None
        # A message here is an ended child's, and not held back when its parent is stopped.
        is_message = isinstance(event, MessageSent)
        if self.difference.done():
            self.accepted.append(event)
            arrival.set_result(None)
        elif self._is_missing(event, index):
            arrival.set_result(None)
        elif not is_message and self.stops.is_stopped_before(event.run, index):
            return None
        elif queue:
            self._arrived[queue.popleft()] = (event, arrival)
        elif self.stops.find_report(event.run) is None:
            if not isinstance(event, RunFinished):
                return None  # the run's record is cut off here
            self.stops.keep_end(event.run, arrival)
            self._waiting.setdefault(_NEVER, []).append(arrival)
        else:
            where = f"run {event.run}, turn {event.turn}"
            self.diverge(f"not in the record: {self._to_comparable(event)}", where)
            arrival.set_result(None)
        return arrival

    def _is_missing(self, event: StoredEvent, index: int | None) -> bool:
        """Return whether the record rightly lacks an event.

        Either the run got a message before the record sent it, or the process was killed during the
        model call, or while a stop was cutting off an answer's calls.
        """
        if isinstance(event, MessageSent):
            return event.message.id in self._early
        if isinstance(event, TurnFailed):
            return index is None and self.stops.has_stopped(event.run)
        if isinstance(event, ToolCallStarted):
            return index is None and self.stops.has_cut_off(event.run, event.call.id)
        return False

    def advance(self) -> None:
        """Move past events that have come again, and deliver what came from outside."""
        while (step := self.next_event) is not None and not self.difference.done():
            position = self._position
            if isinstance(step, MessageSent) and step.message.id in self._early:
                if position in self._arrived:
                    _release(self._arrived.pop(position)[1])
            elif self._is_from_outside(step):
                self._apply_outside(step)
            elif position in self._arrived:
                event, arrival = self._arrived.pop(position)
                is_same = self._accept(step, event)
                _release(arrival)
                if not is_same:
                    return
            else:
                for reached in self._waiting.pop(position, ()):
                    _release(reached)
                if isinstance(step, RunStarted):
                    self.on_run_due(step.run)
                return
            self._position += 1
            self.moves += 1

    def _apply_outside(self, step: StoredEvent) -> None:
        if isinstance(step, MessageSent):
            self.on_message(step)
            return
        self.accepted.append(step)
        if isinstance(step, RunFinished):
            self.on_run_ended(step.report)

    def _accept(self, step: StoredEvent, event: StoredEvent) -> bool:
        """Compare an event with the recorded one. Return False if they differ."""
        recorded = self._to_comparable(step)
        replayed = self._to_comparable(event)
        if recorded != replayed:
            self.diverge(
                _show_difference(recorded, replayed), f"run {event.run}, turn {event.turn}"
            )
            return False
        self.accepted.append(event)
        if isinstance(step, MessageSent):
            self.on_message(step)
        else:
            self._own[step.run].popleft()
        if is_interrupt(step):
            self.stops.pass_interrupt(step.run)
        return True

    def _is_last_before_stop(self, event: StoredEvent) -> bool:
        """Return whether a run was stopped after this event, so that it must wait here.

        Not at the start of a call, because the call's child may have worked until the stop; the run
        then waits in the call, or for the next prompt. Nor before a summary of its conversation.
        """
        if isinstance(event, RunStarted | ToolCallStarted | MessageSent) or is_interrupt(event):
            return False
        own = self._own.get(event.run)
        if not own or not self.stops.is_stopped_before(event.run, own[0]):
            return False
        if isinstance(event, TurnFailed) and event.overflow:
            return False  # it first takes back the request
        return not any(
            isinstance(step, RunStarted)
            and step.brief.is_compaction
            and step.brief.parent == event.run
            for step in self._steps[self._position : own[0]]
        )

    async def reach(self, run_id: str) -> StoredEvent:
        """Wait until the record has reached a run's next event, and return that event.

        If the run was stopped before that event, wait for the stop.
        """
        self.advance()
        own = self._own.get(run_id)
        if not own or self.stops.is_stopped_before(run_id, own[0]):
            await self.park()
        assert own
        index = own[0]
        if index != self._position and not self.difference.done():
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(index, []).append(reached)
            await reached
        if self.difference.done():
            raise asyncio.CancelledError
        return self._steps[index]

    def list_delivered_next(self, run_id: str) -> list[str]:
        """List the ids of the messages that a run reads with its next request.

        A note before them is made first, while none of them is unread. But notes about limits are
        made together with the messages, and notes from hooks come after them.
        """
        ids: list[str] = []
        for event in self._walk_next(run_id):
            if isinstance(event, MessageDelivered):
                ids.append(event.message_id)
            elif not isinstance(event, NoteInjected) or not (ids or is_about_limit(event)):
                break
        return ids

    def _walk_next(self, run_id: str) -> Iterator[StoredEvent]:
        """Yield a run's next events until its stop."""
        for index in self._own.get(run_id, ()):
            if self.stops.is_stopped_before(run_id, index):
                return
            yield self._steps[index]

    def find_next_after_messages(self, run_id: str) -> StoredEvent | None:
        """Find what a run does after reading messages and the notes among them."""
        events = (self._steps[index] for index in self._own.get(run_id, ()))
        return next(
            (
                event
                for event in events
                if not isinstance(event, MessageDelivered)
                and not (isinstance(event, NoteInjected) and not asks_for_summary(event))
            ),
            None,
        )

    def list_notes_between(self, run_id: str) -> list[tuple[str, list[str]]]:
        """List notes about limits, each with the ids of the run's next messages after it.

        A run paused or killed during a request sends it again with the messages that came since,
        which follow the first request's note.
        """
        notes: list[tuple[str, list[str]]] = []
        for event in self._walk_next(run_id):
            if isinstance(event, MessageDelivered):
                if notes:
                    notes[-1][1].append(event.message_id)
            elif not isinstance(event, NoteInjected):
                break
            elif is_about_limit(event):
                notes.append((event.text, []))
        while notes and not notes[-1][1]:
            notes.pop()
        return notes

    def skip_message(self, message_id: str) -> None:
        """Note that a run has got a message before the record sent it."""
        self._early.add(message_id)

    async def park(self) -> NoReturn:
        """Wait until the task is cancelled, after the first difference at the latest."""
        if not self.difference.done():
            parked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(_NEVER, []).append(parked)
            try:
                await parked
            finally:
                self._waiting[_NEVER].remove(parked)
        raise asyncio.CancelledError

    def diverge(self, text: str, where: str = "") -> None:
        """Keep the first difference and end all waits."""
        if self.difference.done():
            return
        self.difference.set_exception(ReplayDiverged(text[:MAX_ERROR_LENGTH], where=where))
        waiting = [each for futures in self._waiting.values() for each in futures]
        for future in (*waiting, *(each for _, each in self._arrived.values())):
            _release(future)

    def diverge_here(self) -> None:
        """Report as the difference that nothing makes the next recorded event."""
        left = self._steps[self._position :]
        text = f"{len(left)} recorded events did not come again, the first: "
        where = f"run {left[0].run}, turn {left[0].turn}"
        self.diverge(text + self._to_comparable(left[0]), where)

    async def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        for event in self.accepted[after:]:
            if not types or type(event) in types:
                yield event

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        return self.read(after)

    async def close(self) -> None:
        """Do nothing."""

    def stop_next_run(self) -> bool:
        """Stop the run that the record stopped here. Return False if there is none."""
        step = self.next_event
        if step is None or not self.stops.stop(step.run, self._position):
            return False
        self.moves += 1
        return True

    def _to_comparable(self, event: StoredEvent) -> str:
        """Encode an event as JSON without times and without the order of parallel calls' ends."""
        fields: Any = msgspec.to_builtins(replace(event, at=0.0))
        fields.pop("seconds", None)
        fields.pop("estimate", None)
        fields.pop("head", None)  # a replay has stand-ins for tools
        fields.pop("prompt_id", None)  # older versions made it differently
        if isinstance(event, MessageSent):
            fields.pop("turn", None)
        if "overflow" in fields:  # an estimate that would need the system prompt
            fields["overflow"] = 1
        fields.get("result", {}).get("detail", {}).pop("below", None)  # from older versions
        report = fields.get("report", {})
        report.pop("seconds", None)
        report.pop("usd", None)
        report.pop("limit", None)
        report.pop("has_unknown_usage", None)  # reports of older versions lack it
        if report.get("reason") == "BUDGET":
            report.pop("error", None)  # the size of a request depends on the folder
        for name in ("files_read", "files_changed", "observed_changes"):
            if name in report:
                report[name] = sorted(report[name])
        return self._remove_times(msgspec.json.encode(fields, order="deterministic").decode())


def _ignore(_: object) -> None:
    pass


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def leave_out_lost_requests(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Leave out the notes that asked runs for summaries which never came.

    The process was killed meanwhile, and the next one did not ask again: it ended the run without a
    summary, or for another reason.
    """
    asked: dict[str, int] = {}
    lost: dict[str, int] = {}
    found: set[int] = set()
    for event in events:
        run = event.run
        is_request = isinstance(event, NoteInjected) and asks_for_summary(event)
        if run in lost and (is_request or isinstance(event, RunFinished)):
            found.add(lost.pop(run))
        if is_request:
            asked[run] = id(event)
        elif isinstance(event, TurnFinished):
            asked.pop(run, None)
        elif isinstance(event, TurnStarted):
            lost.pop(run, None)
        elif isinstance(event, RunResumed) and run in asked:
            lost[run] = asked[run]
    return [event for event in events if id(event) not in found]


def list_steps(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """List the events that a replay makes again, or that reach its runs from outside.

    Each `RunResumed` is kept, because there another process went on with a run.

    Left out are:

    - events of the session, and those that come from the world, except `RunResumed`;
    - decisions about merges and checks, because a replay does neither;
    - messages without an effect, see `_list_sent`;
    - what a process did and the next one repeated: a run's last `TurnStarted` and `TurnFailed`
      before its `RunResumed`, if no answer followed.

    Moved are:

    - a decision made again about the same call by a later process: to the place of the first one;
    - results of calls cut off by a stop right after a resume: see `_put_after_children`.
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
            steps[index] = event
        elif isinstance(event, PermissionDecided) and queue:
            steps[queue[0]] = event  # the next process decided again, about the same call
            continue
        if isinstance(event, MessageSent) and event.message.id not in is_sent:
            continue
        if event.run and not event.comes_from_world:
            steps[index] = event
            queue.append(index)
    return _put_after_children(steps.values())


def _put_after_children(steps: Collection[StoredEvent]) -> list[StoredEvent]:
    """Move the results of cut-off calls after the ends of children.

    A run stopped right after a resume has not continued its children, so its record has the results
    of its calls first. In a replay all are working, and the children end first.
    """
    parents: dict[str, str] = {}
    working: dict[str, set[str]] = {}
    left: dict[str, set[str]] = {}
    held: dict[str, list[StoredEvent]] = {}
    ordered: list[StoredEvent] = []
    ends = _find_ends(steps)
    for event in steps:
        run = event.run
        if isinstance(event, RunStarted):
            parents[run] = event.brief.parent
            working.setdefault(event.brief.parent, set()).add(run)
        parent = parents.get(run, "")
        if isinstance(event, RunResumed):
            left[run] = set(working.get(run, ()))
            if parent not in held:
                left.get(parent, set()).discard(run)
        elif isinstance(event, ToolCallFinished) and event.result.text == INTERRUPTED:
            if left.get(run):
                held.setdefault(run, []).append(event)
                continue
        elif not isinstance(event, MessageSent):
            ordered += held.pop(run, ())
        ordered.append(event)
        if (ended := ends.get(id(event))) is not None:
            above = parents.get(ended, "")
            working.get(above, set()).discard(ended)
            left.get(above, set()).discard(ended)
            if not left.get(above):
                ordered += held.pop(above, ())
    return [*ordered, *(event for events in held.values() for event in events)]


def _find_ends(steps: Iterable[StoredEvent]) -> dict[int, str]:
    """Map the steps after which parents go on, by id, to the runs that ended there.

    If a message reports a run's end, that is the step.
    """
    last: dict[str, StoredEvent] = {}
    for event in steps:
        if isinstance(event, RunFinished):
            last[event.run] = event
        elif isinstance(event, MessageSent) and is_end_of_child(event, last):
            last[event.message.sender] = event
    return {id(event): run for run, event in last.items()}


def _list_sent(events: Iterable[StoredEvent]) -> set[str]:
    """Return the ids of the messages that have an effect.

    These were read by a run, report the end of one, or end an interrupt.
    """
    begun: set[str] = set()
    interrupted: set[str] = set()
    ids: set[str] = set()
    for event in events:
        if isinstance(event, RunStarted):
            begun.add(event.run)
        elif isinstance(event, MessageDelivered):
            ids.add(event.message_id)
        elif is_interrupt(event):
            interrupted.add(event.run)
        elif isinstance(event, MessageSent):
            if event.message.sender == "user" and event.run in interrupted:
                interrupted.remove(event.run)
                ids.add(event.message.id)
            elif is_end_of_child(event, begun):
                ids.add(event.message.id)
    return ids


def is_end_of_child(event: MessageSent, begun: Container[str]) -> bool:
    """Return whether a message reports a child's end. `begun`: ids of the runs so far."""
    return event.message.kind == "notification" and event.message.sender in begun


def _list_unanswered_turn(steps: dict[int, StoredEvent], queue: Sequence[int]) -> list[int]:
    """List a run's last turn if its process ended before the answer came."""
    last = [*queue[-2:]]
    repeated: list[int] = []
    failed = steps[last[-1]] if last else None
    if isinstance(failed, TurnFailed):
        repeated.append(last.pop())
    if last and isinstance(started := steps[last[-1]], TurnStarted):
        repeated.append(last.pop())
        if isinstance(failed, TurnFailed) and failed.overflow and not started.summary_reason:
            return []  # it will shorten the conversation and go on
    return repeated


def make_order_key(event: StoredEvent) -> tuple[str, ...]:
    """Make an event's key. Events with the same key are made in the recorded order.

    Each tool call has its own key, because the calls of a turn may run in parallel.
    """
    if isinstance(event, ToolCallStarted):
        return event.run, "started", event.call.id
    if isinstance(event, ToolCallFinished | FileWriteIntended | PermissionDecided):
        return event.run, type(event).__name__, event.call_id
    if isinstance(event, MessageSent):
        return event.run, "sent", event.message.id
    return (event.run,)


def _show_difference(recorded: str, replayed: str) -> str:
    """Show two events, or if they are long, the part with their first difference."""
    pairs = enumerate(zip(recorded, replayed, strict=False))
    first = next((place for place, (one, other) in pairs if one != other), 0)
    start = max(first - _MAX_SHOWN // 2, 0)
    mark = "…" if start else ""
    shown = [f"{mark}{text[start : start + _MAX_SHOWN]}" for text in (recorded, replayed)]
    return f"the replay differs.\nrecorded: {shown[0]}\nnow:      {shown[1]}"
