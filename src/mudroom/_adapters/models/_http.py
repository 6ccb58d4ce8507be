"""Streaming HTTP client: retries a request from the start until a complete response has arrived."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Protocol

import msgspec
from msgspec import Struct

from ..._core.messages import AssistantMessage
from ..._core.ports import (
    Clock,
    RateLimited,
    RateLimiter,
    RequestSlot,
    RetryNotice,
    StreamChunk,
)
from ..._platform.http1.errors import HttpError
from ..._platform.http1.pool import ConnectionPool, Response
from ..._platform.lazy_pattern import compile_later
from ...errors import ModelGarbled
from ._errors import (
    ProviderHints,
    RequestFailure,
    build_final_error,
    build_protocol_failure,
    choose_delay,
    classify_exception,
    classify_status,
    extract_error_text,
    find_error_message,
    find_secrets,
    redact,
)
from ._json import encode, is_json
from ._rate_limit import MAX_WAIT, AdaptiveRateLimiter, read_room

_REFUSAL_WAIT = 0.5
"""Seconds without requests after a refusal for overload that asks for no wait."""
_MAX_TRIES = 8
_FEW_TRIES = 3
_MAX_ERROR_BODY = 64 * 1024
_HEARTBEAT_SECONDS = 30.0
"""Seconds without visible text (pings, long tool arguments) after which an empty chunk is sent."""
_UNKNOWN_PROVIDER = ProviderHints()
_UNSTREAMED_TYPES = frozenset({"text/html", "application/json"})


CONTEXT_FULL = frozenset(
    {"model_context_window_exceeded", "context_window_exceeded", "model_length", "error_limit"}
)
"""Stop reasons in lower case of answers that ended because no room was left for them."""

WINDOW_IS_FULL = "the answer reached the end of the context window"
"""Error of an answer that stopped for one of these reasons."""


class StreamCut(Exception):
    """The stream ended before the message was complete."""

    def __init__(self) -> None:
        super().__init__("the stream ended before the message did")


class StreamError(Exception):
    """An error that the provider reported inside a stream.

    Arguments:
        status: the HTTP status it would have as a response.
        text: the provider's error text.
        body: the error as JSON.
    """

    def __init__(self, status: int, text: str, body: bytes = b"") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.body = body


def make_stream_error(error: object) -> StreamError:
    """Return the StreamError for an error of a stream, decoded from its JSON."""
    from .refusals.classifier import find_status  # only a failure needs it

    text = find_error_message(error) or "the provider sent an error"
    return StreamError(find_status(error), text, encode(error))


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
        limiter: the rate limiter of the provider; None: one of this client alone.
        read_timeout: seconds without data after which a stream counts as broken.
        max_tries: attempts of one request.
        jitter: returns a random number from 0 to 1, for the delay between attempts.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        hints: ProviderHints = _UNKNOWN_PROVIDER,
        limiter: RateLimiter | None = None,
        read_timeout: float = 120.0,
        max_tries: int = _MAX_TRIES,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.clock = clock
        self.hints = hints
        self.read_timeout = read_timeout
        self._max_tries = max_tries
        self._jitter = jitter
        self.limiter = limiter or AdaptiveRateLimiter(clock)
        self._pool: ConnectionPool | None = None

    async def stream_answer(
        self,
        url: str,
        headers: Mapping[str, str],
        make_body: Callable[[], bytes],
        make_reader: Callable[[], StreamReader],
        handle_failure: Callable[[RequestFailure], Remedy | None] = lambda failure: None,
        check_answer: Callable[[AssistantMessage], AssistantMessage] | None = None,
    ) -> AsyncGenerator[StreamChunk | RetryNotice | AssistantMessage, None]:
        """Post a body and yield the chunks of the answer, then the whole message.

        Yields a RetryNotice before each wait; all chunks before it are then invalid. A chunk
        without a kind only shows that the stream is alive. Close the generator (`aclosing`) to end
        the request.
        Raises ModelRefused, ModelUnavailable, ModelGarbled.

        Arguments:
            make_body, make_reader: return the body and a new reader; called once per attempt.
            handle_failure: called with a final failure; returns its remedy, None to give up.
            check_answer: returns the answer to yield, or raises a ModelError.
        """
        attempt = 0
        few_tries_used = 0
        while True:
            attempt += 1
            exchange = _Exchange(self, url, headers, make_reader())
            try:
                await exchange.send(make_body)
                while not exchange.is_complete:
                    for chunk in await exchange.read():
                        yield chunk
                answer = exchange.finish()
                yield check_answer(answer) if check_answer else answer
                return
            except _STREAM_ERRORS as error:
                failure = exchange.classify(error)
            finally:
                exchange.close()
            few_tries_used += failure.allows_few_tries
            delay = self._choose_retry_delay(failure, attempt, few_tries_used)
            reason = failure.error.message
            if delay is None:
                remedy = handle_failure(failure)
                if remedy is None:
                    raise build_final_error(failure, attempt)
                if remedy.answer is not None:
                    yield remedy.answer
                    return
                reason = remedy.change
                delay = 0.0
            yield RetryNotice(attempt, delay, failure.status, reason)
            await self.clock.sleep(delay)

    async def close(self) -> None:
        """Close all connections."""
        pool = self._pool
        self._pool = None
        if pool is not None:
            await pool.close()

    def open_pool(self) -> ConnectionPool:
        """Return the connections; open them at the first call."""
        if self._pool is None:
            self._pool = ConnectionPool(read_timeout=self.read_timeout)
        return self._pool

    def _choose_retry_delay(
        self, failure: RequestFailure, attempt: int, few_tries_used: int
    ) -> float | None:
        """Return the seconds until the next attempt, None if there is none.

        Arguments:
            few_tries_used: attempts with a failure that `allows_few_tries`.
        """
        has_tries = not failure.allows_few_tries or few_tries_used < _FEW_TRIES
        if not failure.is_retryable or not has_tries or attempt >= self._max_tries:
            return None
        if failure.retry_after > MAX_WAIT:
            return None
        return max(failure.retry_after, choose_delay(attempt, self._jitter()))


class _Exchange:
    """One request and its response. Call `close` at the end.

    Attributes:
        is_complete: true if the whole response was read.
    """

    def __init__(
        self, client: HttpClient, url: str, headers: Mapping[str, str], reader: StreamReader
    ) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._reader = reader
        self._events: LineParser | SseParser = SseParser()
        self._slot: RequestSlot | None = None
        self._response: Response | None = None
        self._silent_since: float | None = None
        self.is_complete = False

    async def send(self, make_body: Callable[[], bytes]) -> None:
        """Send the request and wait until the answer starts. Raises RequestFailure, HttpError."""
        client = self._client
        try:
            self._slot = slot = await client.limiter.acquire()
        except RateLimited as limited:
            headers = {"retry-after": str(limited.seconds)}
            raise classify_status(client.hints, self._url, 429, "", headers=headers) from None
        self._response = response = await client.open_pool().post(
            self._url, self._headers, make_body
        )
        content_type = response.content_type
        if response.status != 200 or content_type in _UNSTREAMED_TYPES:
            raise await self._read_error(response)
        if content_type == "application/x-ndjson":
            self._events = LineParser()
        room = read_room(response.headers, response.request_size)
        client.limiter.record_accepted(slot, room)

    async def read(self) -> Sequence[StreamChunk]:
        """Wait for data and return the visible chunks in it, or an empty one as a heartbeat."""
        assert self._response is not None
        reader = self._reader
        if data := await self._response.read():
            chunks = join_chunks(
                [chunk for event in self._events.feed(data) for chunk in reader.feed(event)]
            )
            self.is_complete = reader.is_done
        else:
            chunks = self._read_last_event()
            self.is_complete = True
        if chunks:
            self._silent_since = None
        elif self._is_heartbeat_due():
            chunks = [StreamChunk("", "")]
        return chunks

    def _is_heartbeat_due(self) -> bool:
        now = self._client.clock.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since <= _HEARTBEAT_SECONDS:
            return False
        self._silent_since = now
        return True

    def finish(self) -> AssistantMessage:
        """Return the whole message and close. Raises StreamCut, ModelGarbled."""
        self.close()
        return self._reader.finish()

    def close(self) -> None:
        """Give back the connection and the slot. May be called again."""
        if self._response is not None:
            self._response.close(is_answered=self._reader.is_done)
            self._response = None
        if self._slot is not None:
            self._client.limiter.release(self._slot)

    def classify(self, error: Exception) -> RequestFailure:
        """Return the failure that an exception of this exchange means; tell the rate limiter."""
        failure = self._to_failure(error)
        if failure.is_load and self._slot is not None:
            retry_after = failure.retry_after or _REFUSAL_WAIT
            self._client.limiter.record_refused(self._slot, retry_after)
        return failure

    def _to_failure(self, error: Exception) -> RequestFailure:
        hints = self._client.hints
        secrets = find_secrets(self._headers)
        if isinstance(error, RequestFailure):
            return error
        if isinstance(error, StreamError):
            text = redact(error.text, secrets)
            now = self._client.clock.now()
            return classify_status(hints, self._url, error.status, text, body=error.body, now=now)
        if isinstance(error, ModelGarbled | msgspec.DecodeError | UnicodeDecodeError):
            reason = redact(str(error), secrets)
            is_unreadable = not isinstance(error, ModelGarbled)
            return build_protocol_failure(hints, self._url, reason, is_unreadable=is_unreadable)
        return classify_exception(hints, self._url, error, self._client.read_timeout)

    def _read_last_event(self) -> list[StreamChunk]:
        """Return the chunks of a last event that lacks its line end; none if it is incomplete."""
        try:
            return [c for event in self._events.flush() for c in self._reader.feed(event)]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []

    async def _read_error(self, response: Response) -> RequestFailure:
        body = b""
        while len(body) < _MAX_ERROR_BODY:
            data = await response.read()
            if not data:
                break
            body += data
        hints = self._client.hints
        text = extract_error_text(body, find_secrets(self._headers))
        if response.status == 200:
            reason = f"it sent {response.content_type} instead of a stream: {text}"
            is_unreadable = response.content_type == "application/json" and not is_json(body)
            return build_protocol_failure(hints, self._url, reason, is_unreadable=is_unreadable)
        now = self._client.clock.now()
        return classify_status(
            hints, self._url, response.status, text, headers=response.headers, body=body, now=now
        )


def join_chunks(chunks: list[StreamChunk]) -> list[StreamChunk]:
    """Join neighbours of one kind: what arrives together is shown together."""
    if len(chunks) < 2:
        return chunks
    return [
        StreamChunk(kind, "".join([chunk.text for chunk in group]))
        for kind, group in groupby(chunks, attrgetter("kind"))
    ]


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_USUAL_DATA = compile_later(rb"(?:\A|\n\n)(?:event: [^\n]*\n)?data: ([^\n]*)(?=\n\n|\Z)")
"""The data of each event that has one line of data, and before it at most its name."""
_DATA = compile_later(rb"\ndata: ?([^\n]*)")


class SseParser:
    """Parser for one stream.

    Comments and all fields except `data` are ignored. Lines may end in LF, CRLF or CR.
    """

    def __init__(self) -> None:
        # The start of an event whose blank line has not arrived.
        self._parts: list[bytes] = []
        # A CR at the end of a chunk may be the first half of a CRLF.
        self._pending_cr = b""
        self._is_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that this chunk completes."""
        if self._pending_cr:
            chunk = self._pending_cr + chunk
            self._pending_cr = b""
        if b"\r" in chunk:
            if chunk.endswith(b"\r"):
                chunk = chunk[:-1]
                self._pending_cr = b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not chunk:
            return []
        parts = self._parts
        ends_blank_line = chunk[:1] == b"\n" and parts and parts[-1][-1:] == b"\n"
        parts.append(chunk)
        if b"\n\n" not in chunk and not ends_blank_line:
            return []
        complete, _, rest = b"".join(parts).rpartition(b"\n\n")
        self._parts = [rest] if rest else []
        return self._parse_events(complete)

    def flush(self) -> list[bytes]:
        """Return the last event if only its blank line is missing; its data may be incomplete."""
        return self._parse_events(b"".join(self._parts))

    def _parse_events(self, text: bytes) -> list[bytes]:
        if self._is_start:
            text = text.removeprefix(_BYTE_ORDER_MARK)
            self._is_start = False
        usual = _USUAL_DATA.findall(text)
        if len(usual) == text.count(b"\n\n") + 1:
            return usual
        lines = [_DATA.findall(b"\n" + event) for event in text.split(b"\n\n")]
        return [b"\n".join(data) for data in lines if data]


class LineParser:
    """Parser for one stream of JSON values, one on each line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line for line in lines if line.strip()]

    def flush(self) -> list[bytes]:
        """Return the last line without its end; it may be incomplete."""
        return [self._rest] if self._rest.strip() else []
