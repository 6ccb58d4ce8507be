"""HttpServer: serves sessions over HTTP until told to stop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from mudroom import __version__
from mudroom.driving import FairSlots, Listener, ServerAddress
from mudroom.errors import MudroomError, UsageError
from mudroom.ports import SessionStore, time_limit

from .event_stream import EventRoutes
from .information_routes import InformationRoutes
from .monitoring import Faults, Metrics, make_request_log
from .openai.chat import ChatRoutes
from .openai.responses import ResponseRoutes
from .request_bodies import parse_body
from .request_errors import ErrorBody, RequestError, convert_error, make_error_response
from .route import Call, Route
from .route_table import (
    make_event_routes,
    make_information_routes,
    make_openai_routes,
    make_session_routes,
)
from .served_session import ServerParts
from .session_registry import SessionRegistry
from .session_routes import SessionRoutes
from .setup import CommandLine, ServiceOptions
from .state.inputs import InputRecords
from .state.server_state import ServerState
from .state.sessions import SessionRecords, SpendingRecords
from .state.tokens import Token, TokenRecords, is_owner_name, is_token


class HttpServer:
    """The server. `store` has the sessions, `state` what clients sent; the server closes it."""

    def __init__(
        self,
        command_line: CommandLine,
        options: ServiceOptions,
        store: SessionStore,
        notify: Callable[[str], object],
        state: ServerState,
    ) -> None:
        self._listener = Listener(options)
        self._login = make_proxy_login(options)
        self._options = options
        self._notify = notify
        self._stopping = asyncio.Event()
        self._closing = asyncio.Event()
        self._metrics = Metrics()
        self._state = state
        self._tokens = TokenRecords(self._state)
        self._slots = FairSlots(options.parallel, options.per_owner)
        records = SessionRecords(self._state)
        self._parts = parts = ServerParts(
            options=options,
            command_line=command_line,
            store=store,
            sessions=records,
            inputs=InputRecords(state),
            spending=SpendingRecords(state),
            slots=self._slots,
            notify=notify,
        )
        self._registry = SessionRegistry(parts, self._state, records)
        is_draining = self._stopping.is_set
        information = InformationRoutes(parts, self._registry, self._metrics, is_draining)
        sessions = SessionRoutes(
            parts, records, self._registry, information.find_agents, is_draining
        )
        events = EventRoutes(
            sessions, parts, self._registry, self._tokens, self._metrics, self._closing
        )
        self.routes: list[Route] = [
            *make_session_routes(sessions),
            *make_event_routes(sessions, events),
            *make_openai_routes(
                ChatRoutes(sessions, parts, self._registry, self._closing),
                ResponseRoutes(sessions, parts, self._registry, self._closing),
            ),
            *make_information_routes(information),
        ]
        information.description = make_openapi(self.routes)

    def stop(self) -> bool:
        """Start no more prompts, let running ones finish, and end. Return False if ending."""
        if self._stopping.is_set():
            return False
        self._stopping.set()
        return True

    async def serve(self, on_open: Callable[[ServerAddress], object]) -> None:
        """Serve until `stop` is called. Raises UsageError if the address cannot be used."""
        async with self.open() as address:
            on_open(address)
            await self._stopping.wait()
            await self._drain()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ServerAddress]:
        """Serve in the `async with` block. A later process continues what is running at its end."""
        app = web.Application(
            middlewares=[make_access_middleware(self._listener, self._metrics, self._notify)],
            client_max_size=self._options.max_body,
        )
        app.on_response_prepare.append(add_headers)
        for route in self.routes:
            endpoint = make_endpoint(route, self._tokens, self._options, self._login)
            app.router.add_route(route.method, route.path, endpoint)
        watching = asyncio.create_task(self._registry.watch_others())
        try:
            log = make_request_log(self._metrics, self._notify)
            async with self._listener.serve(app, logger=log) as address:
                try:
                    yield address
                finally:
                    self._closing.set()
                    await _cancel(watching)
                    await self._registry.close()
        finally:
            await _cancel(watching)
            self._state.close()

    async def _drain(self) -> None:
        self._slots.close()
        if self._slots.working:
            self._notify(
                f"The server stops. Prompts that work have {self._options.drain_seconds:g} s to "
                "end; the others continue when it is started again."
            )
        with suppress(TimeoutError):
            async with time_limit(self._options.drain_seconds):
                await self._slots.wait_until_idle()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


_PATH_NAME = re.compile(r"\{(\w+)\}")
_REFERENCES = "#/components/schemas/{name}"
_TOKEN: list[dict[str, list[str]]] = [{"token": []}]


def make_openapi(routes: Sequence[Route]) -> dict[str, Any]:
    types: list[Any] = [ErrorBody]
    for route in routes:
        types += [each for each in (route.body, route.answer) if each is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCES)
    known = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mudroom", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(route: Route, known: dict[int, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.answer is not None:
        content["application/json"] = {"schema": known[id(route.answer)]}
    if route.media:
        content[route.media] = {"schema": {"type": "string"}}
    error = {"schema": known[id(ErrorBody)]}
    described: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [*_list_path_parameters(route.path), *_list_parameters(route)],
        "responses": {
            str(route.status): {"description": "Success.", "content": content},
            **{
                str(status): {"description": meaning, "content": content}
                for status, meaning in route.more_statuses.items()
            },
            "default": {
                "description": "An error.",
                "content": {"application/json": error},
            },
        },
    }
    if route.scope:
        described["security"] = _TOKEN
        described["x-scope"] = route.scope
    if route.body is not None:
        described["requestBody"] = {
            "required": not _accepts_nothing(route.body),
            "content": {"application/json": {"schema": known[id(route.body)]}},
        }
    return described


def _accepts_nothing(kind: Any) -> bool:  # noqa: ANN401  (a type, or a union of types)
    """Return whether a request without a body is accepted."""
    try:
        parse_body(kind, b"")
    except RequestError:
        return False
    return True


def _list_path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_NAME.findall(path)
    ]


def _list_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "in": each.place,
            "description": each.description,
            "schema": each.schema,
        }
        for each in route.parameters
    ]


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NOBODY = Token(id="", owner="", scopes=())


def make_access_middleware(
    listener: Listener, metrics: Metrics, notify: Callable[[str], object]
) -> Middleware:
    """Make the middleware that checks hosts and origins, and turns all errors into JSON."""

    faults = Faults()

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            check_host(request, listener)
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
        except Exception as error:  # noqa: BLE001  (clients get an error, not a traceback)
            notify(f"{request.method} {request.path}: {type(error).__name__}: {error}")
            response = make_error_response(
                RequestError(500, "failed", "the server has failed; its messages say more")
            )
        metrics.add("mudroom_requests_total", method=request.method, status=str(response.status))
        return response

    return check


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def check_host(request: web.Request, listener: Listener) -> None:
    """Raise RequestError if a request is for another host, or from another host's page."""
    headers = request.headers
    refusal = listener.find_refusal(host=headers.get("Host", ""), origin=headers.get("Origin"))
    if refusal:
        raise RequestError(refusal.status, refusal.code, refusal.message)


