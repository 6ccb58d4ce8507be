"""Tool names on the wire: every provider takes letters, digits, _ and -; ours may hold a dot (`self.emitvalue`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LONGEST = 64
ILLEGAL_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
"""What no provider takes in the name or the id of a call."""


class ToolNames:
    """The names of one conversation's tools, there and back.

    Arguments:
        names: of the tools offered, in order; two that would look alike on the wire are kept apart by a number.

    Example:
        Names(["self.emitvalue"]).wire("self.emitvalue")  # "self_emitvalue"
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._wire: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        for name in sorted(names, key=lambda name: name != _legal(name)):
            there, number = _legal(name), 1
            while there in self._ours:
                number += 1
                there = f"{_legal(name)[: _LONGEST - 4]}_{number}"
            self._wire[name], self._ours[there] = there, name

    def to_wire(self, name: str) -> str:
        """What the provider is told; a name that was never offered is made legal too."""
        return self._wire.get(name) or _legal(name)

    def from_wire(self, name: str) -> str:
        """What the provider's name means here; an unknown one comes back as it was."""
        return self._ours.get(name, name)


def _legal(name: str) -> str:
    legal = ILLEGAL_CHARACTERS.sub("_", name)[:_LONGEST]
    return legal if legal[:1].isalpha() or legal[:1] == "_" else f"_{legal}"[:_LONGEST]
