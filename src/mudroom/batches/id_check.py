"""IdCheck: finds ids that stand twice in an input, with 8 bytes of memory for each id at most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import ge

from .number_set import NumberSet


class IdCheck:
    """The ids of an input, in the order of its lines.

    Ids that ascend, like numbers in a text, cannot repeat: nothing is kept of them. From the first
    ids on that do not, all ids are kept as hashes, those of the first lines, too.
    """

    def __init__(self) -> None:
        self._last = ""
        self._hashes: NumberSet | None = None

    def add(self, ids: Sequence[str]) -> bool:
        """Add the ids of the next lines. Return False if earlier ids are needed first.

        Call `add_earlier` then; these ids are added.
        """
        if self._hashes is None:
            if _ascend(self._last, ids):
                self._last = ids[-1]
                return True
            self._hashes = NumberSet("q")
            self._hashes.add_all(map(hash, ids))
            return not self._last
        self._hashes.add_all(map(hash, ids))
        return True

    def add_earlier(self, ids: Iterable[str]) -> None:
        """Add ids of lines before those for which `add` has returned False."""
        if self._hashes is not None:
            self._hashes.add_all(map(hash, ids))

    def find_repeated(self) -> set[int]:
        """Return the hashes of ids that may stand twice. Different ids can have equal hashes."""
        return self._hashes.find_repeated() if self._hashes else set()


def _ascend(last: str, ids: Sequence[str]) -> bool:
    """Return whether each id is longer than the one before it, or as long and greater."""
    lengths = list(map(len, ids))
    if not ids or lengths != sorted(lengths) or (lengths[0], ids[0]) <= (len(last), last):
        return False
    return all(lengths[place] < lengths[place + 1] for place in _find_descents(ids))


def _find_descents(ids: Sequence[str]) -> Iterator[int]:
    """Yield the places of ids that are not less than the next one, as texts."""
    return compress(range(len(ids) - 1), map(ge, ids, islice(ids, 1, None)))
