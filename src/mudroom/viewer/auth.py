"""Access control of the viewer: token, host name and origin checks, and security headers."""

from __future__ import annotations

import hmac
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from .._platform.own_hosts import is_own_host

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Policy of each response: nothing from other sites, nothing inline, no text parsed as markup."""

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_USE_PRINTED_ADDRESS = "Use the whole address that `mudroom view` printed.\n"


def make_auth_middleware(token: str, host: str) -> Middleware:
    """Return a middleware that refuses requests without the token or for another host name.

    Arguments:
        token: expected in the query of the first request, then in a cookie; or in an
            Authorization header.
        host: the address the server is bound to.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = _refuse(request, token, host) or _move_token_to_cookie(request, token)
        return await handler(request) if response is None else response

    return check


async def add_security_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add the headers to a response before it is sent; a signal handler of the server."""
    response.headers.update(_HEADERS)


def get_cookie_name(request: web.Request) -> str:
    """Return the name of the cookie; it contains the port, because ports share cookies."""
    return f"mudroom-{request.url.port}"


def _refuse(request: web.Request, token: str, host: str) -> web.Response | None:
    """Return the response to a request that is not allowed, None for an allowed one."""
    if not is_own_host(request.headers.get("Host", ""), host, _get_bound_port(request)):
        text = f"The viewer is not known by this host name. {_USE_PRINTED_ADDRESS}"
        return web.Response(status=421, text=text)
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{request.headers['Host']}":
        return web.Response(status=403, text="A page of another site sent this request.\n")
    tokens = (
        request.cookies.get(get_cookie_name(request), ""),
        request.headers.get("Authorization", "").removeprefix("Bearer "),
        request.query.get("token", ""),
    )
    expected = token.encode()
    if any(hmac.compare_digest(each.encode("utf-8", "replace"), expected) for each in tokens):
        return None
    text = f"The token is missing or wrong. {_USE_PRINTED_ADDRESS}"
    return web.Response(status=401, text=text)


def _move_token_to_cookie(request: web.Request, token: str) -> web.Response | None:
    """Return a redirect that sets the cookie, if the page's address contains the token."""
    if "token" not in request.query or request.method != "GET" or request.path != "/":
        return None
    query = urlencode([(key, value) for key, value in request.query.items() if key != "token"])
    location = f"{request.path}?{query}" if query else request.path
    response = web.Response(status=303, headers={"Location": location})
    response.set_cookie(get_cookie_name(request), token, httponly=True, samesite="Strict", path="/")
    return response


def _get_bound_port(request: web.Request) -> int:
    transport = request.transport
    return transport.get_extra_info("sockname")[1] if transport else 0
