"""Recorded edits: where the engine shortened the conversations of a record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._core.events import (
    Compacted,
    ResultsCleared,
    RunStarted,
    StoredEvent,
    TurnFailed,
    TurnFinished,
)
from .._core.runs import Brief


class RecordedEdits:
    """Edits of the conversations of a record, by run, turn and number of refusals before them."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        self._edits: dict[
            tuple[str, int, int], list[tuple[ResultsCleared | Compacted, Brief | None]]
        ] = {}
        briefs: dict[str, Brief] = {}
        refusals: dict[str, int] = {}
        for event in events:
            if isinstance(event, RunStarted):
                briefs[event.run] = event.brief
            elif isinstance(event, TurnFinished):
                refusals[event.run] = 0
            elif isinstance(event, TurnFailed) and event.overflow:
                refusals[event.run] = refusals.get(event.run, 0) + 1
            elif isinstance(event, ResultsCleared | Compacted):
                summary = event.summary_run if isinstance(event, Compacted) else ""
                key = (event.run, event.turn, refusals.get(event.run, 0))
                self._edits.setdefault(key, []).append((event, briefs.get(summary)))

    def take(
        self, run_id: str, turn: int, refusals: int
    ) -> Sequence[tuple[ResultsCleared | Compacted, Brief | None]]:
        """Return the edits at a point of a run, each with the brief of its summary run.

        Each edit comes once: a run that is interrupted returns to the point.
        """
        return self._edits.pop((run_id, turn, refusals), [])
