"""Hooks of a replay: they repeat what hooks did, and send the messages that arrived."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .._core.agents import Brief, InboxMessage
from .._core.events import (
    MessageDelivered,
    MessageSent,
    NoteInjected,
    StoredEvent,
    ToolCallStarted,
)
from .._core.messages import ToolCallBlock
from .._core.ports import Hooks, ToolHookDecision
from .._core.tools import ToolResult


class RecordedHooks(Hooks):
    """Hooks that give the recorded notes and arguments.

    Arguments:
        send: sends a message to the run of this id.
    """

    def __init__(
        self, events: Sequence[StoredEvent], send: Callable[[str, InboxMessage], object]
    ) -> None:
        self._send = send
        self._calls: dict[tuple[str, str], ToolCallStarted] = {}
        self._prompt_notes: dict[str, str] = {}
        self._finish_notes: dict[str, list[str]] = {}
        self._messages: dict[str, list[tuple[int, InboxMessage]]] = {}
        sent: dict[str, InboxMessage] = {}
        for event in events:
            if isinstance(event, ToolCallStarted):
                self._calls[event.run, event.call.id] = event
            elif isinstance(event, MessageSent):
                sent[event.message.id] = event.message
            elif isinstance(event, MessageDelivered):
                message = sent[event.message_id]
                self._messages.setdefault(event.run, []).append((event.turn, message))
            elif isinstance(event, NoteInjected) and event.origin == "hook":
                self._add_note(event)

    def _add_note(self, event: NoteInjected) -> None:
        if event.turn:
            self._finish_notes.setdefault(event.run, []).append(event.text)
        else:
            self._prompt_notes[event.run] = event.text

    async def on_prompt(self, brief: Brief) -> str:
        """Return the recorded text."""
        self._send_messages(brief.run_id, 0)
        return self._prompt_notes.get(brief.run_id, "")

    async def before_compaction(self, brief: Brief) -> str:
        """Return the recorded text."""
        return await self.on_prompt(brief)

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        """Return the arguments with which the call was started."""
        started = self._calls.get((brief.run_id, call.id))
        if started is None or started.call.arguments == call.arguments:
            return None
        return ToolHookDecision(arguments=started.call.arguments)

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        """Send the messages that were delivered after the turn of this call."""
        self._send_messages(brief.run_id, self._calls[brief.run_id, call.id].turn)

    async def before_finish(self, brief: Brief, text: str) -> str:
        """Send the messages and return the note with which the run continued."""
        messages = self._messages.get(brief.run_id)
        if messages:
            self._send_messages(brief.run_id, messages[0][0])
            return ""
        notes = self._finish_notes.get(brief.run_id)
        return notes.pop(0) if notes else ""

    def _send_messages(self, run_id: str, turn: int) -> None:
        messages = self._messages.get(run_id, [])
        while messages and messages[0][0] <= turn:
            self._send(run_id, messages.pop(0)[1])
