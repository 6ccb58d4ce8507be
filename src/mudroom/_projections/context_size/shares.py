"""How a context is shared out: estimates of how many tokens each part has."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..._core.events import AnyEvent, RunResumed, RunStarted, ToolCallStarted
from ..._core.messages import (
    AssistantMessage,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    estimate_block_tokens,
    estimate_tokens,
)
from ..._core.runs import RequestHead, is_child_id
from ..transcript import ConversationContext


class ContextShares:
    """The shares of a conversation's context, updated with each event of all runs.

    It keeps the messages of root runs, their system prompts and tools, and the ids of their calls
    that started children.
    """

    def __init__(self) -> None:
        self._conversation = ConversationContext()
        self._sizes: dict[str, int] = {}
        self._heads: dict[str, RequestHead] = {}
        self._head_of_run: dict[str, str] = {}
        self._child_calls: set[str] = set()

    def apply(self, event: AnyEvent) -> None:
        self._conversation.apply(event)
        if type(event) is ToolCallStarted:
            if event.view == "run" and not is_child_id(event.run):
                self._child_calls.add(event.call.id)
        elif (type(event) is RunStarted or type(event) is RunResumed) and event.head:
            head = event.head
            for name, part in head.parts.items():
                text = part if isinstance(part, str) else msgspec.json.encode(part).decode()
                self._sizes[name] = estimate_tokens(text)
            if head.system:
                self._heads[head.id] = head
            if not is_child_id(event.run):
                self._head_of_run[event.run] = head.id

    def rewind(self, run_id: str) -> None:
        """Go back to the state before a root run."""
        self._conversation.rewind(run_id)

    def measure(self) -> list[tuple[str, int]]:
        """Estimate the tokens of each part that is not empty."""
        run = self._conversation.latest_run
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
        for message in self._conversation.list_messages():
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
