"""Request prefixes: system prompt and tools, encoded once and shared by all runs of an agent."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .._core.ports import RequestConfig
from ._tool_names import ToolNames

_MAX_CACHED = 32


class RequestPrefix(Struct, frozen=True):
    """The bytes that start each request of a conversation, and its tool names on the wire."""

    data: bytes
    names: ToolNames
    config: RequestConfig

    @property
    def has_tools(self) -> bool:
        """True if the conversation offers tools."""
        return bool(self.config.tools)


class PrefixCache:
    """Cache of the latest request prefixes of one model.

    Arguments:
        encode: encodes the prefix of a config.
    """

    def __init__(self, encode: Callable[[RequestConfig, ToolNames], bytes]) -> None:
        self._encode = encode
        self._prefixes: dict[object, RequestPrefix] = {}

    def get(self, config: RequestConfig) -> RequestPrefix:
        """Return the prefix of a config; encode it if it is not cached.

        Tools are compared by identity. A cached prefix keeps its tools alive, so an id cannot be
        reused while it is in the cache.
        """
        key = (
            config.system,
            tuple(map(id, config.tools)),
            config.temperature,
            config.top_p,
            config.max_tokens,
        )
        prefix = self._prefixes.get(key)
        if prefix is None:
            if len(self._prefixes) >= _MAX_CACHED:
                oldest = next(iter(self._prefixes))
                del self._prefixes[oldest]
            names = ToolNames(tool.name for tool in config.tools)
            prefix = RequestPrefix(self._encode(config, names), names, config)
            self._prefixes[key] = prefix
        return prefix
