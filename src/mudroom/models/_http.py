"""HTTP under the wires: one streamed request, made again as a whole until it came through as a whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from io import BytesIO
from typing import TYPE_CHECKING, Protocol

import msgspec

from .._core.messages import AssistantMessage
from .._core.ports import Clock, RetryNotice, StreamChunk
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
from ._rate_limit import Permit, RateLimited, RateLimiter
from ._sse import SseParser

if TYPE_CHECKING:
    import aiohttp

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_TRIES, _TRIES_WHEN_DOWN = 8, 3
_LARGE_BODY = 1 << 20
_MAX_ERROR_BODY = 64 * 1024
_DRAIN_SECONDS = 0.2
_HEARTBEAT_SECONDS = 30.0
"""Seconds after which a stream that says nothing of note (pings, the arguments of a long call) shows that it lives."""
_UNKNOWN_PROVIDER = ProviderHints()
_UNSTREAMED_TYPES = frozenset({"text/html", "application/json"})


class StreamCut(Exception):
    """The stream ended before the message did."""

    def __init__(self) -> None:
        super().__init__("the stream ended before the message did")


class StreamError(Exception):
    """The provider reported an error inside a stream. `status` is what it would have been outside of it.

    Arguments:
        status: HTTP status; 408, 409, 429 and from 500 up are tried again. text: what the provider said.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


_STREAM_ERRORS = (
    RequestFailure,
    StreamError,
    StreamCut,
    ModelGarbled,
    msgspec.DecodeError,
    UnicodeDecodeError,
)


class StreamReader(Protocol):
    """Reads one streamed answer in some dialect.

    A msgspec.DecodeError out of `feed` counts as ModelGarbled; Refused may come out of it for an error inside the stream.
    """

    @property
    def is_done(self) -> bool:
        """Whether the message has ended whole, so that nothing more need be awaited."""
        ...

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        """Take the data of one event."""
        ...

    def finish(self) -> AssistantMessage:
        """The whole message. Raises Cut if it never ended, ModelGarbled if this was no such dialect."""
        ...


