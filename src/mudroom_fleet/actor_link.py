"""ActorLink: an actor and the calls to it, in the Ray process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from mudroom.ports import time_limit

from .actor import MARGIN_SECONDS, MAX_DATA, InOrder, read_clock
from .messages import (
    ActorLost,
    ActorReady,
    Hello,
    LeaseState,
    PartBytes,
    PartClosed,
    ToTransport,
)

_MAX_CALLS = 2  # open calls per actor: one waits for bytes, one brings them
_CALL_GAP = 0.01
"""Seconds between calls, so that frames share them; a call costs about 1 ms."""
_BUSY_GAP = 0.04
"""The same after a call of more than _BUSY_BYTES: many runs are working, and share the next."""
_BUSY_BYTES = 8_000
UNLOADABLE = "a node cannot load mudroom"
_START_SECONDS = 60.0  # within which an actor must start and answer


class RemoteMethod(Protocol):
    def remote(self, *arguments: object) -> Awaitable[Any]: ...


class ActorHandle(Protocol):
    """Ray's handle of a WorkerActor, with its methods."""

    @property
    def hello(self) -> RemoteMethod: ...

    @property
    def stop(self) -> RemoteMethod: ...

    @property
    def exchange(self) -> RemoteMethod: ...


class RayControl(Protocol):
    """Services of Ray that a link needs besides calls. May block, so threads call it."""

    def kill(self, handle: ActorHandle) -> None: ...

    def is_gone(self, error: Exception, node: str) -> bool:
        """Return whether a call's error proves that its actor's process has ended."""
        ...


class _Lost(Exception):
    """The actor has ended or does not answer. `is_gone`: its process has ended."""

    def __init__(self, reason: str, *, is_gone: bool = False) -> None:
        super().__init__(reason)
        self.is_gone = is_gone


