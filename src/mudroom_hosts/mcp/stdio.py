"""Messages to and from a host over pipes.

Import this module late: it imports the package `mcp`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.lowlevel.server import Server
from mcp.shared.message import SessionMessage

from ..line_streams import MAX_LINE, LineOutput
from .first_answer import FirstAnswer
from .host_tasks import HostTasks

_SHOWN = 200  # bytes of a wrong line in a notice


class MessageWriter:
    """The package's write stream: one line per message.

    A host that does not read only blocks the calls that write to it. A first answer already sent is
    not written again.
    """

    def __init__(self, output: LineOutput, first: FirstAnswer | None = None) -> None:
        self._output = output
        self._first = first

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message and wait until it and all earlier ones are in the pipe."""
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if self._first:
            is_sent = self._first.suppresses(data)
            self._first.keep(data)
            if is_sent:
                return
        self._output.write(data + b"\n")
        await self._output.drain()
        if self._output.has_failed:
            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        """End the thread after its remaining lines."""
        self._output.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


async def serve(
    server: Server[Any],
    host_tasks: HostTasks,
    first: FirstAnswer,
    answering: asyncio.Task[None],
    stop: asyncio.Event,
    notify: Callable[[str], object],
) -> None:
    """Serve one host until its input ends or `stop` is set."""
    sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writer = MessageWriter(first.output, first)
    reading = asyncio.create_task(read_messages(first, answering, sender, notify))
    serving = asyncio.create_task(
        server.run(receiver, writer, server.create_initialization_options())
    )
    stopping = asyncio.create_task(stop.wait())
    tasks = (reading, stopping, serving)
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await host_tasks.close()  # before the connection ends, which must not wait for a task
        if serving.done():
            serving.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_messages(
    first: FirstAnswer,
    answering: asyncio.Task[None],
    sender: MemoryObjectSendStream[SessionMessage | Exception],
    notify: Callable[[str], object],
) -> None:
    """Send the host's messages to a stream until the end of input."""
    skipped = 0
    async with sender:
        await asyncio.wait({answering})
        async for line in first.read():
            if first.lines.skipped > skipped:
                skipped = first.lines.skipped
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
