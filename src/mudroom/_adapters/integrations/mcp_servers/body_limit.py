"""Size limit of what servers answer over HTTP.

The package `mcp` and its logins read an answer as a whole, without a limit; only the events of a
stream have one. Import this module late: it imports a package.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import httpx2

from .server_process import MAX_LINE

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Header of all requests: what is compressed can become any size."""
_COMPRESSED = "it compresses its answers although the requests forbid it"
_TOO_LARGE = f"it sent an answer of more than {MAX_LINE >> 20} MiB"


class AnswerFault(httpx2.RemoteProtocolError, httpx2.StreamError):
    """The body of an answer cannot be read.

    The package fails the one request for a StreamError. Any other exception of a body ends the
    connection, with the requests of all other runs.
    """

    def __init__(self, reason: str) -> None:
        text = f"{reason}; the call may have had an effect"
        httpx2.RemoteProtocolError.__init__(self, text)


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer. `fault`: why it is not read at all, "" if it is."""

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        note_fault: Callable[[str], object],
        fault: str = "",
    ) -> None:
        self._stream = stream
        self._note_fault = note_fault
        self._fault = fault

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        size = 0
        try:
            async for part in self._stream:
                size += len(part)
                fault = _TOO_LARGE if size > MAX_LINE else self._fault
                if fault:
                    self._note_fault(fault)
                    raise AnswerFault(fault)
                yield part
        except AnswerFault:
            raise
        except httpx2.TransportError as error:
            raise AnswerFault(str(error) or "the connection broke") from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def limit_bodies(
    note_fault: Callable[[str], object] = lambda _: None,
) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a response hook of a client that makes the read of a too large body fail.

    Arguments:
        note_fault: called with the reason, which the package does not always pass on.
    """

    async def limit(response: httpx2.Response) -> None:
        is_compressed = response.headers.get("content-encoding", "identity") != "identity"
        kind = response.headers.get("content-type", "")
        if is_compressed or not kind.lower().startswith("text/event-stream"):
            fault = _COMPRESSED if is_compressed else ""
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream, note_fault, fault)

    return limit
