"""Message feed: what a scope learns of its run while it works: messages, and the report."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable

from .._core.events import AnyEvent, RunFinished, ToolCallStarted, TurnFinished
from .._core.runs import Report

log = logging.getLogger("mudroom")

MAX_SHOWN_ARGUMENTS = 250
"""Maximum characters of a tool call's arguments in a message."""


class MessageFeed:
    """Messages about one run for a function of the user, in order.

    An exception of the function is logged once; the run and the later messages continue.

    Arguments:
        function: takes a text; may return an awaitable, which is awaited before the next call.

    Attributes:
        report: the recorded report of the run, None until it has ended. A caller who is cancelled
            gets no other.
    """

    def __init__(self, scope: str, function: Callable[[str], object]) -> None:
        self.report: Report | None = None
        self._run_id = ""
        self._scope = scope
        self._function = function
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_fault_logged = False

    def set_run(self, run_id: str) -> None:
        """Set the run whose events become messages."""
        self._run_id = run_id

    def observe(self, event: AnyEvent) -> None:
        """Queue the message of an event: the text of an answer, or one line per tool call.

        Keep the report.
        """
        if event.run != self._run_id:
            return
        if isinstance(event, TurnFinished) and event.message.text:
            self._texts.put_nowait(event.message.text)
        elif isinstance(event, RunFinished):
            self.report = event.report
        elif isinstance(event, ToolCallStarted):
            arguments = str(event.call.arguments)[:MAX_SHOWN_ARGUMENTS]
            name = event.call.name
            self._texts.put_nowait(f"**Executing tool: {name} with args {arguments}**")

    def end(self) -> None:
        """Accept no more messages; `deliver` returns after the queued ones."""
        self._texts.put_nowait(None)

    async def deliver(self) -> None:
        """Call the function with each message until `end`."""
        while (text := await self._texts.get()) is not None:
            try:
                result = self._function(text)
                if inspect.isawaitable(result):
                    await result
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                self._log_fault(error)
            except Exception as error:  # noqa: BLE001  a function of the user may raise anything
                self._log_fault(error)

    def _log_fault(self, error: BaseException) -> None:
        if self._is_fault_logged:
            return
        self._is_fault_logged = True
        log.error(
            "on_message of scope %r failed: %s: %s. The run continues. Later faults of this "
            "function are not logged.",
            self._scope,
            type(error).__name__,
            error,
            exc_info=error,
        )
