"""A call of a server's tool: its time limits, and the server's questions to the user."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from msgspec import Struct

from ...._core.ports import ApprovalDecision
from ...._core.ports.approval import InputForm, add_defaults, list_fields
from ...._platform.time_limits import time_limit_at
from .listing import check_arguments

log = logging.getLogger("mudroom")


class OpenCall:
    """A call's time limits: its whole duration, and the time without a sign of life."""

    def __init__(self, seconds: float, idle_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._last = self._loop.time() + seconds
        self._paused_at: list[float] = []
        self.timeout = time_limit_at(self._compute_deadline())

    def _compute_deadline(self) -> float:
        return min(self._last, self._loop.time() + self._idle_seconds)

    def extend(self) -> None:
        """Restart the time without a sign of life."""
        if not self.timeout.expired() and not self._paused_at:
            self.timeout.reschedule(self._compute_deadline())

    def pause(self, is_paused: bool) -> None:
        """Stop the time limits while the user answers a question, or resume them."""
        if is_paused:
            # A list, as a call may have several open questions: the clock resumes after the last.
            self._paused_at.append(self._loop.time())
            if not self.timeout.expired():
                self.timeout.reschedule(None)
        else:
            began = self._paused_at.pop()
            if not self._paused_at:
                self._last += self._loop.time() - began
                self.extend()

    def describe_timeout(self) -> str:
        if self._loop.time() >= self._last:
            return f"the call took more than {self._seconds:g} s"
        return f"it sent nothing for {self._idle_seconds:g} s"


AskUser = Callable[[InputForm], Awaitable[ApprovalDecision]]
"""Asks the user a question on behalf of a tool call."""

# The protocol forbids forms that ask for secrets; a form's answers are recorded.
_SECRET = re.compile(
    r"passw|passphrase|secret|api.?key|token|credential|\bpin\b|cvv|card.?number", re.I
)


async def decline(form: InputForm) -> ApprovalDecision:
    return ApprovalDecision(False, "no one can be asked")


class InputReply(Struct, frozen=True):
    action: Literal["accept", "decline", "cancel"]
    values: dict[str, Any] | None = None


class Questions:
    """A server's questions during its open calls.

    A modern server asks within its answer to a call. An older one sends a separate request that
    does not identify the call, and is attributed to the latest open one.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._open: list[OpenQuestions] = []

    @contextmanager
    def accept(self, ask: AskUser, pause: Callable[[bool], object]) -> Generator[None]:
        """Accept questions during a call; `pause` stops and resumes its time limits."""
        call = OpenQuestions(ask, pause)
        self._open.append(call)
        token = _CALL.set(call)
        try:
            yield
        finally:
            self._open.remove(call)
            _CALL.reset(token)
            for task in call.tasks:
                task.cancel()

    async def answer(self, form: InputForm) -> InputReply:
        if fault := find_fault(form):
            log.warning("server %s asked for input, which was declined: %s", self._server, fault)
            return InputReply("decline")
        call = _CALL.get()
        if call is None or call not in self._open:
            call = self._open[-1] if self._open else None
        if call is None:
            log.warning("server %s asked for input outside of a call; declined", self._server)
            return InputReply("decline")
        task = asyncio.ensure_future(call.ask(form))
        call.tasks.add(task)
        call.pause(True)
        try:
            decision = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                return InputReply("cancel")
            task.cancel()
            raise
        finally:
            call.tasks.discard(task)
            call.pause(False)
        return self._make_reply(form, decision)

    def _make_reply(self, form: InputForm, decision: ApprovalDecision) -> InputReply:
        if not decision.allowed:
            return InputReply("decline")
        if form.url:
            return InputReply("accept")
        values = add_defaults(form, decision.arguments or {})
        try:
            check_arguments(form.schema, values)
        except ValueError as error:
            log.warning(
                "server %s asked for input; the answer does not fit: %s", self._server, error
            )
            return InputReply("decline")
        return InputReply("accept", values)


class OpenQuestions:
    def __init__(self, ask: AskUser, pause: Callable[[bool], object]) -> None:
        self.ask = ask
        self.pause = pause
        self.tasks: set[asyncio.Future[ApprovalDecision]] = set()


# The call made by the current task, for servers that ask within their answer.
_CALL: ContextVar[OpenQuestions | None] = ContextVar("open MCP call", default=None)


def find_fault(form: InputForm) -> str:
    """Explain why a question must not be asked, "" if it may."""
    if form.url:
        is_web = form.url.startswith(("https://", "http://"))
        return "" if is_web else f"the address {form.url[:80]!r} is none of the web"
    for field in list_fields(form):
        text = f"{field.name} {field.title}"
        if _SECRET.search(text) or field.limits.get("format") == "password":
            return f"{field.name} is a secret; servers may ask for secrets by an address only"
    return ""
