"""OAuth of HTTP servers: the client of the package, with logins on disk.

Import this module late and in a thread: it imports the package.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Literal, cast

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthTokenError
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from msgspec.structs import replace
from pydantic import AnyUrl

from ....._version import __version__
from .....errors import MudroomError
from ..body_limit import UNCOMPRESSED, limit_bodies
from ..spec import ServerSpec
from .stored_logins import LoginFile, StoredLogin

NO_PORT = "http://127.0.0.1/callback"
"""Redirect address of a session, which never opens a browser."""
_REQUEST_SECONDS = 60.0
"""Time for each request of a login; the 5 seconds of the package are too few for a busy server."""
_LACKING = "insufficient_scope"
"""Error of a server whose call needs more rights (RFC 6750)."""
_EXPIRED = 1.0
"""A time in the past, for tokens that the server does not accept any more."""

ShowAddress = Callable[[str], Awaitable[None]]
WaitForCode = Callable[[], Awaitable[AuthorizationCodeResult]]


class LoginNeeded(MudroomError):
    """A server wants a login, and no user can be asked now."""


class _Storage:
    """The port TokenStorage of the package: a login file."""

    def __init__(self, spec: ServerSpec, file: LoginFile) -> None:
        self.file = file
        self.provider: LoginProvider | None = None
        self._spec = spec

    def load(self) -> StoredLogin:
        """Return the stored login, an empty one if there is none."""
        return self.file.load() or StoredLogin(self._spec.url)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens."""
        tokens = self.load().tokens
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens before they are used."""
        assert self.provider
        context = self.provider.context
        client = context.client_info
        self.file.store(
            replace(
                self.load(),
                tokens=tokens.model_dump(mode="json", exclude_none=True),
                expires_at=context.token_expiry_time,
                client=_dump(client),
                issuer=(client.issuer if client else None) or "",
                metadata=_dump(context.oauth_metadata),
                resource=_dump(context.protected_resource_metadata),
            )
        )

    def note_lacking_rights(self, scope: str) -> None:
        """Keep for the next login that a call lacked rights. `scope`: "" if not named."""
        stored = self.load()
        needed = union_scopes(stored.needed_scope, scope) or ""
        self.file.store(replace(stored, lacks_rights=True, needed_scope=needed))

    def forget_lacking_rights(self) -> None:
        """Drop the noted rights: a login has asked for them."""
        self.file.store(replace(self.load(), lacks_rights=False, needed_scope=""))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client: that of the configuration, else the registered one."""
        settings = self._spec.oauth
        if client_id := settings.get("client_id"):
            secret = settings.get("client_secret")
            return OAuthClientInformationFull(
                client_id=str(client_id),
                client_secret=str(secret) if secret else None,
                token_endpoint_auth_method=(
                    choose_secret_method(self.load().metadata) if secret else "none"
                ),
            )
        client = self.load().client
        return OAuthClientInformationFull.model_validate(client) if client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registered client, so that the next login registers no other."""
        stored = self.load()
        issuer = client_info.issuer or ""
        tokens = stored.tokens if stored.issuer == issuer else None
        self.file.store(replace(stored, client=_dump(client_info), issuer=issuer, tokens=tokens))


class LoginProvider(OAuthClientProvider):
    """OAuth of the package, with what it lacks: expiry across sessions, one refresh for all.

    Arguments:
        file: the login of the server.
        redirect: address that the browser returns to.
        show_address, wait_for_code: ask the user to log in; None raises LoginNeeded.
    """

    def __init__(
        self,
        spec: ServerSpec,
        file: LoginFile,
        *,
        redirect: str = NO_PORT,
        show_address: ShowAddress | None = None,
        wait_for_code: WaitForCode | None = None,
    ) -> None:
        scopes = spec.oauth.get("scopes")
        self._scope = (
            " ".join(map(str, cast("list[object]", scopes))) if isinstance(scopes, list) else None
        )
        self._storage = _Storage(spec, file)
        self._spec = spec
        self._lock = AsyncExitStack()
        super().__init__(
            spec.url,
            OAuthClientMetadata(
                client_name="mudroom",
                software_version=__version__,
                redirect_uris=[AnyUrl(redirect)],
                token_endpoint_auth_method="none",
                scope=self._scope,
            ),
            self._storage,
            self._begin_login if show_address else self._refuse,
            wait_for_code,
        )
        self._show_address = show_address
        self._storage.provider = self

    async def _begin_login(self, address: str) -> None:
        """Send the user to the login server, whose facts are known now."""
        client = self.context.client_info
        if client and self._spec.oauth.get("client_secret"):
            metadata = _dump(self.context.oauth_metadata)
            client.token_endpoint_auth_method = choose_secret_method(metadata)
        assert self._show_address
        await self._show_address(address)

    async def _refuse(self, _: str) -> None:
        raise LoginNeeded(
            f"server {self._spec.name} wants a login",
            where=self._spec.origin,
            remedy=f"Run: mudroom mcp login {self._spec.name}",
        )

    async def _initialize(self) -> None:
        await super()._initialize()
        stored = self._storage.load()
        self.context.token_expiry_time = stored.expires_at
        if stored.metadata:
            self.context.oauth_metadata = OAuthMetadata.model_validate(stored.metadata)
        if stored.resource:
            resource = ProtectedResourceMetadata.model_validate(stored.resource)
            self.context.protected_resource_metadata = resource

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        """Store the tokens of a login. A refresh gives no more rights, so it is not here."""
        await super()._handle_token_response(response)
        self._storage.forget_lacking_rights()

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        """Keep the tokens if the authorization server only has trouble for a while."""
        if response.status_code >= 500 or response.status_code == 429:
            raise OAuthTokenError(f"the login server answered HTTP {response.status_code}")
        try:
            return await super()._handle_refresh_response(response)
        finally:
            await self._lock.aclose()

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the flow; first lock the tokens if they must be refreshed.

        If the server refuses a token that has not expired, try a refresh before a new login.
        A session that lacks rights notes them for the next login.
        """
        has_refreshed = await self._prepare_refresh()
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                if (
                    outgoing is request
                    and response.status_code == 401
                    and not has_refreshed
                    and self.context.can_refresh_token()
                ):
                    has_refreshed = True
                    await flow.aclose()
                    refused = self.context.current_tokens
                    self.context.token_expiry_time = _EXPIRED
                    await self._prepare_refresh(refused)
                    flow = super()._auth_flow(request)
                    outgoing = await anext(flow)
                else:
                    if outgoing is request:
                        response = self._ask_for_scopes(response)
                    outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()  # it holds a lock of this task
            await self._lock.aclose()

    def _ask_for_scopes(self, response: httpx2.Response) -> httpx2.Response:
        """Return an answer as the flow must see it.

        A login asks for the rights of the configuration and those that calls lacked, also if the
        server accepts the present token. With the latter it asks for those that it had, too. If
        the server did not name what a call lacked, the package asks for all that is published.
        Raises LoginNeeded for a session that lacks rights.
        """
        lacking = find_lacking_scope(response)
        if self._show_address is None:
            if lacking is None:
                return response
            self._storage.note_lacking_rights(lacking)
            raise make_rights_error(self._spec, lacking)
        stored = self._storage.load()
        needed = stored.needed_scope
        needs_login = stored.lacks_rights or needed  # earlier versions stored `needed` alone
        granted = (stored.tokens or {}).get("scope") if needed else None
        wanted = union_scopes(union_scopes(self._scope, granted), needed)
        if response.status_code == 401 and wanted:
            challenge = response.headers.get("WWW-Authenticate", "")
            response.headers["WWW-Authenticate"] = put_scope_first(challenge, wanted)
        elif needs_login and lacking is None and response.status_code != 401:
            challenge = f'Bearer error="{_LACKING}"'
            if needed:
                challenge += f', scope="{needed}"'
            headers = {"WWW-Authenticate": challenge}
            return httpx2.Response(403, headers=headers, request=response.request)
        return response

    async def _prepare_refresh(self, refused: OAuthToken | None = None) -> bool:
        """Lock the tokens if they must be refreshed, unless another session has done so.

        Return whether a refresh follows.
        """
        if not self._initialized:
            await self._initialize()
        if self.context.is_token_valid() or not self.context.can_refresh_token():
            return False
        await self._lock.enter_async_context(self._storage.file.lock())
        await self._initialize()
        tokens = self.context.current_tokens
        if refused and tokens and tokens.access_token == refused.access_token:
            self.context.token_expiry_time = _EXPIRED
        if self.context.is_token_valid():
            await self._lock.aclose()
            return False
        return True


