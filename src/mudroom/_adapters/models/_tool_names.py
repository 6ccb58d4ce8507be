"""Tool names and call ids in the form providers accept.

Every provider accepts letters, digits, _ and - in a name, but mudroom's names may contain a dot
(`self.emitvalue`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..._platform.patterns import compile_later

_MAX_LENGTH = 64
# Characters that some providers reject in a tool call's name or id.
ILLEGAL_CHARACTERS = compile_later(r"[^A-Za-z0-9_-]")


def fit_call_id(call_id: str, form: str, length: int) -> str:
    """Make a call id acceptable to a provider: unchanged if it has the form, else hashed."""
    if re.fullmatch(form, call_id):
        return call_id
    from hashlib import sha256  # slow to import

    return sha256(call_id.encode("utf-8", "replace")).hexdigest()[:length]


class ToolNames:
    """Maps tool names to their names on the wire, where some collide and get a number, and back."""

    def __init__(self, names: Iterable[str]) -> None:
        self._to_wire: dict[str, str] = {}
        self._from_wire: dict[str, str] = {}
        # Names that are already legal come first, so that they keep their spelling.
        for name in sorted(names, key=lambda name: name != _make_legal(name)):
            wire_name = self._choose_free_name(_make_legal(name))
            self._to_wire[name] = wire_name
            self._from_wire[wire_name] = name

    def to_wire(self, name: str) -> str:
        # Also works for names that were not offered, as in old messages.
        return self._to_wire.get(name) or _make_legal(name)

    def from_wire(self, name: str) -> str:
        return self._from_wire.get(name, name)

    def _choose_free_name(self, name: str) -> str:
        candidate = name
        number = 1
        while candidate in self._from_wire:
            number += 1
            candidate = f"{name[: _MAX_LENGTH - 4]}_{number}"
        return candidate


def _make_legal(name: str) -> str:
    legal = ILLEGAL_CHARACTERS.sub("_", name)[:_MAX_LENGTH]
    if legal[:1].isalpha() or legal[:1] == "_":
        return legal
    return f"_{legal}"[:_MAX_LENGTH]
