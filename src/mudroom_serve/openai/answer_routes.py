"""AnswerRoutes: prompts via OpenAI's API, each followed to its answer, whole or streamed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from aiohttp import web

from mudroom import Reason, Report, TextBlock
from mudroom.events import AnyEvent, Delta, ModelCallRetried, RunFinished, TurnFinished
from mudroom.views import is_child_id, stream_events

from ..event_stream import TimedWriter, wait_for_change
from ..feed import SessionFeed
from ..request_errors import ErrorBody, ErrorFields, RequestError, make_wrong_request
from ..route import Call
from ..served_session import ServedSession, ServerParts
from ..session_registry import SessionRegistry
from ..session_routes import SessionRoutes, read_idempotency_key, respond
from ..state.inputs import Input, InputResult
from ..state.sessions import SessionRecord
from .requests import Wanted

UNUSED_HEADER = "Mudroom-Not-Used"


class AnswerRoutes:
    """Paths where a client sends a prompt and waits for its answer."""

    def __init__(
        self,
        sessions: SessionRoutes,
        parts: ServerParts,
        registry: SessionRegistry,
        closing: asyncio.Event,
    ) -> None:
        self._sessions = sessions
        self._parts = parts
        self._registry = registry
        self._closing = closing

    async def _add_session(
        self, call: Call, wanted: Wanted, kind: str
    ) -> tuple[SessionRecord, Input]:
        # Clients expect 404 for an unknown model, and may then choose another.
        try:
            session = wanted.make_session()
            record, item, _ = await self._sessions.add_session(call, session, kind=kind)
        except RequestError as error:
            if error.code != "unknown_agent":
                raise
            raise RequestError(404, "model_not_found", error.message, param="model") from None
        assert item
        return record, item

    def _follow(self, record: SessionRecord, item: Input, wanted: Wanted) -> PromptFollower:
        return PromptFollower(
            self._parts,
            self._registry,
            record,
            item,
            has_outputs=wanted.outputs is not None,
            closing=self._closing,
        )

    async def _send(
        self,
        call: Call,
        wanted: Wanted,
        follower: PromptFollower,
        answer: AsyncGenerator[bytes] | Callable[[str], dict[str, Any]],
    ) -> web.StreamResponse:
        """Send a prompt's answer: the lines of a stream, or what a function makes of its text.

        If the client leaves, and cannot ask again, the prompt is stopped.
        """
        headers = {UNUSED_HEADER: ", ".join(wanted.unused)} if wanted.unused else {}
        try:
            if not callable(answer):
                return await _send_stream(call, answer, headers, self._parts.options.write_seconds)
            text = await follower.read_text()
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            if not read_idempotency_key(call) and not self._closing.is_set():
                follower.cancel()
            raise
        response = respond(answer(text))
        response.headers.update(headers)
        return response


async def _send_stream(
    call: Call, lines: AsyncGenerator[bytes], headers: Mapping[str, str], seconds: float
) -> web.StreamResponse:
    """Send a stream; an error in it becomes its last message."""
    writer = await TimedWriter.open(call, seconds, headers)
    try:
        async for line in lines:
            await writer.write(line)
    except RequestError as error:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        fields = ErrorFields(message=error.message, type=kind, code=error.code)
        await writer.write(encode_line(ErrorBody(fields)))
    finally:
        await lines.aclose()
    return writer.response


def encode_line(value: object) -> bytes:
    """Encode a stream message without a name."""
    return b"data: %b\n\n" % msgspec.json.encode(value)


_CUT = (Reason.BUDGET, Reason.TIMEOUT, Reason.MAX_TURNS, Reason.LOOP, Reason.CANCELLED)


class PromptFollower:
    """The text of a prompt's answer, and its report.

    With outputs, the answer is their JSON, which comes at the end.
    """

    def __init__(
        self,
        parts: ServerParts,
        registry: SessionRegistry,
        record: SessionRecord,
        item: Input,
        *,
        has_outputs: bool,
        closing: asyncio.Event,
    ) -> None:
        self._parts = parts
        self._registry = registry
        self._record = record
        self._item = item
        self._has_outputs = has_outputs
        self._closing = closing
        self._events: deque[AnyEvent] = deque()
        self._report: Report[Any] | None = None

    @property
    def report(self) -> Report[Any]:
        """The report, after the last piece of text."""
        assert self._report
        return self._report

    async def read_text(self) -> str:
        async for _ in self.stream_text():
            pass
        if self._has_outputs:
            return msgspec.json.encode(self.report.outputs).decode()
        return self.report.text

    async def stream_text(self) -> AsyncGenerator[str]:
        """Yield pieces of the answer; "" after some time without one."""
        text = RunText()
        async with self._registry.follow(self._record.id) as feed:
            served = self._registry.find(self._record.id)

            def observe(event: AnyEvent) -> None:
                if served and served.current == self._item.number:
                    self._events.append(event)
                    feed.wake()

            if served:
                served.watchers.append(observe)
            try:
                async for piece in self._follow(text, served, feed):
                    yield piece
            finally:
                if served:
                    served.watchers.remove(observe)
        if self._has_outputs:
            yield msgspec.json.encode(self.report.outputs).decode()
        elif rest := text.end(self.report.text):
            yield rest

    async def _follow(
        self, text: RunText, served: ServedSession | None, feed: SessionFeed
    ) -> AsyncGenerator[str]:
        while True:
            change = feed.change
            while self._events:
                piece = text.add(self._events.popleft())
                if piece and not self._has_outputs:
                    yield piece
            is_here = served is not None and self._registry.find(self._record.id) is served
            is_working = is_here and served is not None and served.current == self._item.number
            if not is_working and await self._has_ended():
                return
            if self._closing.is_set():
                message = "the server stops; the session continues when it is started again"
                raise RequestError(503, "draining", f"{message}: {self._record.id}")
            if not await wait_for_change(change, self._parts.options.keepalive_seconds):
                yield ""

    async def _has_ended(self) -> bool:
        """Return whether the prompt has ended; if so, read its report."""
        item = await self._parts.inputs.find(self._item.number)
        if item is None:
            raise RequestError(409, "deleted", "the session was deleted")
        if item.state != "done":
            return False
        if item.result.error:
            raise convert_result(item.result)
        self._report = await read_report(self._parts, self._record.id, item.result)
        check_report(self._report)
        return True

    def cancel(self) -> None:
        """Stop the prompt, because its client has stopped waiting."""
        self._registry.cancel_prompt(self._record, self._item.number)


async def read_report(parts: ServerParts, session: str, result: InputResult) -> Report[Any]:
    # A repair can move it, and older versions did not note its position: then search everything.
    for after in dict.fromkeys((max(0, result.position - 1), 0)):
        events = stream_events(parts.store, session, (RunFinished,), after=after)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, RunFinished) and event.run == result.run:
                    return event.report
    raise RequestError(500, "failed", f"run {result.run} of session {session} has no report")


def check_report(report: Report[Any]) -> None:
    """Raise RequestError for a report without an answer."""
    if report.reason is Reason.GOAL or (report.reason in _CUT and report.text):
        return
    raise make_failure(report.reason.value, report.error or f"the run ended: {report.reason}")


def convert_result(result: InputResult) -> RequestError:
    if result.is_wrong:
        return make_wrong_request(result.error)
    return make_failure(result.reason, result.error)


def make_failure(reason: str, message: str) -> RequestError:
    match reason:
        case "CANCELLED":
            return RequestError(409, "cancelled", message)
        case "BUDGET":
            return RequestError(429, "budget_used_up", message)
        case "ERROR":
            return RequestError(502, "run_failed", message)
        case _:
            return RequestError(500, "failed", message)


_BETWEEN = "\n\n"


class RunText:
    """The root run's streamed text, turn by turn, without that of failed calls."""

    def __init__(self) -> None:
        self._turn = ""
        self._last_turn = ""
        self._has_sent = False
        self._is_void = False

    def add(self, event: AnyEvent) -> str:
        """Add an event; return the text it adds, "" for none."""
        if is_child_id(event.run):
            return ""
        match event:
            case Delta(kind="text") if not self._is_void:
                return self._add_to_turn(event.text)
            case ModelCallRetried():
                self._is_void = bool(self._turn)  # a stream cannot take text back
            case TurnFinished():
                return self._end_turn(event)
            case _:
                pass
        return ""

    def end(self, text: str) -> str:
        """Return the rest of the report's text."""
        if not text.strip() or text.strip() == self._last_turn.strip():
            return ""
        return f"{_BETWEEN}{text}" if self._has_sent else text

    def _add_to_turn(self, text: str) -> str:
        start = _BETWEEN if self._has_sent and not self._turn else ""
        self._turn += text
        self._has_sent = self._has_sent or bool(text)
        return start + text

    def _end_turn(self, event: TurnFinished) -> str:
        blocks = event.message.content
        whole = "".join(block.text for block in blocks if isinstance(block, TextBlock))
        sent = self._turn
        rest = whole.removeprefix(sent)
        if not whole.startswith(sent):
            self._turn = ""
            rest = whole
        added = self._add_to_turn(rest) if rest else ""
        self._turn = ""
        self._is_void = False
        self._last_turn = whole
        return added
