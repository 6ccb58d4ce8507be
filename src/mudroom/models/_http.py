"""Streaming HTTP client: retries a request from the start until a complete response has arrived."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec
from msgspec import Struct

from .._core.messages import AssistantMessage
from .._core.ports import Clock, RetryNotice, StreamChunk
from .._platform.http1.errors import HttpError
from .._platform.http1.pool import ConnectionPool, Response
from ..errors import ModelGarbled
from ._errors import (
    ProviderHints,
    RequestFailure,
    build_final_error,
    build_protocol_failure,
    classify_exception,
    classify_status,
    extract_error_text,
    find_secrets,
    parse_retry_after,
    redact,
)
from ._json import is_json
from ._rate_limit import MAX_WAIT, Permit, RateLimited, RateLimiter
from ._sse import SseParser

_FIRST_DELAY = 0.5
"""Upper bound in seconds of the random delay after the first failure; it doubles each time."""
_MAX_DELAY = 30.0
_MAX_TRIES = 8
_FEW_TRIES = 3
_MAX_ERROR_BODY = 64 * 1024
_HEARTBEAT_SECONDS = 30.0
"""Seconds without visible text (pings, long tool arguments) after which an empty chunk is sent."""
_UNKNOWN_PROVIDER = ProviderHints()
_UNSTREAMED_TYPES = frozenset({"text/html", "application/json"})


class StreamCut(Exception):
    """The stream ended before the message was complete."""

    def __init__(self) -> None:
        super().__init__("the stream ended before the message did")


class StreamError(Exception):
    """An error that the provider reported inside a stream.

    Arguments:
        status: the HTTP status it would have as a response; 408, 409, 429 and >= 500 are retried.
        text: the provider's error text.
        body: the error as JSON.
    """

    def __init__(self, status: int, text: str, body: bytes = b"") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.body = body


_STREAM_ERRORS = (
    HttpError,
    RequestFailure,
    StreamError,
    StreamCut,
    ModelGarbled,
    msgspec.DecodeError,
    UnicodeDecodeError,
)


class Remedy(Struct, frozen=True):
    """Remedy for a failed request: another body, or the answer that the failure holds.

    Arguments:
        change: how the next body differs, for the notice of the retry.
    """

    change: str = ""
    answer: AssistantMessage | None = None


class StreamReader(Protocol):
    """Reader of one streamed answer in one protocol.

    `feed` may raise StreamError; a msgspec.DecodeError from it counts as ModelGarbled.
    """

    @property
    def is_done(self) -> bool:
        """True if the message is complete, so that no more data is needed."""
        ...

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        """Read the data of one event and return its visible chunks."""
        ...

    def finish(self) -> AssistantMessage:
        """Return the whole message. Raises StreamCut if it is incomplete, and ModelGarbled."""
        ...


class HttpClient:
    """HTTP connections to one provider, for one event loop, with one rate limiter.

    Arguments:
        hints: names for error messages.
        read_timeout: seconds without data after which a stream counts as broken.
        max_tries: attempts of one request.
        jitter: returns a random number from 0 to 1, for the delay between attempts.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        hints: ProviderHints = _UNKNOWN_PROVIDER,
        read_timeout: float = 120.0,
        max_tries: int = _MAX_TRIES,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.clock = clock
        self.hints = hints
        self._read_timeout = read_timeout
        self._max_tries = max_tries
        self._jitter = jitter
        self._limiter = RateLimiter(clock)
        self._pool: ConnectionPool | None = None

    async def stream_answer(
        self,
        url: str,
        headers: Mapping[str, str],
        make_body: Callable[[], bytes],
        make_reader: Callable[[], StreamReader],
        handle_failure: Callable[[RequestFailure], Remedy | None] = lambda failure: None,
    ) -> AsyncGenerator[StreamChunk | RetryNotice | AssistantMessage, None]:
        """Post a body and yield the chunks of the answer, then the whole message.

        Yields a RetryNotice before each wait; all chunks before it are then invalid. A chunk
        without a kind only shows that the stream is alive. Close the generator (`aclosing`) to end
        the request.
        Raises ModelRefused, ModelUnavailable, ModelGarbled.

        Arguments:
            make_body, make_reader: return the body and a new reader; called once per attempt.
            handle_failure: called with a final failure; returns its remedy, None to give up.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                reader = make_reader()
                async with aclosing(self._send_once(url, headers, make_body, reader)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except RequestFailure as failure:
                delay = self._choose_retry_delay(failure, attempt)
                reason = failure.error.message
                if delay is None:
                    remedy = handle_failure(failure)
                    if remedy is None:
                        raise build_final_error(failure, attempt) from None
                    if remedy.answer is not None:
                        yield remedy.answer
                        return
                    reason = remedy.change
                    delay = 0.0
                notice = RetryNotice(attempt, delay, failure.status, reason)
            yield notice
            await self.clock.sleep(notice.delay)

    async def close(self) -> None:
        """Close all connections."""
        pool = self._pool
        self._pool = None
        if pool is not None:
            await pool.close()

    async def _send_once(
        self,
        url: str,
        headers: Mapping[str, str],
        make_body: Callable[[], bytes],
        reader: StreamReader,
    ) -> AsyncGenerator[StreamChunk | AssistantMessage, None]:
        if self._pool is None:
            self._pool = ConnectionPool(read_timeout=self._read_timeout)
        sse = SseParser()
        permit = await self._acquire_permit(url)
        try:
            response = await self._pool.post(url, headers, make_body)
            try:
                if response.status != 200 or response.content_type in _UNSTREAMED_TYPES:
                    raise await self._read_error(url, response, find_secrets(headers))
                self._limiter.record_accepted(permit)
                shown_at = self.clock.monotonic()
                while not reader.is_done and (data := await response.read()):
                    chunks = [chunk for event in sse.feed(data) for chunk in reader.feed(event)]
                    if not chunks and self.clock.monotonic() - shown_at > _HEARTBEAT_SECONDS:
                        chunks = [StreamChunk("", "")]
                    for chunk in chunks:
                        shown_at = self.clock.monotonic()
                        yield chunk
            finally:
                response.close(is_answered=reader.is_done)
            if not reader.is_done:
                for chunk in _read_last_event(reader, sse):
                    yield chunk
            yield reader.finish()
        except _STREAM_ERRORS as error:
            failure = self._classify(url, error, find_secrets(headers))
            if failure.is_rate_limit:
                self._limiter.record_refused(permit, failure.retry_after or _FIRST_DELAY)
            raise failure from error
        finally:
            self._limiter.release(permit)

    async def _acquire_permit(self, url: str) -> Permit:
        try:
            return await self._limiter.acquire()
        except RateLimited as limited:
            raise classify_status(self.hints, url, 429, "", retry_after=limited.seconds) from None

    async def _read_error(
        self, url: str, response: Response, secrets: tuple[str, ...]
    ) -> RequestFailure:
        body = b""
        while len(body) < _MAX_ERROR_BODY:
            data = await response.read()
            if not data:
                break
            body += data
        text = extract_error_text(body, secrets)
        if response.status == 200:
            reason = f"it sent {response.content_type} instead of a stream: {text}"
            is_unreadable = response.content_type == "application/json" and not is_json(body)
            return build_protocol_failure(self.hints, url, reason, is_unreadable=is_unreadable)
        retry_after = parse_retry_after(response.headers, self.clock.now())
        return classify_status(
            self.hints, url, response.status, text, retry_after=retry_after, body=body
        )

    def _classify(self, url: str, error: Exception, secrets: tuple[str, ...]) -> RequestFailure:
        if isinstance(error, RequestFailure):
            return error
        if isinstance(error, StreamError):
            text = redact(error.text, secrets)
            return classify_status(self.hints, url, error.status, text, body=error.body)
        if isinstance(error, ModelGarbled | msgspec.DecodeError | UnicodeDecodeError):
            reason = redact(str(error), secrets)
            is_unreadable = not isinstance(error, ModelGarbled)
            return build_protocol_failure(self.hints, url, reason, is_unreadable=is_unreadable)
        return classify_exception(self.hints, url, error, self._read_timeout)

    def _choose_retry_delay(self, failure: RequestFailure, attempt: int) -> float | None:
        """Return the seconds until the next attempt, None if there is none."""
        max_tries = self._max_tries
        if failure.needs_few_tries:
            max_tries = min(max_tries, _FEW_TRIES)
        if not failure.retryable or attempt >= max_tries:
            return None
        if failure.retry_after > MAX_WAIT:
            return None
        backoff = min(_MAX_DELAY, _FIRST_DELAY * 2 ** (attempt - 1))
        return max(failure.retry_after, self._jitter() * backoff)


def _read_last_event(reader: StreamReader, sse: SseParser) -> Sequence[StreamChunk]:
    """Return the chunks of a last event without its blank line; none if it is incomplete."""
    try:
        return [chunk for event in sse.flush() for chunk in reader.feed(event)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