class HttpClient:
    """The connections to one provider, for one event loop, with the gate all its requests pass.

    Arguments:
        clock: time. origin: whom this is, for messages to people.
        silence: seconds a stream may say nothing. connect: seconds a connection may take. tries: most tries of one request.
        connections: most connections to one host. chance: a random number from 0 to 1, for jitter.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        hints: ProviderHints = _UNKNOWN_PROVIDER,
        read_timeout: float = 120.0,
        connect_timeout: float = 10.0,
        max_tries: int = _TRIES,
        max_connections: int = 1000,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.clock, self.origin = clock, hints
        self._silence, self._connect, self._tries, self._connections = (
            read_timeout,
            connect_timeout,
            max_tries,
            max_connections,
        )
        self._chance, self._gate = jitter, RateLimiter(clock)
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = {}

    async def stream_answer(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        make_reader: Callable[[], StreamReader],
    ) -> AsyncGenerator[StreamChunk | RetryNotice | AssistantMessage, None]:
        """Post `body`, stream the answer's pieces, and last the whole message; `reader` makes a fresh Reader for each try.

        A piece without a kind is but a sign of life. Yields Retry before each wait: pieces since the request began are void
        then. Close the generator (`aclosing`) to end the request at once. Raises ModelRefused, ModelUnavailable, ModelGarbled.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                async with aclosing(self._send_once(url, headers, body, make_reader())) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except RequestFailure as failure:
                delay = self._retry_delay(failure, attempt)
                if delay is None:
                    raise build_final_error(failure, attempt) from None
                retry = RetryNotice(attempt, delay, failure.status, failure.error.message)
            yield retry
            await self.clock.sleep(retry.delay)

    async def close(self) -> None:
        """Let go of all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send_once(
        self, url: str, headers: Mapping[str, str], body: bytes, reader: StreamReader
    ) -> AsyncGenerator[StreamChunk | AssistantMessage, None]:
        import aiohttp

        session, sse = self._session or self._open_session(), SseParser()
        data = body if len(body) < _LARGE_BODY else BytesIO(body)
        sent = await self._acquire_permit(url)
        try:
            async with session.post(
                url, data=data, headers=headers, proxy=self._proxy(url), allow_redirects=False
            ) as answer:
                if answer.status != 200 or answer.content_type in _UNSTREAMED_TYPES:
                    raise await self._read_error(url, answer, find_secrets(headers))
                self._gate.record_accepted(sent)
                shown = self.clock.monotonic()
                async for chunk in answer.content.iter_any():
                    pieces = [piece for event in sse.feed(chunk) for piece in reader.feed(event)]
                    if not pieces and self.clock.monotonic() - shown > _HEARTBEAT_SECONDS:
                        pieces = [StreamChunk("", "")]
                    for piece in pieces:
                        shown = self.clock.monotonic()
                        yield piece
                    if reader.is_done:
                        break
                await _drain(answer)
            for piece in () if reader.is_done else _read_last_event(reader, sse):
                yield piece
            yield reader.finish()
        except (*_STREAM_ERRORS, aiohttp.ClientError, OSError) as error:
            failure = self._classify(url, error, find_secrets(headers))
            if failure.is_rate_limit:
                self._gate.record_refused(sent, failure.wait or _FIRST_DELAY)
            raise failure from error
        finally:
            self._gate.release(sent)

    async def _acquire_permit(self, url: str) -> Permit:
        try:
            return await self._gate.acquire()
        except RateLimited as closed:
            raise classify_status(self.origin, url, 429, "", retry_after=closed.seconds) from None

    async def _read_error(
        self, url: str, answer: aiohttp.ClientResponse, secrets: tuple[str, ...]
    ) -> RequestFailure:
        body = await answer.content.read(_MAX_ERROR_BODY)
        while len(body) < _MAX_ERROR_BODY and (
            more := await answer.content.read(_MAX_ERROR_BODY - len(body))
        ):
            body += more
        if answer.status == 200:
            return build_protocol_failure(
                self.origin,
                url,
                f"it sent {answer.content_type} instead of a stream: {extract_error_text(body, secrets)}",
            )
        wait = parse_retry_after(answer.headers, self.clock.now())
        return classify_status(
            self.origin, url, answer.status, extract_error_text(body, secrets), retry_after=wait
        )

    def _classify(self, url: str, error: Exception, secrets: tuple[str, ...]) -> RequestFailure:
        if isinstance(error, RequestFailure):
            return error
        if isinstance(error, StreamError):
            return classify_status(self.origin, url, error.status, redact(error.text, secrets))
        if isinstance(error, ModelGarbled | msgspec.DecodeError | UnicodeDecodeError):
            return build_protocol_failure(self.origin, url, redact(str(error), secrets))
        return classify_exception(self.origin, url, error, self._silence)

    def _retry_delay(self, failure: RequestFailure, attempt: int) -> float | None:
        """Seconds until the next try; None when there is none."""
        most = min(self._tries, _TRIES_WHEN_DOWN) if failure.down else self._tries
        if not failure.again or attempt >= most or failure.wait > self._gate.patience:
            return None
        return max(
            failure.wait, self._chance() * min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (attempt - 1))
        )

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, limit_per_host=self._connections, keepalive_timeout=30
            ),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._connect, sock_read=self._silence
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent",),
        )
        return self._session

    def _proxy(self, url: str) -> str | None:
        """The proxy the environment names for a URL, none for this machine; looked up once a host, as that takes longer than a request."""
        scheme, _, rest = url.partition("://")
        host = rest.partition("/")[0].rpartition("@")[2]
        if host not in self._proxies:
            from urllib.request import getproxies, proxy_bypass

            here = host.startswith(("127.", "localhost", "[::1]"))
            proxies = {} if here or proxy_bypass(host) else getproxies()
            self._proxies[host] = proxies.get(scheme) or proxies.get("all")
        return self._proxies[host]


def _read_last_event(reader: StreamReader, sse: SseParser) -> Sequence[StreamChunk]:
    """The pieces of a last event that lacked its blank line; nothing if it was torn."""
    try:
        return [piece for event in sse.flush() for piece in reader.feed(event)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


async def _drain(answer: aiohttp.ClientResponse) -> None:
    """Let the stream end by itself, so that the connection can be used again; not for long."""
    with suppress(TimeoutError):
        if not answer.content.at_eof():
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await answer.content.readany():
                    pass
