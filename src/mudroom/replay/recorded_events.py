"""Recorded events: the journal of a replay, which accepts only the events of the record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from .._core.checks import CHECK
from .._core.events import (
    CheckFinished,
    CheckStarted,
    Event,
    FileWriteIntended,
    InputAnswered,
    MessageSent,
    ModelCallRetried,
    PermissionDecided,
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
from .._engine.recorded_conversations import is_repeated
from ..errors import MudroomError
from .recorded_stops import RecordedStops


class ReplayDiverged(MudroomError):
    """An event of the replay differs from the recorded one."""


_NOT_COMPARED = (
    FileWriteIntended,
    InputAnswered,
    MessageSent,
    TeamMessageSent,
    RunResumed,
    ModelCallRetried,
    WorkMerged,
    CheckStarted,
    CheckFinished,
)
"""Event types that depend on the outside world: a replay lacks them or has them elsewhere."""


class RecordedEvents:
    """The port Journal for a replay: accepts only the recorded events.

    Arguments:
        events: the recorded events.
        stops: stops of the recorded runs.
        remove_times: takes a text, returns it without measured times.

    Attributes:
        on_run_start: called with the id of each run that starts.
        difference: gets an exception at the first difference; after it, all events are accepted.
        accepted: the events so far.
    """

    def __init__(
        self,
        events: Sequence[StoredEvent],
        stops: RecordedStops,
        remove_times: Callable[[str], str],
    ) -> None:
        self.on_run_start: Callable[[str], None] | None = None
        self.difference: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()
        self.accepted: list[StoredEvent] = []
        self._stops = stops
        self._remove_times = remove_times
        self._expected: dict[tuple[str, ...], list[StoredEvent]] = {}
        for event in events:
            expected = self._expected.setdefault(_make_order_key(event), [])
            if isinstance(event, RunResumed):
                _remove_unanswered_turn(expected)
            if isinstance(event, PermissionDecided):
                if event.name in (MERGE, CHECK):
                    continue  # a replay merges nothing
                expected.clear()  # the earlier process did not act on its decision
            if not isinstance(event, _NOT_COMPARED):
                expected.append(event)
        for expected in self._expected.values():
            for event in expected:
                stops.add_step(event)

    async def append(self, *events: StoredEvent) -> int:
        """Compare events with the recorded ones. Raises ReplayDiverged at the first difference."""
        for event in events:
            if not isinstance(event, _NOT_COMPARED) and not self.difference.done():
                await self._accept(event)
        self.accepted += events
        return len(self.accepted)

    async def _accept(self, event: StoredEvent) -> None:
        """Compare an event with the recorded one; wait for the stop of the run if it is due."""
        expected = self._expected.get(_make_order_key(event))
        if self._stops.is_before_stop(event.run, expected[0] if expected else None):
            await wait_for_stop()
        self._compare(event, expected)
        if isinstance(event, RunStarted) and self.on_run_start:
            self.on_run_start(event.run)
        if self._stops.count_step(event):
            await wait_for_stop()

    def _compare(self, event: StoredEvent, expected: list[StoredEvent] | None) -> None:
        where = f"run {event.run}, turn {event.turn}"
        if not expected:
            raise self.diverge(f"not in the record: {self._to_comparable(event)}", where)
        recorded = self._to_comparable(expected.pop(0))
        replayed = self._to_comparable(event)
        if recorded != replayed:
            text = f"the replay differs.\nrecorded: {recorded}\nnow:      {replayed}"
            raise self.diverge(text, where)

    def diverge(self, text: str, where: str = "") -> ReplayDiverged:
        """Keep the first difference and return it."""
        error = ReplayDiverged(text, where=where)
        if not self.difference.done():
            self.difference.set_exception(error)
        return error

    async def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Yield the events so far."""
        for event in self.accepted[after:]:
            if not types or type(event) in types:
                yield event

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Yield the events so far after a position."""
        return self.read(after)

    async def close(self) -> None:
        """Do nothing."""

    @property
    def missing_events(self) -> list[StoredEvent]:
        """Recorded events of runs that the replay has not produced."""
        return [event for events in self._expected.values() for event in events if event.run]

    def _to_comparable(self, event: StoredEvent) -> str:
        """Return an event as JSON, without times and the order in which parallel calls ended."""
        fields: Any = msgspec.to_builtins(replace(event, at=0.0))
        fields.pop("seconds", None)
        fields.pop("estimate", None)
        fields.pop("head", None)  # a replay has stand-ins for tools
        fields.pop("prompt_id", None)  # an older version made it from other facts
        if "overflow" in fields:  # an estimate, for which a replay lacks the system prompt
            fields["overflow"] = 1
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


def _remove_unanswered_turn(events: list[StoredEvent]) -> None:
    """Remove the last turn if the earlier process received no answer; the next one repeats it."""
    if events and isinstance(events[-1], TurnFailed):
        if not is_repeated(events[-1]):
            return
        events.pop()
    if events and isinstance(events[-1], TurnStarted):
        events.pop()


async def wait_for_stop() -> None:
    """Wait until the task is cancelled: its run is stopped before the next step."""
    await asyncio.Event().wait()


def _make_order_key(event: Event) -> tuple[str, ...]:
    """Return the key of an event. Only events with the same key have a fixed order.

    Tool calls have separate keys, because calls of one turn may run in parallel.
    """
    if isinstance(event, ToolCallStarted):
        return event.run, "started", event.call.id
    if isinstance(event, ToolCallFinished | FileWriteIntended | PermissionDecided):
        return event.run, type(event).__name__, event.call_id
    return (event.run,)
