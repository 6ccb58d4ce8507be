"""Writes to clients that may read slowly."""

from __future__ import annotations

import asyncio

from aiohttp import web


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
            async with asyncio.timeout(self._seconds):
                await self._response.write(data)
        except TimeoutError:
            if self._request.transport:
                self._request.transport.abort()
            raise
