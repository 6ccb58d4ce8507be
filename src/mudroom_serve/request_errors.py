"""Errors sent to clients: one JSON form for all paths, which OpenAI clients can also read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web
from msgspec import Struct

from mudroom.errors import (
    JournalBusy,
    JournalDamaged,
    JournalError,
    JournalNewer,
    MudroomError,
    UnknownName,
    UsageError,
)

from .state.server_state import StateError

_RETRY_SECONDS = 5
"""Seconds after which a client may repeat a request that the store could not answer."""


class ErrorFields(Struct, frozen=True, kw_only=True):
    """Fields of an error. `type` is a class of errors, `code` names one."""

    message: str
    type: str
    code: str
    param: str | None = None


class ErrorBody(Struct, frozen=True):
    """The body of a response with an error."""

    error: ErrorFields


class RequestError(Exception):
    """A request that cannot be answered as the client wants.

    `code` is a short name, the message gives fault and remedy, `param` is the wrong field.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})


def make_not_found(kind: str, name: str) -> RequestError:
    """Make the error for something that does not exist or belongs to another owner."""
    return RequestError(404, "not_found", f"there is no {kind} {name!r}")


def make_wrong_request(message: str, param: str = "") -> RequestError:
    return RequestError(400, "wrong_request", message, param=param)


def convert_error(error: MudroomError) -> RequestError:
    """Convert a mudroom error to the one sent to the client.

    Where the server failed, and what to do about it, is for its operator.
    """
    match error:
        case JournalBusy():
            headers = {"Retry-After": "1"}
            return RequestError(409, "session_busy", str(error), headers=headers)
        case UnknownName():
            return RequestError(400, f"unknown_{error.kind.replace(' ', '_')}", str(error))
        case UsageError():
            return make_wrong_request(str(error))
        case _ if may_work_later(error):
            headers = {"Retry-After": str(_RETRY_SECONDS)}
            return RequestError(503, "not_available", error.message, headers=headers)
        case _:
            return RequestError(500, "failed", error.message)


def may_work_later(error: Exception) -> bool:
    """Return whether the same work may succeed later, such as once a disk has room again."""
    is_permanent = isinstance(error, JournalDamaged | JournalNewer)
    return isinstance(error, JournalError | StateError) and not is_permanent


def make_error_response(error: RequestError) -> web.Response:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    if error.status == 401:
        kind = "authentication_error"
    elif error.status == 403:
        kind = "permission_error"
    elif error.status == 429:
        kind = "rate_limit_error"
    fields = ErrorFields(
        message=error.message, type=kind, code=error.code, param=error.param or None
    )
    return web.Response(
        status=error.status,
        body=msgspec.json.encode(ErrorBody(fields)),
        content_type="application/json",
        headers=error.headers,
    )
