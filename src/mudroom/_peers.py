"""One connection to another program: requests both ways, arriving messages, and their encodings.

Editors, agent SDKs, worker processes and the driver of a cluster all talk to mudroom through these
parts. `Peer` knows which requests are open in either direction. `MessageStream` carries messages
over a link of bytes, such as the socket of `ProgramLink`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import msgspec

from ._core.json_values import clean_json, make_binary_decoder
from ._platform.child_programs import end_program, start_program
from ._platform.processes import kill_process
from ._platform.time_limits import time_limit

if TYPE_CHECKING:
    from ._core.ports import ByteLink

Message = TypeVar("Message")
Result = TypeVar("Result")
Received = TypeVar("Received")


class PeerGone(Exception):
    """The other program answers no more requests.

    Example:
        peer = Peer[dict[str, object], str](print)
        peer.end()
        try:
            await peer.request(lambda number: {"id": number, "method": "ping"})
        except PeerGone:
            print("the client has closed its end")
    """

    def __init__(self) -> None:
        super().__init__("the other program answers no more requests")


class Peer(Generic[Message, Result]):
    """The open requests between this program and another one.

    It receives nothing itself: the owner tells it what arrived. An answer that comes late, twice,
    or to a request that was never made is ignored.

    Arguments:
        send: sends a message to the other program.

    Attributes:
        is_gone: whether the other program answers no more.

    Example:
        peer = Peer[dict[str, object], str](lambda message: receive_answer(message["id"]))

        def receive_answer(number: int) -> None:  # called for each message that arrives
            peer.settle(number, "fine")

        answer = await peer.request(lambda number: {"id": number, "text": "How are you?"})
        answer == "fine"
    """

    def __init__(self, send: Callable[[Message], object]) -> None:
        self.is_gone = False
        self._send = send
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Result]] = {}
        self._served: dict[Hashable, asyncio.Task[None]] = {}

    def make_number(self) -> int:
        """Return a number that no other request of this side has."""
        return next(self._numbers)

    async def request(
        self,
        make_request: Callable[[int], Message],
        make_withdrawal: Callable[[int], Message] | None = None,
    ) -> Result:
        """Send a request and wait for its answer.

        Put a time limit around it if the other program may never answer.

        Arguments:
            make_request: returns the request with this number.
            make_withdrawal: returns the message that is sent if the caller is cancelled while the
                other program is there. The answer may be on its way then.

        Raises PeerGone when the other program has gone, now or before the answer, and whatever
        error the answer is.
        """
        if self.is_gone:
            raise PeerGone
        number = next(self._numbers)
        self._asked[number] = future = asyncio.get_running_loop().create_future()
        try:
            self._send(make_request(number))
            return await future
        except BaseException as error:
            self._asked.pop(number, None)
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if is_cancelled and make_withdrawal is not None and not self.is_gone:
                self._send(make_withdrawal(number))
            raise

    def settle(self, number: int, result: Result) -> None:
        """Answer a request of this side.

        Arguments:
            number: of the request.
            result: what `request` returns.
        """
        future = self._asked.pop(number, None)
        if future is not None and not future.done():
            future.set_result(result)

    def fail(self, number: int, error: Exception) -> None:
        """Answer a request of this side with an error.

        Arguments:
            number: of the request.
            error: what `request` raises.
        """
        future = self._asked.pop(number, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def end(self) -> None:
        """Fail all requests of this side, and all later ones: the other program has gone."""
        self.is_gone = True
        for number in list(self._asked):
            self.fail(number, PeerGone())

    def serve(
        self,
        key: Hashable,
        work: Coroutine[Any, Any, None],
        on_error: Callable[[BaseException], object],
    ) -> None:
        """Work on a request of the other program in a task of its own.

        Arguments:
            key: the other program's id of the request. While it is served, no other has it.
            work: carries the request out, and sends the answer.
            on_error: called with the error of `work`, so that the other program is told and does
                not wait. A cancel counts, even one that comes before `work` has begun.
        """
        self._served[key] = task = asyncio.create_task(work)
        task.add_done_callback(partial(self._end_serving, key, on_error))

    def _end_serving(
        self, key: Hashable, on_error: Callable[[BaseException], object], task: asyncio.Task[None]
    ) -> None:
        del self._served[key]
        if task.cancelled():
            on_error(asyncio.CancelledError())
        elif error := task.exception():
            on_error(error)

    def is_serving(self, key: Hashable) -> bool:
        """Return whether a request of the other program is open.

        Arguments:
            key: the other program's id of the request.
        """
        return key in self._served

    def cancel(self, key: Hashable) -> bool:
        """Cancel a request that the other program withdraws. Return False if it is not open.

        Arguments:
            key: the other program's id of the request.
        """
        task = self._served.get(key)
        return task is not None and task.cancel()

    async def finish(self) -> None:
        """Wait until no request of the other program is open."""
        while self._served:
            await asyncio.gather(*self._served.values(), return_exceptions=True)

    async def stop(self) -> None:
        """Cancel the requests of the other program, and wait until none is open."""
        for task in self._served.values():
            task.cancel()
        await self.finish()


class Arrivals:
    """Bytes that have arrived from another program and have not been read.

    Attributes:
        has_ended: whether no more arrive.
    """

    def __init__(self) -> None:
        self.has_ended = False
        self._unread: list[bytes] = []
        self._arrival: asyncio.Future[None] | None = None

    def add(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        self._unread.append(data)
        self._wake()

    def end(self) -> None:
        """Note that nothing more arrives. Earlier bytes can still be read."""
        self.has_ended = True
        self._wake()

    async def receive(self) -> bytes:
        """Return all bytes that have arrived, at least one; none after the last ones."""
        while not self._unread and not self.has_ended:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        data = b"".join(self._unread)
        self._unread.clear()
        return data

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


class Outbox:
    """Messages to another program, sent as one frame for each turn of the event loop.

    A wake-up costs the reader as much as several messages: so it should find several.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._unsent: list[bytes] = []

    def add(self, message: msgspec.Struct) -> None:
        unsent = self._unsent
        if not unsent:
            asyncio.get_running_loop().call_soon(self.flush)
        unsent.append(encode(message))

    def flush(self) -> None:
        if self._unsent:
            frame = make_frame(self._unsent)
            self._unsent.clear()
            self._write(frame)


