"""Writes to clients that may read slowly."""

from __future__ import annotations

from aiohttp import web

from mudroom.ports import time_limit


class TimedWriter:
    """Writer to a client that may read slowly.

    Arguments:
        seconds: time for one write. Then the connection is cut; the client continues with its last
            cursor.
    """

    def __init__(self, request: web.Request, response: web.StreamResponse, seconds: float) -> None:
        self._request = request
        self._response = response
        self._seconds = seconds

    async def write(self, data: bytes) -> None:
        """Write data. Raises TimeoutError, ConnectionError."""
        try:
            async with time_limit(self._seconds):
                await self._response.write(data)
        except TimeoutError:
            if self._request.transport:
                self._request.transport.abort()
            raise
