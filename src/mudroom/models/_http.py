"""HTTP under the wires: one streamed request, made again as a whole until it came through as a whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from io import BytesIO
from typing import TYPE_CHECKING, Protocol

import msgspec

from .._core.messages import Assistant
from .._core.ports import Clock, Piece, Retry
from ..errors import ModelGarbled
from ._errors import (
    Failure,
    Origin,
    delay_asked,
    from_answer,
    from_exception,
    garbled,
    given_up,
    redacted,
    said,
    secrets_of,
)
from ._rate_limit import Closed, Gate, Pass
from ._sse import Sse

if TYPE_CHECKING:
    import aiohttp

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_TRIES, _TRIES_WHEN_DOWN = 8, 3
_LARGE = 1 << 20
_BOUND = 64 * 1024
_LINGER = 0.2
_SIGN = 30.0
"""Seconds after which a stream that says nothing of note (pings, the arguments of a long call) shows that it lives."""
_SOMEBODY = Origin()
_NO_STREAM = frozenset({"text/html", "application/json"})


class Cut(Exception):
    """The stream ended before the message did."""

    def __init__(self) -> None:
        super().__init__("the stream ended before the message did")


class Refused(Exception):
    """The provider reported an error inside a stream. `status` is what it would have been outside of it.

    Arguments:
        status: HTTP status; 408, 409, 429 and from 500 up are tried again. text: what the provider said.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


_EXPECTED = Failure, Refused, Cut, ModelGarbled, msgspec.DecodeError, UnicodeDecodeError


class Reader(Protocol):
    """Reads one streamed answer in some dialect.

    A msgspec.DecodeError out of `feed` counts as ModelGarbled; Refused may come out of it for an error inside the stream.
    """

    @property
    def done(self) -> bool:
        """Whether the message has ended whole, so that nothing more need be awaited."""
        ...

    def feed(self, data: bytes) -> Sequence[Piece]:
        """Take the data of one event."""
        ...

    def finish(self) -> Assistant:
        """The whole message. Raises Cut if it never ended, ModelGarbled if this was no such dialect."""
        ...


class Http:
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
        origin: Origin = _SOMEBODY,
        silence: float = 120.0,
        connect: float = 10.0,
        tries: int = _TRIES,
        connections: int = 1000,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.clock, self.origin = clock, origin
        self._silence, self._connect, self._tries, self._connections = (
            silence,
            connect,
            tries,
            connections,
        )
        self._chance, self._gate = chance, Gate(clock)
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = {}

    async def converse(
        self, url: str, headers: Mapping[str, str], body: bytes, reader: Callable[[], Reader]
    ) -> AsyncGenerator[Piece | Retry | Assistant, None]:
        """Post `body`, stream the answer's pieces, and last the whole message; `reader` makes a fresh Reader for each try.

        A piece without a kind is but a sign of life. Yields Retry before each wait: pieces since the request began are void
        then. Close the generator (`aclosing`) to end the request at once. Raises ModelRefused, ModelUnavailable, ModelGarbled.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                async with aclosing(self._try(url, headers, body, reader())) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except Failure as failure:
                delay = self._delay(failure, attempt)
                if delay is None:
                    raise given_up(failure, attempt) from None
                retry = Retry(attempt, delay, failure.status, failure.error.message)
            yield retry
            await self.clock.sleep(retry.delay)

    async def close(self) -> None:
        """Let go of all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _try(
        self, url: str, headers: Mapping[str, str], body: bytes, reader: Reader
    ) -> AsyncGenerator[Piece | Assistant, None]:
        import aiohttp

        session, sse = self._session or self._open(), Sse()
        data = body if len(body) < _LARGE else BytesIO(body)
        sent = await self._enter(url)
        try:
            async with session.post(
                url, data=data, headers=headers, proxy=self._proxy(url), allow_redirects=False
            ) as answer:
                if answer.status != 200 or answer.content_type in _NO_STREAM:
                    raise await self._unstreamed(url, answer, secrets_of(headers))
                self._gate.admitted(sent)
                shown = self.clock.monotonic()
                async for chunk in answer.content.iter_any():
                    pieces = [piece for event in sse.feed(chunk) for piece in reader.feed(event)]
                    if not pieces and self.clock.monotonic() - shown > _SIGN:
                        pieces = [Piece("", "")]
                    for piece in pieces:
                        shown = self.clock.monotonic()
                        yield piece
                    if reader.done:
                        break
                await _rest(answer)
            for piece in () if reader.done else _torn(reader, sse):
                yield piece
            yield reader.finish()
        except (*_EXPECTED, aiohttp.ClientError, OSError) as error:
            failure = self._sorted(url, error, secrets_of(headers))
            if failure.limit:
                self._gate.limited(sent, failure.wait or _FIRST_DELAY)
            raise failure from error
        finally:
            self._gate.leave(sent)

    async def _enter(self, url: str) -> Pass:
        try:
            return await self._gate.enter()
        except Closed as closed:
            raise from_answer(self.origin, url, 429, "", wait=closed.seconds) from None

    async def _unstreamed(
        self, url: str, answer: aiohttp.ClientResponse, secrets: tuple[str, ...]
    ) -> Failure:
        body = await answer.content.read(_BOUND)
        while len(body) < _BOUND and (more := await answer.content.read(_BOUND - len(body))):
            body += more
        if answer.status == 200:
            return garbled(
                self.origin,
                url,
                f"it sent {answer.content_type} instead of a stream: {said(body, secrets)}",
            )
        wait = delay_asked(answer.headers, self.clock.now())
        return from_answer(self.origin, url, answer.status, said(body, secrets), wait=wait)

    def _sorted(self, url: str, error: Exception, secrets: tuple[str, ...]) -> Failure:
        if isinstance(error, Failure):
            return error
        if isinstance(error, Refused):
            return from_answer(self.origin, url, error.status, redacted(error.text, secrets))
        if isinstance(error, ModelGarbled | msgspec.DecodeError | UnicodeDecodeError):
            return garbled(self.origin, url, redacted(str(error), secrets))
        return from_exception(self.origin, url, error, self._silence)

    def _delay(self, failure: Failure, attempt: int) -> float | None:
        """Seconds until the next try; None when there is none."""
        most = min(self._tries, _TRIES_WHEN_DOWN) if failure.down else self._tries
        if not failure.again or attempt >= most or failure.wait > self._gate.patience:
            return None
        return max(
            failure.wait, self._chance() * min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (attempt - 1))
        )

    def _open(self) -> aiohttp.ClientSession:
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


def _torn(reader: Reader, sse: Sse) -> Sequence[Piece]:
    """The pieces of a last event that lacked its blank line; nothing if it was torn."""
    try:
        return [piece for event in sse.end() for piece in reader.feed(event)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


async def _rest(answer: aiohttp.ClientResponse) -> None:
    """Let the stream end by itself, so that the connection can be used again; not for long."""
    with suppress(TimeoutError):
        if not answer.content.at_eof():
            async with asyncio.timeout(_LINGER):
                while await answer.content.readany():
                    pass
