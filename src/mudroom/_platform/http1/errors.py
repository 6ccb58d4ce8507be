"""Errors of the HTTP/1.1 client."""

from __future__ import annotations


class HttpError(Exception):
    """A request failed below HTTP; the text states the cause."""


class InvalidRequest(HttpError):
    """A URL or header cannot be sent."""


class CannotConnect(HttpError):
    """The server or proxy cannot be reached."""


class TooManyOpenFiles(HttpError):
    """No connection can be opened, because the process has too many open files."""


class ForbiddenAddress(HttpError):
    """The server's address may not be contacted."""


class UntrustedServer(HttpError):
    """The server's certificate is not trusted."""


class SilentServer(HttpError):
    """The server sent no data for the read timeout."""


class ConnectionLost(HttpError):
    """The connection ended before the response was complete."""


class MalformedResponse(HttpError):
    """The response is not HTTP/1.1, or exceeds the limits of the parser."""
