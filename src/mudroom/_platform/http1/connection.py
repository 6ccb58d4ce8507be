"""A connection to a server: sends a request, and reads the response as its bytes arrive."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from msgspec import Struct

from ..wake_queue import WakeQueue
from .parser import (
    CannotConnect,
    ConnectionLost,
    HttpError,
    ResponseParser,
    SilentServer,
    UntrustedServer,
)

# Reads of all streams together; this many take about a tenth of a core.
_READS_PER_SECOND = 2_000
# Seconds between two reads of a stream, short enough for text to flow smoothly on a screen.
_MIN_INTERVAL = 0.02
_MAX_INTERVAL = 0.2
# A read is delayed at most by this share of its stream's age, so that short answers are not held
# up.
_MAX_DELAY_SHARE = 0.05


class PacedStream(Protocol):
    def end_wait(self) -> None: ...


class Pacer:
    """Makes busy streams wait before their next read. One timer serves all of them.

    A stream is open from the arrival of its head to its end.
    """

    def __init__(self) -> None:
        self.open_streams = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: list[PacedStream] = []
        self._next_read = 0.0

    def start_wait(self, stream: PacedStream, now: float, age: float, gap: float) -> bool:
        """Make a stream wait for the next common read; return whether it has to.

        Young streams do not wait, nor do those with at most two reads in an interval. `age` and
        `gap` are the seconds since the stream began and since its last read or wait.
        """
        interval = max(_MIN_INTERVAL, min(_MAX_INTERVAL, self.open_streams / _READS_PER_SECOND))
        next_read = self._next_read if self._waiting else now + interval
        if next_read - now > age * _MAX_DELAY_SHARE or gap > interval / 2:
            return False
        if not self._waiting:
            self._next_read = next_read
            self._loop.call_at(next_read, self._read_all)
        self._waiting.append(stream)
        return True

    def _read_all(self) -> None:
        streams = self._waiting
        self._waiting = []
        for stream in streams:
            stream.end_wait()


# Bytes of one read. If a server sends chunks of one byte, such a read takes up to 40 ms, during
# which nothing else runs.
_MAX_READ = 64 * 1024
# Bytes of a body that may wait for their reader; beyond that the connection is not read.
MAX_UNREAD = 256 * 1024
# Below this size a read itself costs more than handling its bytes, so the next one may wait.
_SMALL_READ = 16 * 1024
_NO_ENCRYPTION = "the server closed the connection before it was encrypted"
# Up to this size, head and body are joined so that they leave in one packet.
_SMALL_BODY = 64 * 1024


class SharedParts(Struct, eq=False):
    """What all connections of a pool share.

    `on_idle` is called with a connection that is free, because its released response has ended.
    asyncio would allocate a buffer for each read, which takes longer than the read itself.
    """

    loop: asyncio.AbstractEventLoop
    on_idle: Callable[[Connection], None]
    pacer: Pacer
    wakes: WakeQueue
    buffer: memoryview


def make_shared_parts(on_idle: Callable[[Connection], None]) -> SharedParts:
    buffer = memoryview(bytearray(_MAX_READ))
    return SharedParts(asyncio.get_running_loop(), on_idle, Pacer(), WakeQueue(), buffer)


class Connection(asyncio.BufferedProtocol):
    """A connection that carries one request at a time.

    `last_active` is the time of the event loop when bytes last moved or the request ended.
    """

    def __init__(self, shared: SharedParts) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_closed = False
        self.last_active = 0.0
        self._shared = shared
        self._encryption: Encryption | None = None
        self._parser: ResponseParser | None = None
        self._parts: list[bytes] = []
        self._error: HttpError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._unread = 0
        self._unsent = 0
        self._started = 0.0
        self._is_released = False
        self._is_waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of some event loops do not inherit from asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        """Encrypt the connection. Raises CannotConnect, UntrustedServer, ssl.SSLError."""
        transport = self.transport
        assert transport is not None
        below = self._encryption
        send = below.send if below else transport.write
        self._encryption = encryption = Encryption(tls, host, send, below)
        encryption.start()
        while not encryption.is_ready:
            if self._error is not None:
                raise self._error
            await self._wait()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        now = self._shared.loop.time()
        gap = now - self.last_active
        self.last_active = now
        data = self._shared.buffer[:nbytes]
        if self._encryption is None:
            data = bytes(data)
        elif not (data := self._decrypt(self._encryption, data)):
            return
        parser = self._parser
        if parser is None:
            # Bytes on an idle connection are no answer to anything.
            self.abort()
            return
        part = parser.feed(data)
        if self._is_released:
            if parser.error is not None:
                self.abort()
            self._end_released(parser)
            return
        if part:
            self._parts.append(part)
            self._unread += len(part)
        if error := parser.error or self._error:
            self._fail(error)
            return
        if parser.status and not parser.is_complete:
            self._start_wait(now, gap, is_small=nbytes < _SMALL_READ)
        if self._is_waiting or self._unread > MAX_UNREAD:
            self._pause()
        self._wake()

    def _decrypt(self, encryption: Encryption, data: memoryview) -> bytes:
        is_starting = not encryption.is_ready
        content = encryption.receive(data)
        if encryption.error is not None:
            kind = UntrustedServer if is_starting else ConnectionLost
            error = kind(str(encryption.error))
            if not content:
                self._fail(error)
            # Content that arrived before the error is delivered first.
            self._error = self._error or error
        if encryption.is_ended and self.transport is not None:
            self.is_closed = True
            # Later, so that the end of the connection is reported after this content.
            self._shared.loop.call_soon(self.transport.abort)
        elif is_starting and encryption.is_ready:
            self._wake()
        return content

    def _start_wait(self, now: float, gap: float, *, is_small: bool) -> None:
        pacer = self._shared.pacer
        if not self._started:
            self._started = now
            pacer.open_streams += 1
        if is_small:
            self._is_waiting = pacer.start_wait(self, now, now - self._started, gap)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        if self._encryption is not None and not self._encryption.is_ready:
            reason = exc.strerror if isinstance(exc, OSError) else ""
            self._fail(CannotConnect(reason or _NO_ENCRYPTION))
        parser = self._parser
        if parser is None or self._error is not None:
            return
        try:
            if exc is not None:
                raise ConnectionLost(str(exc) or type(exc).__name__)
            parser.feed_end()
        except HttpError as error:
            self._error = error
        self._wake()

    def send(self, head: bytes, body: bytes, *, is_tunnel: bool = False) -> None:
        """Send a request. Raises ConnectionLost."""
        transport = self.transport
        assert transport is not None
        self._parser = ResponseParser(is_tunnel=is_tunnel)
        self._end_stream()
        self._is_released = False
        self._unsent = 0
        self.last_active = self._shared.loop.time()
        write = self._encryption.send if self._encryption else transport.write
        try:
            if len(body) <= _SMALL_BODY:
                write(head + body)
            else:
                write(head)
                write(body)
        except ssl.SSLError as error:
            raise ConnectionLost(str(error)) from error

    async def read_head(self) -> ResponseParser:
        """Return the response as soon as its head has arrived. Raises HttpError."""
        parser = self._parser
        assert parser is not None
        while not parser.status:
            if self._error is not None:
                raise self._error
            await self._wait()
        return parser

    async def read(self) -> bytes:
        """Return the bytes of the body that have arrived, b"" at its end. Raises HttpError."""
        parts = self._parts
        while not parts:
            assert self._parser is not None
            if self._parser.is_complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        was_full = self._unread > MAX_UNREAD
        self._unread = 0
        if was_full:
            self.last_active = self._shared.loop.time()
            if not self._is_waiting:
                self._resume()
        return data

    def end_wait(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self.last_active = self._shared.loop.time()
            if self._unread <= MAX_UNREAD:
                self._resume()

    def release(self) -> None:
        """Stop using a response; drop the rest of it, so that the connection can be used again."""
        self._is_released = True
        self._parts.clear()
        self._unread = 0
        if self._parser is None or self._error is not None or self.is_closed:
            self.abort()
            return
        self._end_stream()
        self._resume()
        self._end_released(self._parser)

    def abort(self) -> None:
        """Close the connection at once, so that the server notices the cancelled request."""
        self.is_closed = True
        self._end_stream()
        if self.transport is not None:
            self.transport.abort()

    def check_silence(self, now: float, read_timeout: float) -> None:
        """End a request whose server has neither sent nor received anything for too long."""
        transport = self.transport
        if self._parser is None or transport is None or self._unread > MAX_UNREAD:
            return
        unsent = transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self.last_active = now
        if now - self.last_active >= read_timeout:
            self._fail(SilentServer())

    @property
    def is_draining(self) -> bool:
        return self._is_released and self._parser is not None

    def _end_stream(self) -> None:
        self._is_waiting = False
        if self._started:
            self._started = 0.0
            self._shared.pacer.open_streams -= 1

    def _end_released(self, parser: ResponseParser) -> None:
        if not parser.is_complete:
            return
        self._parser = None
        self.last_active = self._shared.loop.time()
        if not parser.is_reusable or parser.has_surplus:
            self.abort()
        self._shared.on_idle(self)

    def _pause(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self.transport is not None and not self.is_closed:
            self.transport.resume_reading()

    def _fail(self, error: HttpError) -> None:
        self._error = self._error or error
        self.abort()
        self._wake()

    async def _wait(self) -> None:
        self._waiter = waiter = self._shared.loop.create_future()
        await waiter

    def _wake(self) -> None:
        if self._waiter is not None:
            self._shared.wakes.wake(self._waiter)
            self._waiter = None


# Content of one TLS record; a larger buffer would never be filled.
_MAX_RECORD = 16 * 1024


class Encryption:
    """A TLS client over a transport, or over the encrypted connection to a proxy (`below`).

    No more content arrives after `is_ended`, or after `error`: what is wrong with the bytes.
    """

    def __init__(
        self,
        tls: ssl.SSLContext,
        host: str,
        send: Callable[[bytes], object],
        below: Encryption | None = None,
    ) -> None:
        self.is_ready = False
        self.is_ended = False
        self.error: ssl.SSLError | None = None
        self._send = send
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def start(self) -> None:
        self._continue_handshake()

    def send(self, content: bytes) -> None:
        """Encrypt content and send it. Raises ssl.SSLError."""
        self._tls.write(content)
        self._send(self._outgoing.read())

    def receive(self, data: bytes | memoryview) -> bytes:
        """Decrypt bytes from the server and return the complete content.

        If some cannot be decrypted, sets `error` and returns the content before them.
        """
        if self._below is not None:
            data = self._below.receive(data)
            self.is_ended = self._below.is_ended
            self.error = self._below.error
        self._incoming.write(data)
        if not self.is_ready:
            try:
                self._continue_handshake()
            except ssl.SSLError as error:
                self.error = error
        return self._read_content() if self.is_ready else b""

    def _continue_handshake(self) -> None:
        try:
            self._tls.do_handshake()
            self.is_ready = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self._send_answers()

    def _read_content(self) -> bytes:
        parts: list[bytes] = []
        tls = self._tls
        try:
            # Checked first, because a read without a whole record raises an exception, which
            # takes longer than a read.
            while self._incoming.pending or tls.pending():
                part = tls.read(_MAX_RECORD)
                if not part:
                    self.is_ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error
        finally:
            self._send_answers()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _send_answers(self) -> None:
        """Send what TLS itself has to say: the handshake, new keys, an alert."""
        if self._outgoing.pending:
            self._send(self._outgoing.read())
