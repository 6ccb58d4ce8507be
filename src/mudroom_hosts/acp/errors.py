"""Errors of the protocol: requests of the client that fail, with their codes."""

from __future__ import annotations

from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
NOT_FOUND = -32002


class RequestError(Exception):
    """A request failed; the other side gets code and message.

    Arguments:
        details: further JSON values for the other side, None for none.
    """

    def __init__(self, code: int, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """Return the error as a JSON-RPC error object."""
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        return error | ({"data": self.details} if self.details else {})


class ClientGone(RequestError):
    """The client has closed its end before it answered."""

    def __init__(self, method: str) -> None:
        super().__init__(INTERNAL_ERROR, f"the editor closed its end before it answered {method}")
