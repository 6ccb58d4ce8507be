"""Events of runs that an earlier process left unfinished, with the runs below each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from .._core.events import StoredEvent
from .._core.run_ids import find_parent_id


class PastEvents(MutableMapping[str, list[StoredEvent]]):
    """The events of runs by run id, and an index of the runs below each run.

    Arguments:
        events: the first events.
    """

    def __init__(self, events: Mapping[str, list[StoredEvent]] | None = None) -> None:
        self._by_run: dict[str, list[StoredEvent]] = {}
        self._children: dict[str, dict[str, None]] = {}
        self.update(events or {})

    def __getitem__(self, run_id: str) -> list[StoredEvent]:
        return self._by_run[run_id]

    def __setitem__(self, run_id: str, events: list[StoredEvent]) -> None:
        self._by_run[run_id] = events
        if parent := find_parent_id(run_id):
            self._children.setdefault(parent, {})[run_id] = None

    def __delitem__(self, run_id: str) -> None:
        del self._by_run[run_id]
        if parent := find_parent_id(run_id):
            del self._children[parent][run_id]

    def clear(self) -> None:
        self._by_run.clear()
        self._children.clear()

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._by_run

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_run)

    def __len__(self) -> int:
        return len(self._by_run)

    def walk_below(self, run_id: str) -> Iterator[str]:
        """Yield the ids of the runs below this one, each before those below it."""
        for child in self._children.get(run_id, ()):
            yield child
            if child in self._children:
                yield from self.walk_below(child)
