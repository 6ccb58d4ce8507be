"""Failures of the HTTP/1.1 client."""

from __future__ import annotations


class HttpError(Exception):
    """A request that failed below HTTP; the text gives the cause."""


class InvalidRequest(HttpError):
    """A URL or a header that cannot be sent."""


class CannotConnect(HttpError):
    """No connection to the server or to the proxy."""


class TooManyOpenFiles(HttpError):
    """No connection, since the process has as many open files as it may have."""


class ForbiddenAddress(HttpError):
    """A server at an address that may not be contacted."""


class UntrustedServer(HttpError):
    """A server whose certificate is not trusted."""


class SilentServer(HttpError):
    """A server that sent no data for the read timeout."""


class ConnectionLost(HttpError):
    """A connection that ended before the response was complete."""


class MalformedResponse(HttpError):
    """A response that is not HTTP/1.1, or larger than the limits of the parser."""