class ActorLink:
    """An actor and the calls to it.

    Arguments:
        create: asks Ray for the actor; may block, so it runs in a thread.
        note_silence: called when the actor does not answer; its node may be lost.
    """

    def __init__(
        self,
        number: int,
        create: Callable[[], ActorHandle],
        send: Callable[[ToTransport], None],
        ray: RayControl,
        lease_seconds: float,
        note_silence: Callable[[], None],
        read_clock: Callable[[], float] = read_clock,
    ) -> None:
        self._number = number
        self._create = create
        self._send = send
        self._ray = ray
        self._note_silence = note_silence
        self._read_clock = read_clock
        self._lease_seconds = lease_seconds
        self._handle: ActorHandle | None = None
        self._outgoing = bytearray()
        self._has_outgoing = asyncio.Event()
        self._calls: set[asyncio.Future[tuple[int, bytes]]] = set()
        self._sent = 0
        self._replies = InOrder()
        self._last_reply_at = 0.0
        self._next_call_at = 0.0
        self._node = ""

    @property
    def _patience(self) -> float:
        """Seconds after the last reply within which another must come."""
        return self._lease_seconds + MARGIN_SECONDS

    def add_data(self, data: bytes) -> None:
        self._outgoing += data
        self._has_outgoing.set()

    async def run(self) -> None:
        """Start the actor and carry bytes until it is lost; then report when it has stopped."""
        try:
            await self._start()
            while True:
                await self._exchange()
        except Exception as error:  # noqa: BLE001  the runs continue in another process
            lost = error if isinstance(error, _Lost) else _Lost(_describe(error))
        if not lost.is_gone:
            self._note_silence()
        self._send(ActorLost(self._number, str(lost)))
        self.kill()
        if not lost.is_gone:
            await asyncio.sleep(self._last_reply_at + self._patience - self._read_clock())
        self._send(PartClosed(self._number))

    def send_lease(self) -> None:
        """Tell the session's process how long the actor may work without another call."""
        seconds = self._last_reply_at + self._lease_seconds - self._read_clock()
        self._send(LeaseState(self._number, max(0.0, seconds)))

    def kill(self) -> None:
        """End the actor's process and its commands.

        If Ray is out of reach, nothing is raised or awaited: the lease ends the actor.
        """
        if self._handle is not None:
            with suppress(Exception):
                self._handle.stop.remote()
            threading.Thread(target=self._kill, args=(self._handle,), daemon=True).start()

    def _kill(self, handle: ActorHandle) -> None:
        with suppress(Exception):
            self._ray.kill(handle)

    async def _start(self) -> None:
        try:
            async with time_limit(_START_SECONDS):
                # If this is cancelled, the handle is dropped, and Ray ends the actor.
                self._handle = await asyncio.to_thread(self._create)
                reply = await self._handle.hello.remote()
        except TimeoutError:
            self._note_silence()
            raise _Lost(f"no node started it in {_START_SECONDS:.0f} s", is_gone=True) from None
        except Exception as error:
            raise _Lost(_describe(error), is_gone=True) from error
        self._last_reply_at = self._read_clock()
        hello = msgspec.msgpack.decode(reply, type=Hello)
        self._node = hello.node
        self._send(ActorReady(self._number, hello))

    async def _exchange(self) -> None:
        if not self._calls or (self._outgoing and len(self._calls) < _MAX_CALLS):
            await asyncio.sleep(self._next_call_at - self._read_clock())
            self._call()
            if self._outgoing and len(self._calls) < _MAX_CALLS:
                return  # a lone call returns late: the next one ends its wait
        self._has_outgoing.clear()
        waiting: set[asyncio.Future[Any]] = set(self._calls)
        if len(self._calls) < _MAX_CALLS and not self._outgoing:
            waiting.add(asyncio.ensure_future(self._has_outgoing.wait()))
        patience = self._last_reply_at + self._patience - self._read_clock()
        done, rest = await asyncio.wait(
            waiting, timeout=max(patience, 0.0), return_when=asyncio.FIRST_COMPLETED
        )
        for other in rest - self._calls:
            other.cancel()
        if not done:
            raise _Lost(f"no reply has come for {self._patience:.1f} s")
        for call in done & self._calls:
            self._calls.discard(call)
            await self._handle_reply(call)

    def _call(self) -> None:
        data = bytes(self._outgoing[:MAX_DATA])
        del self._outgoing[:MAX_DATA]
        self._choose_gap(len(data))
        self._sent += 1
        assert self._handle is not None
        reply = self._handle.exchange.remote(self._sent, self._replies.last, data)
        self._calls.add(asyncio.ensure_future(reply))

    def _choose_gap(self, size: int) -> None:
        # After a full call, more of a large frame follows, so the gap is short.
        gap = _BUSY_GAP if _BUSY_BYTES < size < MAX_DATA else _CALL_GAP
        self._next_call_at = self._read_clock() + gap

    async def _handle_reply(self, call: asyncio.Future[tuple[int, bytes]]) -> None:
        try:
            number, data = call.result()
        except Exception as error:
            raise _Lost(_describe(error), is_gone=await self._is_gone(error)) from error
        self._last_reply_at = self._read_clock()
        self._choose_gap(len(data))
        if known := self._replies.add(number, data):
            self._send(PartBytes(self._number, known))

    async def _is_gone(self, error: Exception) -> bool:
        with suppress(Exception):  # including TimeoutError: then nothing is certain
            async with time_limit(self._patience):
                return await asyncio.to_thread(self._ray.is_gone, error, self._node)
        return False


def _describe(error: Exception) -> str:
    """Choose the most telling line of a Ray error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ModuleNotFoundError", "ImportError"))]
    if errors:
        return f"{UNLOADABLE}: {errors[0]}"
    known = [line for line in lines if "died" in line or "dead" in line]
    text = (known or lines or [type(error).__name__])[-1]
    return text.split(" Worker exit detail:")[0].split(" Some common causes")[0]