# Frames: arrays of messages as msgpack, each array with its length in bytes before it.

_LENGTH_BYTES = 4
_ARRAY = b"\xdd"
"""Begin of an array in msgpack; four bytes with the number of its elements follow."""
_ENCODER = msgspec.msgpack.Encoder()


def encode(value: object) -> bytes:
    """Return a value as msgpack, with its lone surrogates replaced."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:  # a lone surrogate in a file name or a model's text
        return _ENCODER.encode(clean_json(msgspec.to_builtins(value)))


def make_frame(messages: Sequence[bytes]) -> bytes:
    head = _ARRAY + len(messages).to_bytes(4, "big")
    length = len(head) + sum(map(len, messages))
    return b"".join((length.to_bytes(_LENGTH_BYTES, "big"), head, *messages))


class FrameDecoder(Generic[Received]):
    """Decoder of a stream of frames that may be cut anywhere."""

    def __init__(self, received: UnionType) -> None:
        self._decoder = make_binary_decoder(cast("type[list[Received]]", list[received]))
        self._unread = bytearray()

    def decode(self, data: bytes) -> list[Received]:
        """Return the messages whose frames the data completes. Raises msgspec.DecodeError."""
        unread = self._unread
        unread += data
        messages: list[Received] = []
        start = 0
        while len(unread) >= (body := start + _LENGTH_BYTES):
            end = body + int.from_bytes(unread[start:body], "big")
            if len(unread) < end:
                break
            messages += self._decoder.decode(unread[body:end])
            start = end
        del unread[:start]
        return messages


class MessageStream(Generic[Received]):
    """Messages both ways over a link that carries bytes.

    Arguments:
        link: the link.
        received: union type of the messages that arrive here; they are tagged msgspec structs.

    Attributes:
        send: sends a message, after all earlier ones.
        flush: hands the messages that were sent to the link now, for example before its close.
    """

    def __init__(self, link: ByteLink, received: UnionType) -> None:
        outbox = Outbox(link.send)
        self.send = outbox.add  # no method between: thousands of messages pass here
        self.flush = outbox.flush
        self._link = link
        self._decode = FrameDecoder[Received](received).decode
        self._messages: deque[Received] = deque()

    async def receive(self) -> Received | None:
        """Return the next message, None after the last one. Raises msgspec.DecodeError."""
        if not self._messages:
            self._messages.extend(await self.receive_all())
        return self._messages.popleft() if self._messages else None

    async def receive_all(self) -> list[Received]:
        """Return at least one message, or none after the last one. Raises msgspec.DecodeError."""
        messages = list(self._messages)
        self._messages.clear()
        while not messages and (data := await self._link.receive()):
            messages = self._decode(data)
        return messages


# Links between programs of one machine: a socket pair.

_CLOSE_SECONDS = 2.0
_BEAT_SECONDS = 0.5
_BEAT = make_frame(())
"""A frame without messages. It comes from the event loop, so it stops when the loop does."""


class SocketLink(Arrivals, asyncio.Protocol):
    """One end of a socket that is connected to another program.

    Attributes:
        arrivals: how many times bytes have arrived.
    """

    def __init__(self) -> None:
        super().__init__()
        self.arrivals = 0
        self._loop = asyncio.get_running_loop()
        self._lost = self._loop.create_future()
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, connection: socket.socket) -> Self:
        """Open the link of a connected socket.

        Arguments:
            connection: the socket.
        """
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(cls, sock=connection)
        return link

    def send(self, data: bytes) -> None:
        """Send bytes; none are sent after a close."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def check_lease(self) -> None:
        """Do nothing: the process ends when the socket is closed."""

    def start_beats(self) -> None:
        """Send a frame without messages twice a second until this end is closed."""
        if self._transport.is_closing():
            return
        if not self._transport.get_write_buffer_size():
            self._transport.write(_BEAT)
        self._loop.call_later(_BEAT_SECONDS, self.start_beats)

    async def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Send the unsent bytes and close this end.

        Arguments:
            seconds: longest time to send; then the rest is dropped. A stopped process reads
                nothing.
        """
        self._transport.close()
        if not (await asyncio.wait((self._lost,), timeout=seconds))[0]:
            self._transport.abort()
            await asyncio.shield(self._lost)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what the bytes are written to; asyncio calls it.

        Arguments:
            transport: that of the socket.
        """
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keep what arrives for `receive`; asyncio calls it."""
        self.arrivals += 1
        self.add(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection; asyncio calls it.

        Arguments:
            exc: its cause, None for an orderly end.
        """
        if not self._lost.done():
            self._lost.set_result(None)
        self.end()


