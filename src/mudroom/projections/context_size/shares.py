"""Shares of a context: how many tokens its parts have, estimated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..._core.events import RunResumed, RunStarted, StoredEvent, ToolCallStarted
from ..._core.messages import AssistantMessage, Message, ToolCallBlock, ToolResultBlock, UserBlock
from ..._core.run_ids import is_child_id
from ..._core.runs import RequestHead
from ..._core.token_counts import estimate_block_tokens, estimate_tokens


class ContextShares:
    """Fold of the events of a session into what the shares of a context need beside its messages.

    It keeps system prompts and tools once, and the ids of the calls of root runs
    that started children.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._heads: dict[str, RequestHead] = {}
        self._head_of_run: dict[str, str] = {}
        self._child_calls: set[str] = set()

    def apply(self, event: StoredEvent) -> None:
        """Add the next event."""
        if isinstance(event, ToolCallStarted):
            if event.view == "run" and not is_child_id(event.run):
                self._child_calls.add(event.call.id)
        elif isinstance(event, RunStarted | RunResumed) and event.head:
            head = event.head
            for name, part in head.parts.items():
                text = part if isinstance(part, str) else msgspec.json.encode(part).decode()
                self._sizes[name] = estimate_tokens(text)
            if head.system:
                self._heads[head.id] = head
            self._head_of_run[event.run] = head.id

    def measure(self, run: str, messages: Iterable[Message]) -> list[tuple[str, int]]:
        """Return names and estimated tokens of the parts that are not empty.

        Arguments:
            run: the root run whose system prompt and tools count.
            messages: the conversation.
        """
        head = self._heads.get(self._head_of_run.get(run, ""))
        shares = {
            "instructions": 0,
            "tool descriptions": 0,
            "your messages": 0,
            "answers": 0,
            "tool calls": 0,
            "tool results": 0,
            "child reports": 0,
        }
        if head:
            shares["instructions"] = self._sizes.get(head.system, 0)
            shares["tool descriptions"] = sum(self._sizes.get(tool, 0) for tool in head.tools)
        for message in messages:
            if isinstance(message, AssistantMessage):
                calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
                call_tokens = estimate_block_tokens(calls)
                shares["answers"] += estimate_block_tokens(message.content) - call_tokens
                shares["tool calls"] += call_tokens
            else:
                self._add_user_message(shares, message.content)
        return [(name, size) for name, size in shares.items() if size]

    def _add_user_message(self, shares: dict[str, int], blocks: Sequence[UserBlock]) -> None:
        for block in blocks:
            name = "your messages"
            if isinstance(block, ToolResultBlock):
                is_report = block.call_id in self._child_calls
                name = "child reports" if is_report else "tool results"
            shares[name] += estimate_block_tokens([block])
