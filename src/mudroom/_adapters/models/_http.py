"""A streaming HTTP client that repeats a request from the start until a response is complete."""

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
from ..._platform.http1.parser import HttpError
from ..._platform.http1.pool import ConnectionPool, Response
from ..._platform.patterns import compile_later
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

# Seconds without requests after an overload refusal that does not say how long to wait.
_REFUSAL_WAIT = 0.5
_MAX_TRIES = 8
# For failures that another attempt seldom overcomes, such as a missing server.
_FEW_TRIES = 3
_MAX_ERROR_BODY = 64 * 1024
# After this many seconds without visible text (pings, long tool arguments) an empty chunk shows
# the engine that the stream is alive.
_HEARTBEAT_SECONDS = 30.0
_UNKNOWN_PROVIDER = ProviderHints()
# A 200 of one of these types comes from a proxy, or a server that cannot stream.
_UNSTREAMED_TYPES = frozenset({"text/html", "application/json"})


# Stop reasons, in lower case, of answers ended by a full context window.
CONTEXT_FULL = frozenset(
    {"model_context_window_exceeded", "context_window_exceeded", "model_length", "error_limit"}
)

WINDOW_IS_FULL = "the answer reached the end of the context window"


class StreamCut(Exception):
    def __init__(self) -> None:
        super().__init__("the stream ended before the message did")


class StreamError(Exception):
    """An error inside a stream, with the HTTP status it would have had as a response."""

    def __init__(self, status: int, text: str, body: bytes = b"") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.body = body


def make_stream_error(error: object) -> StreamError:
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
    """What to do about a failed request: send another body, or use the answer in the failure."""

    change: str = ""  # how the next body differs, for the retry notice
    answer: AssistantMessage | None = None


class StreamReader(Protocol):
    """Reads a streamed answer of one protocol.

    `feed` may raise StreamError; a msgspec.DecodeError from it is treated as ModelGarbled.
    """

    @property
    def is_done(self) -> bool:
        """True once the message is complete and no more data is needed."""
        ...

    def feed(self, data: bytes) -> Sequence[StreamChunk]: ...

    def finish(self) -> AssistantMessage:
        """Return the whole message. Raises StreamCut if incomplete, ModelGarbled if unusable."""
        ...


class HttpClient:
    """HTTP connections to a provider, for one event loop, with one rate limiter.

    Arguments:
        limiter: shared with the provider's other clients; None gives the client its own.
        read_timeout: seconds without data after which a stream counts as broken.
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
        check_answer: Callable[[AssistantMessage], AssistantMessage | None] | None = None,
    ) -> AsyncGenerator[StreamChunk | RetryNotice | AssistantMessage, None]:
        """Post a body, and yield the answer's chunks, then the whole message.

        Yields a RetryNotice before each wait, which invalidates all chunks before it. A chunk
        without a kind only shows that the stream is alive. Close the generator (`aclosing`) to end
        the request.
        Raises ModelRefused, ModelUnavailable, ModelGarbled.

        Arguments:
            make_body, make_reader: make the body and a new reader; called for each attempt.
            handle_failure: called with a final failure; returns a Remedy, or None to give up.
            check_answer: returns the answer to yield, or None if another request continues it, or
                raises a ModelError.
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
                checked = check_answer(answer) if check_answer else answer
                if checked is None:
                    continue
                yield checked
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
        pool = self._pool
        self._pool = None
        if pool is not None:
            await pool.close()

    def open_pool(self) -> ConnectionPool:
        if self._pool is None:
            self._pool = ConnectionPool(read_timeout=self.read_timeout)
        return self._pool

    def _choose_retry_delay(
        self, failure: RequestFailure, attempt: int, few_tries_used: int
    ) -> float | None:
        has_tries = not failure.allows_few_tries or few_tries_used < _FEW_TRIES
        if not failure.is_retryable or not has_tries or attempt >= self._max_tries:
            return None
        if failure.retry_after > MAX_WAIT:
            return None
        return max(failure.retry_after, choose_delay(attempt, self._jitter()))


class _Exchange:
    """A request and its response. Call `close` at the end."""

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
        """Wait for data and return its visible chunks, or an empty chunk as a heartbeat."""
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
        self.close()
        return self._reader.finish()

    def close(self) -> None:
        """Release the connection and slot. Safe to call again."""
        if self._response is not None:
            self._response.close(is_answered=self._reader.is_done)
            self._response = None
        if self._slot is not None:
            self._client.limiter.release(self._slot)

    def classify(self, error: Exception) -> RequestFailure:
        """Classify an exception of this exchange, and report overload to the rate limiter."""
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
        """Read a final event that lacks its line end; no chunks if it is incomplete."""
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
    """Join neighbouring chunks of one kind, so that text arriving together is shown together."""
    if len(chunks) < 2:
        return chunks
    return [
        StreamChunk(kind, "".join([chunk.text for chunk in group]))
        for kind, group in groupby(chunks, attrgetter("kind"))
    ]


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Matches only the usual form: at most an event name before a single line of data. One pass of the
# regular expression engine is far cheaper than splitting lines in Python.
_USUAL_DATA = compile_later(rb"(?:\A|\n\n)(?:event: [^\n]*\n)?data: ([^\n]*)(?=\n\n|\Z)")
_DATA = compile_later(rb"\ndata: ?([^\n]*)")


class SseParser:
    """Parses server-sent events; comments and all fields except `data` are ignored."""

    def __init__(self) -> None:
        # The start of an event whose blank line has yet to arrive.
        self._parts: list[bytes] = []
        # A CR at the end of a chunk may be the first half of a CRLF.
        self._pending_cr = b""
        self._is_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
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
        """Return the last event if its blank line is missing; its data may be incomplete."""
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
    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line for line in lines if line.strip()]

    def flush(self) -> list[bytes]:
        return [self._rest] if self._rest.strip() else []