def find_lacking_scope(response: httpx2.Response) -> str | None:
    """Return the rights that a refused request lacks, "" if the server does not name them.

    None if the server refuses it for another reason, or not at all.
    """
    if response.status_code != 403:
        return None
    if extract_field_from_www_auth(response, "error") != _LACKING:
        return None
    return extract_scope_from_www_auth(response) or ""


def make_rights_error(spec: ServerSpec, scope: str) -> LoginNeeded:
    """Return the error for a call that needs more rights than the login has."""
    rights = f": {scope}" if scope else ""
    return LoginNeeded(
        f"server {spec.name} wants a login with more rights{rights}",
        where=spec.origin,
        remedy=make_login_remedy(spec.name, scope),
    )


def make_login_remedy(server: str, scope: str | None) -> str:
    """Return the command that logs in, and what helps if the server did not name the scope.

    Arguments:
        scope: that a call lacked, "" if the server did not name it; None if it lacked none.
    """
    remedy = f"Run: mudroom mcp login {server}"
    if scope != "":
        return remedy
    return f"{remedy}. If that is not enough, name the rights in `scopes` of its `oauth`"


def put_scope_first(challenge: str, scope: str) -> str:
    """Return the header WWW-Authenticate with a challenge in front that names other rights.

    The package reads the first `scope=` of the header, also one inside a quoted text. So the header
    itself stays as it is.

    Arguments:
        challenge: the header of the server, "" if it sent none.
    """
    first = f'Bearer scope="{scope}"'
    return f"{first}, {challenge}" if challenge else first


