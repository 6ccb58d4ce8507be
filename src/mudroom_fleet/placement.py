"""Placement: the node of the cluster on which each worker process of a session starts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from .lease import read_clock

_AVOIDED_SECONDS = 60.0
"""Seconds for which a silent node comes after others. Ray may need so long to notice its loss."""


class Node(Struct, frozen=True):
    """A node of the cluster. `machine`: its host name."""

    id: str
    machine: str
    processors: float


class Placement:
    """The nodes of a session's actors. Threads may call the methods.

    Ray places actors that reserve no processors at random.

    Arguments:
        read_clock: returns the present time in seconds.
    """

    def __init__(self, read_clock: Callable[[], float] = read_clock) -> None:
        self._read_clock = read_clock
        self._nodes: dict[int, str] = {}
        self._avoided_until: dict[str, float] = {}
        self._lock = threading.Lock()

    def choose(self, number: int, nodes: Sequence[Node]) -> str:
        """Return the id of the node for an actor.

        Nodes with processors come first, then those that answer, then the one with the fewest
        actors per processor.

        Arguments:
            number: of the actor. nodes: those on which it may start, at least one.
        """
        with self._lock:
            actors = Counter(self._nodes.values())
            now = self._read_clock()

            def rank(node: Node) -> tuple[bool, bool, float]:
                is_silent = self._avoided_until.get(node.id, now) > now
                load = (actors[node.id] + 1) / (node.processors or 1)
                return not node.processors, is_silent, load

            node = min(nodes, key=rank)
            self._nodes[number] = node.id
            return node.id

    def note_silence(self, number: int) -> None:
        """Note that an actor does not answer: others come to other nodes for a while."""
        with self._lock:
            if node := self._nodes.get(number):
                self._avoided_until[node] = self._read_clock() + _AVOIDED_SECONDS

    def remove(self, number: int) -> None:
        """Note that an actor has ended or is lost."""
        with self._lock:
            self._nodes.pop(number, None)
