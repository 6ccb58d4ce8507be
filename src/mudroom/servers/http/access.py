"""Access checks of each request: host name, origin, size, time, token, scope."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from ...errors import MudroomError
from ..listening import find_refusal
from .errors import RequestError, convert_error, make_error_response
from .metrics import Metrics
from .proxy_login import ProxyLogin
from .records.tokens import Token, TokenRecords, is_token
from .request_log import Faults
from .route import Call, Route
from .setup import ServerOptions

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NOBODY = Token(id="", owner="", scopes=())


def make_access_middleware(
    options: ServerOptions, metrics: Metrics, notify: Callable[[str], object]
) -> Middleware:
    """Return the middleware that checks hosts and origins, and makes JSON of all errors."""

    faults = Faults()

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            check_host(request, options)
            response = await handler(request)
        except RequestError as error:
            response = make_error_response(error)
        except MudroomError as error:
            response = make_error_response(convert_error(error))
            if response.status >= 500 and faults.add(str(error), str(error)):
                notify(f"{request.method} {request.path}: {error}")
        except web.HTTPException as error:
            response = make_error_response(convert_http_error(request, error))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001  (the client gets an error, not a traceback)
            notify(f"{request.method} {request.path}: {type(error).__name__}: {error}")
            response = make_error_response(
                RequestError(500, "failed", "the server has failed; its messages say more")
            )
        metrics.add("mudroom_requests_total", method=request.method, status=str(response.status))
        return response

    return check


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to a response before it is sent."""
    response.headers.update(_HEADERS)


def check_host(request: web.Request, options: ServerOptions) -> None:
    """Raise RequestError if a request is for another host, or comes from a page of another."""
    transport = request.transport
    port = transport.get_extra_info("sockname")[1] if transport else 0
    headers = request.headers
    refusal = find_refusal(
        options, port, host=headers.get("Host", ""), origin=headers.get("Origin")
    )
    if refusal:
        raise RequestError(refusal.status, refusal.code, refusal.message)


def convert_http_error(request: web.Request, error: web.HTTPException) -> RequestError:
    """Return the error of the web framework in the form of the server."""
    match error.status:
        case 404:
            return RequestError(404, "not_found", f"there is no path {request.path}")
        case 405:
            allowed = error.headers.get("Allow", "")
            message = f"{request.path} takes {allowed}, not {request.method}"
            return RequestError(405, "wrong_method", message, headers={"Allow": allowed})
        case 413:
            return RequestError(413, "too_large", "the body of the request is too large")
        case _:
            return RequestError(error.status, "wrong_request", error.reason)


def make_endpoint(
    route: Route, tokens: TokenRecords, options: ServerOptions, login: ProxyLogin | None
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return the function for the web framework that checks a token and calls the route.

    Arguments:
        login: logins of a proxy, which count for requests without a token; None for none.
    """

    async def respond(request: web.Request) -> web.StreamResponse:
        if route.scope is None:
            return await route.action(Call(request, _NOBODY))
        secret = read_secret(request)
        token = await tokens.find(secret)
        if login and not is_token(secret):
            token, secret = login.find(request), ""
        if token is None:
            raise RequestError(
                401,
                "wrong_token",
                "the token is missing or wrong. Send the header `Authorization: Bearer TOKEN`; "
                "`mudroom serve token add OWNER` makes a token",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if route.scope not in token.scopes:
            raise RequestError(
                403, "wrong_scope", f"the token does not have the scope {route.scope}"
            )
        body = b""
        if route.body is not None:
            try:
                async with asyncio.timeout(options.body_seconds):
                    body = await request.read()
            except TimeoutError:
                message = f"the body did not come within {options.body_seconds:g} s"
                raise RequestError(408, "too_slow", message) from None
        return await route.action(Call(request, token, body, secret))

    return respond


def read_secret(request: web.Request) -> str:
    """Return the text of the token that a request has, "" if none."""
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""
