"""Questions of servers to the user: which are asked, for which call, and what the server gets."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Literal

from msgspec import Struct

from ...._core.ports import ApprovalDecision
from ...._core.ports.input_forms import InputForm, add_defaults, list_fields
from .server_tool import check_arguments

AskUser = Callable[[InputForm], Awaitable[ApprovalDecision]]
"""Function that asks the user for a call."""

_SECRET = re.compile(
    r"passw|passphrase|secret|api.?key|token|credential|\bpin\b|cvv|card.?number", re.I
)


async def decline(form: InputForm) -> ApprovalDecision:
    """Decline a question where no one can be asked."""
    return ApprovalDecision(False, "no one can be asked")


log = logging.getLogger("mudroom")


class InputReply(Struct, frozen=True):
    """Answer to a question of a server."""

    action: Literal["accept", "decline", "cancel"]
    values: dict[str, Any] | None = None


class Questions:
    """The questions of one server during its open calls.

    A server of the new era asks in the answer to a call. One of the old era sends a request of
    its own, which does not say for which call; it belongs to the latest open call.

    Arguments:
        server: name of the server.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._open: list[OpenQuestions] = []

    def begin(self, ask: AskUser, pause: Callable[[bool], object]) -> OpenQuestions:
        """Begin to take the questions of a call.

        Arguments:
            pause: stops the time limits of the call with true, continues them with false.
        """
        call = OpenQuestions(self, ask, pause)
        self._open.append(call)
        call.token = _CALL.set(call)
        return call

    def end(self, call: OpenQuestions) -> None:
        """End the questions of a call; open ones are withdrawn."""
        self._open.remove(call)
        _CALL.reset(call.token)
        for task in call.tasks:
            task.cancel()

    async def answer(self, form: InputForm) -> InputReply:
        """Ask the user; return the answer for the server."""
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
    """The questions of one open call."""

    def __init__(self, owner: Questions, ask: AskUser, pause: Callable[[bool], object]) -> None:
        self.ask = ask
        self.pause = pause
        self.tasks: set[asyncio.Future[ApprovalDecision]] = set()
        self.token: Any = None
        self._owner = owner

    def __enter__(self) -> OpenQuestions:
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.end(self)


_CALL: ContextVar[OpenQuestions | None] = ContextVar("open MCP call", default=None)
"""The call that this task makes, for servers that ask in the answer to it."""


def find_fault(form: InputForm) -> str:
    """Return why a question is not asked, "" if it is."""
    if form.url:
        is_web = form.url.startswith(("https://", "http://"))
        return "" if is_web else f"the address {form.url[:80]!r} is none of the web"
    for field in list_fields(form):
        text = f"{field.name} {field.title}"
        if _SECRET.search(text) or field.limits.get("format") == "password":
            return f"{field.name} is a secret; servers may ask for secrets by an address only"
    return ""
