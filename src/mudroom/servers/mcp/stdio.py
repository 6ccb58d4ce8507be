"""Messages over the pipes from and to a host.

Import this module late: it imports the package `mcp`.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.lowlevel.server import Server
from mcp.shared.message import SessionMessage

from ..line_input import MAX_LINE, LineInput
from .host_tasks import HostTasks
from .stdio_claim import Pipes

_SHOWN = 200
"""Bytes of a wrong line in a notice."""


class MessageWriter:
    """Write stream of the package: one line per message, written by a thread.

    A host that does not read stops only the calls that write to it.

    Arguments:
        on_closed: called when the host reads no more.
    """

    def __init__(self, descriptor: int, on_closed: Callable[[], object]) -> None:
        self._descriptor = descriptor
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._is_broken = False
        threading.Thread(target=self._write_all, name="message writer", daemon=True).start()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message and wait until the pipe has it."""
        if self._is_broken:
            raise anyio.BrokenResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        written = self._loop.create_future()
        self._lines.put((text.encode() + b"\n", written))
        await written

    async def aclose(self) -> None:
        """End the thread, after the lines that it has."""
        self._lines.put(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _write_all(self) -> None:
        while item := self._lines.get():
            line, written = item
            is_written = self._write(line)
            try:
                self._loop.call_soon_threadsafe(self._settle, written, is_written)
            except RuntimeError:  # the loop is closed: the program ends
                return

    def _write(self, line: bytes) -> bool:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            return False
        return True

    def _settle(self, written: asyncio.Future[None], is_written: bool) -> None:
        if not is_written and not self._is_broken:
            self._is_broken = True
            self._on_closed()
        if written.done():
            return
        if is_written:
            written.set_result(None)
        else:
            written.set_exception(anyio.BrokenResourceError())


async def serve(
    server: Server[Any],
    calls: HostTasks,
    pipes: Pipes,
    stop: asyncio.Event,
    notify: Callable[[str], object],
) -> None:
    """Serve one host until its input ends, it reads no more, or `stop` is set."""
    sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writer = MessageWriter(pipes.output, stop.set)
    lines = LineInput(pipes.input)
    reading = asyncio.create_task(read_messages(lines, sender, notify))
    serving = asyncio.create_task(
        server.run(receiver, writer, server.create_initialization_options())
    )
    stopping = asyncio.create_task(stop.wait())
    tasks = (reading, stopping, serving)
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await calls.close()  # before the connection ends, which must not wait for a task
        if serving.done():
            serving.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_messages(
    lines: LineInput,
    sender: MemoryObjectSendStream[SessionMessage | Exception],
    notify: Callable[[str], object],
) -> None:
    """Send the messages of the host to a stream until the end of the input.

    Arguments:
        notify: takes a line for stderr about each line that is no message.
    """
    skipped = 0
    async with sender:
        async for line in lines.read():
            if lines.skipped > skipped:
                skipped = lines.skipped
                notify(f"a line of more than {MAX_LINE >> 20} MiB on stdin is not used")
            if message := _parse(line, notify):
                try:
                    await sender.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return


def _parse(line: bytes, notify: Callable[[str], object]) -> SessionMessage | None:
    if not line.strip():
        return None
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        text = line[:_SHOWN].decode("utf-8", "replace")
        notify(f"a line on stdin is no message of JSON-RPC and is not used: {text!r}")
        return None