def _dump(value: Any) -> dict[str, Any] | None:  # noqa: ANN401  a model of the package
    return value.model_dump(mode="json", exclude_none=True) if value else None


def choose_secret_method(
    metadata: Mapping[str, Any] | None,
) -> Literal["client_secret_basic", "client_secret_post"]:
    """Return how a client of the configuration sends its secret: in a header, if that is allowed.

    Arguments:
        metadata: of the login server (RFC 8414), None if it is not known.
    """
    allowed: list[str] = (metadata or {}).get("token_endpoint_auth_methods_supported") or []
    is_body_only = "client_secret_post" in allowed and "client_secret_basic" not in allowed
    return "client_secret_post" if is_body_only else "client_secret_basic"


async def log_in(
    spec: ServerSpec,
    file: LoginFile,
    redirect: str,
    show_address: ShowAddress,
    wait_for_code: WaitForCode,
) -> bool:
    """Log in to a server. Return False if it wants no login.

    Raises LoginNeeded with the reason if the login failed.
    """
    provider = LoginProvider(
        spec, file, redirect=redirect, show_address=show_address, wait_for_code=wait_for_code
    )
    probe: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    try:
        async with httpx2.AsyncClient(
            auth=provider,
            headers={**UNCOMPRESSED, **spec.headers},
            timeout=_REQUEST_SECONDS,
            event_hooks={"response": [limit_bodies()]},
        ) as http:
            response = await http.post(spec.url, json=probe, headers=accept)
    except MudroomError:
        raise
    except Exception as error:
        raise LoginNeeded(
            f"the login to server {spec.name} failed: {str(error) or type(error).__name__}",
            where=spec.origin,
            remedy=f"Check its address, and whether it runs: mudroom mcp get {spec.name}",
        ) from error
    if response.status_code in (401, 403):
        raise LoginNeeded(
            f"the login to server {spec.name} failed: HTTP {response.status_code}",
            where=spec.origin,
            remedy="Check what your user may do there, and `scopes` in `oauth` of the server.",
        )
    return provider.context.current_tokens is not None


def parse_redirect(target: str) -> AuthorizationCodeResult:
    """Return the answer in the address that the browser was sent to. Raises ValueError."""
    query = httpx2.URL(target).params
    if error := query.get("error"):
        raise ValueError(f"{error} {query.get('error_description') or ''}".strip())
    code = query.get("code")
    if not code:
        raise ValueError("the address has no code")
    return AuthorizationCodeResult(code=code, state=query.get("state"), iss=query.get("iss"))