def convert_http_error(request: web.Request, error: web.HTTPException) -> RequestError:
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
    route: Route, tokens: TokenRecords, options: ServiceOptions, login: ProxyLogin | None
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Make the web framework's function that checks a token and calls the route.

    A proxy's logins apply to requests without a token.
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
                async with time_limit(options.body_seconds):
                    body = await request.read()
            except TimeoutError:
                message = f"the body did not come within {options.body_seconds:g} s"
                raise RequestError(408, "too_slow", message) from None
        return await route.action(Call(request, token, body, secret))

    return respond


def read_secret(request: web.Request) -> str:
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_OWN_HEADERS = ("authorization", "host", "origin", "content-type", "content-length")

Network = IPv4Network | IPv6Network


class ProxyLogin:
    """A proxy's logins: it names the owner in a header, from its addresses or ranges."""

    def __init__(
        self,
        header: str,
        networks: Sequence[str],
        usd_per_day: float | None,
        tokens_per_day: int | None,
    ) -> None:
        self._header = header
        self._networks = parse_networks(networks)
        self._usd_per_day = usd_per_day
        self._tokens_per_day = tokens_per_day

    def is_trusted(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    def find(self, request: web.Request) -> Token | None:
        """Find the rights of the owner a request names, None if it names none.

        A header given twice, or with a list, names none: one of the values may be a client's.
        """
        names = request.headers.getall(self._header, [])
        peer = request.transport.get_extra_info("peername") if request.transport else None
        if len(names) != 1 or not peer or not self.is_trusted(str(peer[0])):
            return None
        owner = names[0].strip(" \t")
        if "," in owner or not is_owner_name(owner):
            return None
        return Token(
            id="login",
            owner=owner,
            usd_per_day=self._usd_per_day,
            tokens_per_day=self._tokens_per_day,
        )


def make_proxy_login(options: ServiceOptions) -> ProxyLogin | None:
    """Make the logins that the options allow, None for none. Raises UsageError."""
    if not options.login_header and not options.login_networks:
        return None
    if not options.login_networks:
        raise UsageError(
            "the address of the proxy that logs users in is missing",
            remedy="Name it with --login-from; no other address may send the header.",
        )
    name = options.login_header
    if not name:
        raise UsageError(
            "the header with the name of the user is missing",
            remedy="Name it with --login-header, such as X-Forwarded-Email.",
        )
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
        raise UsageError(
            f"{name!r} is no name of a header for logins",
            where="--login-header",
            remedy="Use the header that your proxy sets, such as X-Forwarded-Email.",
        )
    if not options.is_behind_proxy:
        raise UsageError(
            "logins come from a proxy, and the server is not behind one",
            remedy="Add --behind-proxy and --host-name.",
        )
    limits = options.login_usd_per_day, options.login_tokens_per_day
    return ProxyLogin(name, options.login_networks, *limits)


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    networks: list[Network] = []
    for text in texts:
        try:
            network = ip_network(text.strip("[]"), strict=False)
        except ValueError:
            raise UsageError(
                f"{text!r} is no address",
                where="--login-from",
                remedy="Use an address of the proxy, or a range such as 10.0.0.0/24.",
            ) from None
        if network.prefixlen == 0:
            raise UsageError(
                f"with {text!r}, any address could send the name of any user",
                where="--login-from",
                remedy="Name only the addresses of the proxy.",
            )
        networks.append(network)
    return tuple(networks)
