"""Recorder: writes the events of one run to the journal and shows them to the watchers."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from .._core.events import Delta, Event, StoredEvent
from .session_context import SessionServices

E = TypeVar("E", bound=Event)


class Recorder:
    """Writer of one run's events.

    Attributes:
        turn: number of the current turn; all events carry it.
    """

    def __init__(self, services: SessionServices, run_id: str) -> None:
        self.turn = 0
        self._run_id = run_id
        self._prompt_id_prefix = f"{services.session}#{run_id}#"
        self._journal = services.journal
        self._clock = services.clock
        self._watchers = services.watchers
        self._watching = services.watchers.functions
        self._forward = services.forward_events
        self._observe = services.teams.observe
        self._unsaved: list[StoredEvent] = []
        self._unshown: list[StoredEvent] = []

    def make_event(self, kind: type[E], /, **fields: Any) -> E:
        """Return an event of this run with time, turn and prompt id."""
        return kind(
            at=self._clock.now(),
            run=self._run_id,
            turn=self.turn,
            prompt_id=f"{self._prompt_id_prefix}{self.turn}",
            **fields,
        )

    async def record(self, *events: StoredEvent) -> None:
        """Store events and those kept by `record_later`; then show them.

        If the calling task is cancelled, the journal still stores them; the next `record` shows
        them.
        """
        unsaved = [*self._unsaved, *events]
        unshown = [*self._unshown, *events]
        self._unsaved = []
        self._unshown = []
        for event in unsaved:
            self._observe(event)
        if self._forward is not None:
            await self._forward(unsaved, len(unsaved) - len(unshown))
            return
        try:
            await self._journal.append(*unsaved)
        except asyncio.CancelledError:
            self._unshown[:0] = unshown
            raise
        if self._watching:
            for event in unshown:
                self._watchers.show(event)

    def record_later(self, event: StoredEvent, *, show: bool = False) -> None:
        """Store an event with the next `record`; for facts on which no effect depends.

        Arguments:
            show: show the event now, not when it is stored, unless an earlier one waits.
        """
        self._unsaved.append(event)
        if not show or self._unshown:
            self._unshown.append(event)
        elif self._watching:
            self._watchers.show(event)

    def show_delta(self, kind: str, text: str) -> None:
        """Show streamed text to the watchers."""
        if self._watching:
            self._watchers.show(self.make_event(Delta, kind=kind, text=text))
