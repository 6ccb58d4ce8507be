"""Cache marks: places in a request up to which the provider caches the prompt.

Anthropic defined them, and gateways and hosts with other protocols adopted them: OpenRouter for
Claude and Qwen, Alibaba for Qwen.
"""

from __future__ import annotations

from typing import Any

from ._wire import WireConversation
from .model_facts import ModelFacts

CACHE_MARK_FIELD = "cache_control"
_MARK = {CACHE_MARK_FIELD: {"type": "ephemeral"}}
_MARK_JSON = b',"cache_control":{"type":"ephemeral"}'
_HOUR_MARK_JSON = b',"cache_control":{"type":"ephemeral","ttl":"1h"}'
# Seconds that cache entries live after their last use, without and with a lifetime of an hour.
_SHORT_LIFE = 300.0
_LONG_LIFE = 3600.0
# In prices of input tokens: the extra cost of rewriting an expired prompt instead of reading it,
# and of writing it for an hour instead of five minutes.
_PRICE_OF_LOSS = 1.25 - 0.1
_PRICE_OF_HOUR = 2.0 - 1.25
# Block types that no API accepts a mark on.
_UNMARKABLE_BLOCKS = frozenset({"thinking", "redacted_thinking"})


def get_cache_mark(facts: ModelFacts) -> dict[str, Any]:
    """Return the field for marking a block; {} if the server refused it."""
    return {} if CACHE_MARK_FIELD in facts.refused else _MARK


class MarkedConversation(WireConversation):
    """A conversation with cache marks on its last message and on the previous request's.

    The API looks for an earlier entry in the 20 blocks before a mark. A turn with more than nine
    calls has more blocks, so the second mark is where the previous request wrote its entry. A
    system prompt sent as a message also has a mark, up to which siblings share their prompts.

    A conversation that lost its cache in a long wait, such as for children, keeps later entries for
    an hour, as long as the prompt it paid for twice costs more than the dearer writes.
    """

    _system_end = 0
    _last_end = 0
    _answered_end = 0
    _asked_at = 0.0
    _asked_size = 0
    _lost_size = 0
    _keeps_hour = False

    def build_body(self, *, tools: bool = True, max_tokens: int | None = None) -> bytes:
        if CACHE_MARK_FIELD in self._model.facts.refused:
            return super().build_body(tools=tools, max_tokens=max_tokens)
        self._keeps_hour = self._choose_hour()
        mark = _HOUR_MARK_JSON if self._keeps_hour else _MARK_JSON
        messages = memoryview(self._messages)
        parts: list[bytes | memoryview] = [self._make_start(max_tokens)]
        start = 0
        for end in (self._system_end, self._answered_end, self._last_end):
            if end > start:
                parts += (messages[start:end], mark)
                start = end
        parts += (messages[start:], self._make_end(tools=tools))
        return b"".join(parts)

    def append_entry(self, entry: dict[str, Any]) -> None:
        if entry["role"] == "assistant":
            self._answered_end = self._last_end
        super().append_entry(entry)
        # A mark belongs in the last block, before the message's closing "}]}".
        end = len(self._messages) - 3 if self.is_markable(entry) else 0
        if entry["role"] == "system":
            self._system_end = end
        else:
            self._last_end = end

    def _replace_entries(self, entries: list[dict[str, Any]]) -> None:
        self._system_end = self._answered_end = self._last_end = 0
        super()._replace_entries(entries)

    def is_markable(self, entry: dict[str, Any]) -> bool:
        return entry["content"][-1]["type"] not in _UNMARKABLE_BLOCKS

    def _make_start(self, max_tokens: int | None) -> bytes:
        start = super()._make_start(max_tokens)
        # No text can contain the mark, because its quotes would be escaped.
        return start.replace(_MARK_JSON, _HOUR_MARK_JSON) if self._keeps_hour else start

    def _choose_hour(self) -> bool:
        # Whether entries written for an hour would have cost less so far.
        now = self._model.http.clock.monotonic()
        wait = now - self._asked_at
        if _SHORT_LIFE < wait < _LONG_LIFE:
            self._lost_size += self._asked_size
        self._asked_at = now
        self._asked_size = len(self._messages) + len(self._prefix.data)
        if not self._model.facts.keeps_cache_hour:
            return False
        return self._lost_size * _PRICE_OF_LOSS > self._asked_size * _PRICE_OF_HOUR
