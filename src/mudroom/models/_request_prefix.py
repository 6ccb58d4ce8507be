"""What a conversation begins with: system prompt and tools, encoded once for all runs of an agent, which then share the bytes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .._core.ports import RequestConfig
from ._tool_names import ToolNames

_MOST = 32


class RequestPrefix(Struct, frozen=True):
    """The bytes that open each request of a conversation, the names its tools have on the wire, and whether there are any."""

    data: bytes
    names: ToolNames
    has_tools: bool
    config: RequestConfig


class PrefixCache:
    """The heads of one model; the latest are kept.

    Arguments:
        encode: makes the bytes.
    """

    def __init__(self, encode: Callable[[RequestConfig, ToolNames], bytes]) -> None:
        self._encode = encode
        self._kept: dict[object, RequestPrefix] = {}

    def get(self, setup: RequestConfig) -> RequestPrefix:
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
            names = ToolNames(tool.name for tool in setup.tools)
            self._kept[key] = RequestPrefix(
                self._encode(setup, names), names, bool(setup.tools), setup
            )
        return self._kept[key]
