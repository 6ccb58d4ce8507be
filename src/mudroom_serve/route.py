"""Route: one path of the server, with what its description and its access checks need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from .state.tokens import Scope, Token


class Call(Struct, frozen=True):
    """One request that is allowed.

    Arguments:
        token: of its client; that of a path without access checks is empty.
        secret: text of the token, "" for a login of a proxy.
    """

    request: web.Request
    token: Token
    body: bytes = b""
    secret: str = ""

    @property
    def session(self) -> str:
        """The session that the path names."""
        return self.request.match_info.get("session", "")

    def get(self, name: str) -> str:
        """Return a parameter of the query, "" without it."""
        return self.request.query.get(name, "")


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter of a query, or a header."""

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: str = "query"


class Route(Struct, frozen=True, kw_only=True):
    """A path.

    Arguments:
        scope: that a token must have; None for a path without a token.
        body: type of the body, None for no body.
        answer: type of a response, None for one that is no JSON.
        status: of a response that is no error.
        more_statuses: others with the same type of response, and what they mean.
        media: type of a response that is no JSON, or that may be a stream, too.
    """

    method: str
    path: str
    summary: str
    action: Callable[[Call], Awaitable[web.StreamResponse]]
    scope: Scope | None = "read"
    body: Any = None
    answer: Any = None
    status: int = 200
    more_statuses: Mapping[int, str] = field(default_factory=dict[int, str])
    media: str = ""
    parameters: tuple[Parameter, ...] = ()
