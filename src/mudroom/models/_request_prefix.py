"""What a conversation begins with: system prompt and tools, encoded once for all runs of an agent, which then share the bytes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .._core.ports import Setup
from ._tool_names import Names

_MOST = 32


class Head(Struct, frozen=True):
    """The bytes that open each request of a conversation, the names its tools have on the wire, and whether there are any."""

    data: bytes
    names: Names
    offers: bool
    setup: Setup


class Heads:
    """The heads of one model; the latest are kept.

    Arguments:
        encode: makes the bytes.
    """

    def __init__(self, encode: Callable[[Setup, Names], bytes]) -> None:
        self._encode = encode
        self._kept: dict[object, Head] = {}

    def of(self, setup: Setup) -> Head:
        """The head of a conversation. Tools are told apart by identity: those of a kept head live as long as it does."""
        key = (
            setup.system,
            tuple(map(id, setup.tools)),
            setup.temperature,
            setup.top_p,
            setup.max_tokens,
        )
        if key not in self._kept:
            if len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            names = Names(tool.name for tool in setup.tools)
            self._kept[key] = Head(self._encode(setup, names), names, bool(setup.tools), setup)
        return self._kept[key]
