"""Route: one of the server's paths, with what its description and access checks need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from .state.tokens import Scope, Token


class Call(Struct, frozen=True):
    """One permitted request."""

    request: web.Request
    token: Token  # empty for a path without access checks
    body: bytes = b""
    secret: str = ""  # text of the token, "" for a login of a proxy

    @property
    def session(self) -> str:
        return self.request.match_info.get("session", "")

    def get(self, name: str) -> str:
        return self.request.query.get(name, "")


class Parameter(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: str = "query"


class Route(Struct, frozen=True, kw_only=True):
    method: str = "GET"
    path: str
    summary: str
    action: Callable[[Call], Awaitable[web.StreamResponse]]
    scope: Scope | None = "read"  # required of the token; None for a path without tokens
    # The docstrings of these types are descriptions in `/openapi.json`. None for no JSON.
    body: Any = None
    answer: Any = None
    status: int = 200  # of a successful response
    # Other statuses with the same type of response, and what they mean.
    more_statuses: Mapping[int, str] = field(default_factory=dict[int, str])
    media: str = ""  # type of a response that is not JSON, or may also be a stream
    parameters: tuple[Parameter, ...] = ()