class ProgramLink(SocketLink):
    """The link to a program that this one has started. The program opens its own `SocketLink`.

    Attributes:
        program: the process of the program.
    """

    program: asyncio.subprocess.Process

    @classmethod
    async def start(cls, *command: str, **options: Any) -> Self:
        """Start a program and return the link to it. A cancel ends the program first.

        Arguments:
            command: command line; the number of the program's socket is added.
            options: those of `asyncio.create_subprocess_exec`.
        """
        own_end, its_end = socket.socketpair()
        try:
            with its_end:
                program = await start_program(
                    *command,
                    str(its_end.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[its_end.fileno()],
                    start_new_session=True,
                    **options,
                )
        except BaseException:
            own_end.close()
            raise
        try:
            link = await cls.open(own_end)
        except BaseException:
            own_end.close()
            await end_program(program)
            raise
        link.program = program
        return link

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self.program.pid

    def kill(self) -> None:
        """End the program at once, even if it is stopped. Its commands end with it."""
        if self.program.returncode is None:
            kill_process(self.program.pid)

    async def finish(self, seconds: float) -> None:
        """Close this end, and wait for the end of the program.

        Arguments:
            seconds: longest time until the program has read its last bytes and exited; then it is
                killed.
        """
        with suppress(TimeoutError):
            async with time_limit(seconds):
                await self.close(seconds)
                await self.program.wait()
        await end_program(self.program)
        await self.close(0)
