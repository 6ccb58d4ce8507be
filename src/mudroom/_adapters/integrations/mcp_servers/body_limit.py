"""A size limit on servers' answers over HTTP.

The package `mcp` and its logins read an answer whole and without a limit; only the events of a
stream have one. Import this module late, because it imports a package.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import httpx2

from .server_process import MAX_LINE

# Sent with all requests, because a compressed answer can expand to any size.
UNCOMPRESSED = {"Accept-Encoding": "identity"}
_COMPRESSED = "it compresses its answers although the requests forbid it"
_TOO_LARGE = f"it sent an answer of more than {MAX_LINE >> 20} MiB"


# A StreamError makes the package fail only this request. Any other exception from a body would end
# the connection, with all other runs' requests.
class AnswerFault(httpx2.RemoteProtocolError, httpx2.StreamError):
    def __init__(self, reason: str) -> None:
        text = f"{reason}; the call may have had an effect"
        httpx2.RemoteProtocolError.__init__(self, text)


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer. `fault` explains why it is not read at all; "" if it is."""

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
    """Make a response hook that fails oversized bodies; the package may not pass on the reason."""

    async def limit(response: httpx2.Response) -> None:
        is_compressed = response.headers.get("content-encoding", "identity") != "identity"
        kind = response.headers.get("content-type", "")
        if is_compressed or not kind.lower().startswith("text/event-stream"):
            fault = _COMPRESSED if is_compressed else ""
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream, note_fault, fault)

    return limit
