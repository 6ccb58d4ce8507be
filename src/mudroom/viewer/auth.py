"""Who may look: a token, the right Host, no foreign Origin; and what every answer forbids the browser to do."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content-Security-Policy of every answer: nothing from elsewhere, nothing inline, no text that becomes markup."""

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY = frozenset({"0.0.0.0", "::", ""})


def make_auth_middleware(token: str, host: str) -> Middleware:
    """A middleware that lets through only who has the token and comes by a name of ours.

    Arguments:
        token: asked for in the query once, then in a cookie; or in an Authorization header. host: what the server is bound to.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = _refusal(request, token, host) or _welcome(request, token)
        if response is None:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = web.Response(status=error.status, text=error.text)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    return check


def add_security_headers(response: web.StreamResponse) -> web.StreamResponse:
    """The same answer with the headers, for one that is sent piece by piece and cannot wait for the middleware's."""
    response.headers.update(_HEADERS)
    return response


def cookie_name(request: web.Request) -> str:
    """Name of the cookie; cookies are shared between ports, so it carries ours."""
    return f"mudroom-{request.url.port}"


def _refusal(request: web.Request, token: str, host: str) -> web.Response | None:
    if not _ours(request.headers.get("Host", ""), host, _port(request)):
        return web.Response(
            status=421,
            text="This viewer is not known by that name. Use the address that `mudroom view` printed.\n",
        )
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{request.headers['Host']}":
        return web.Response(status=403, text="Another page asked for this. Refused.\n")
    given = [
        request.cookies.get(cookie_name(request), ""),
        request.headers.get("Authorization", "").removeprefix("Bearer "),
    ]
    given.append(request.query.get("token", ""))
    if not any(
        hmac.compare_digest(each.encode("utf-8", "replace"), token.encode()) for each in given
    ):
        return web.Response(
            status=401,
            text="The token is missing or wrong. Use the whole address that `mudroom view` printed.\n",
        )
    return None


def _welcome(request: web.Request, token: str) -> web.Response | None:
    """Who brings the token in the address gets it as a cookie, and an address without it."""
    if "token" not in request.query or request.method != "GET" or request.path != "/":
        return None
    rest = urlencode([(key, value) for key, value in request.query.items() if key != "token"])
    response = web.Response(
        status=303, headers={"Location": request.path + (f"?{rest}" if rest else "")}
    )
    response.set_cookie(cookie_name(request), token, httponly=True, samesite="Strict", path="/")
    return response


def _port(request: web.Request) -> int:
    transport = request.transport
    return transport.get_extra_info("sockname")[1] if transport else 0


def _ours(named: str, host: str, port: int) -> bool:
    name, _, number = (
        named.rpartition(":") if not named.endswith("]") and ":" in named else (named, "", "80")
    )
    name = name.strip("[]").lower()
    if number != str(port):
        return False
    if name in _LOOPBACK or name == host.lower():
        return True
    return host in _ANY and (_is_address(name) or name == socket.gethostname().lower())


def _is_address(name: str) -> bool:
    """Whether it is a number: another site can make a name of its own point here, but no number."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
