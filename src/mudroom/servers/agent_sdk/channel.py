"""ControlChannel: requests to the host and their responses, beside the lines of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from ...errors import MudroomError
from .json_fields import as_object
from .line_size import encode_line, fits


class HostError(MudroomError):
    """A request to the host failed: it answered with an error, or it has closed its end."""


class ControlChannel:
    """Requests to the program that started mudroom, and responses to its requests.

    Arguments:
        write: writes one whole line.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = count(1)
        self.is_closed = False

    def send(self, line: Mapping[str, Any]) -> None:
        """Write a line; long texts are cut."""
        self._write(encode_line(line))

    def answer(self, request_id: str, response: Mapping[str, Any], **more: object) -> None:
        """Answer a request of the host. `more`: fields beside the response."""
        body = {"subtype": "success", "request_id": request_id, "response": response, **more}
        self.send({"type": "control_response", "response": body})

    def answer_error(self, request_id: str, error: str) -> None:
        """Answer a request of the host with an error."""
        body = {"subtype": "error", "request_id": request_id, "error": error}
        self.send({"type": "control_response", "response": body})

    async def request(self, subtype: str, **fields: object) -> dict[str, Any]:
        """Send a request to the host and return its response.

        A cancel of the caller withdraws the request. Raises HostError.
        """
        request_id = f"mudroom_{next(self._numbers)}"
        request = {"subtype": subtype, **fields}
        line = {"type": "control_request", "request_id": request_id, "request": request}
        if not fits(line):
            raise HostError(
                f"the request {subtype} is longer than the agent SDK reads",
                remedy="Use shorter arguments.",
            )
        if self.is_closed:
            raise _explain_closed(subtype)
        future = asyncio.get_running_loop().create_future()
        self._pending[request_id] = future
        self.send(line)
        try:
            return await future
        except asyncio.CancelledError:
            if not self.is_closed:
                self.send({"type": "control_cancel_request", "request_id": request_id})
            raise
        finally:
            self._pending.pop(request_id, None)

    def receive_response(self, response: Mapping[str, Any]) -> None:
        """Hand a response of the host to the caller that waits; a late one is ignored."""
        future = self._pending.get(str(response.get("request_id")))
        if future is None or future.done():
            return
        if response.get("subtype") == "error":
            future.set_exception(HostError(str(response.get("error") or "no reason was given")))
            return
        future.set_result(as_object(response.get("response")))

    def close(self) -> None:
        """End all requests: the host answers no more."""
        self.is_closed = True
        for future in self._pending.values():
            if not future.done():
                future.set_exception(_explain_closed("control"))


def _explain_closed(subtype: str) -> HostError:
    return HostError(f"the program that started mudroom closed its end before the {subtype} answer")
