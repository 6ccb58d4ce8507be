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


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, note_fault: Callable[[str], object]) -> None:
        self._stream = stream
        self._note_fault = note_fault

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > MAX_LINE:
                self._note_fault(_TOO_LARGE)
                raise httpx2.RemoteProtocolError(_TOO_LARGE)
            yield part

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
        if response.headers.get("content-encoding", "identity") != "identity":
            note_fault(_COMPRESSED)
            raise httpx2.RemoteProtocolError(_COMPRESSED)
        kind = response.headers.get("content-type", "")
        if not kind.lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream, note_fault)

    return limit
