"""Request heads: the part of a run's requests before the messages, recorded once per session."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from .events import RunResumed, RunStarted, StoredEvent
from .json_values import clean_json
from .ports import RequestConfig
from .runs import RequestHead, ToolDescription

_ID_LENGTH = 16
"""Hexadecimal digits of an id."""
_MAX_CACHED_HEADS = 32

_encoder = msgspec.json.Encoder(enc_hook=repr)


class RequestHeads:
    """Ids of the heads and of their parts that the record of a session contains."""

    def __init__(self) -> None:
        self._recorded: set[str] = set()
        # Tools are compared by identity: a cached config keeps its tools alive.
        self._cache: dict[object, tuple[RequestConfig, RequestHead]] = {}

    def load(self, events: Iterable[StoredEvent]) -> None:
        """Add the heads of recorded events."""
        for event in events:
            if type(event) is not RunStarted and type(event) is not RunResumed:
                continue
            if event.head and event.head.system:
                self._recorded |= {event.head.id, *event.head.parts}

    def describe(self, config: RequestConfig) -> RequestHead:
        """Return the head of a run for its event. It contains only what is not recorded yet."""
        key = (config.system, tuple(map(id, config.tools)), config.server_tools)
        if key in self._cache:
            return self._cache[key][1]
        head = self._describe(config)
        if len(self._cache) >= _MAX_CACHED_HEADS:
            self._cache.clear()
        self._cache[key] = (config, RequestHead(head.id))
        return head

    def _describe(self, config: RequestConfig) -> RequestHead:
        tools = [
            ToolDescription(tool.name, tool.description, tool.parameters) for tool in config.tools
        ]
        head_id = _compute_id((config.system, tools, config.server_tools))
        if head_id in self._recorded:
            return RequestHead(head_id)
        system_id = _compute_id(config.system)
        parts: dict[str, str | ToolDescription] = {system_id: config.system}
        tool_ids = tuple(map(_compute_id, tools))
        parts.update(zip(tool_ids, tools, strict=True))
        new_parts = {name: part for name, part in parts.items() if name not in self._recorded}
        self._recorded |= {head_id, *new_parts}
        return RequestHead(head_id, system_id, tool_ids, config.server_tools, new_parts)


def _compute_id(value: object) -> str:
    """Return a digest of a value, the same for equal values."""
    try:
        encoded = _encoder.encode(value)
    except (ValueError, OverflowError):  # a surrogate, or a number with too many digits
        encoded = _encoder.encode(clean_json(msgspec.to_builtins(value, enc_hook=repr)))
    return sha256(encoded).hexdigest()[:_ID_LENGTH]
