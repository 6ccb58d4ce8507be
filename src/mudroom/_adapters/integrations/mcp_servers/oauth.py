"""OAuth for HTTP servers: the package's client, with logins kept on disk.

Import this module late and in a thread, because it imports the package.
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

from ...._version import __version__
from ....errors import MudroomError
from .body_limit import UNCOMPRESSED, limit_bodies
from .spec import ServerSpec
from .stored_logins import LoginFile, StoredLogin

# The redirect address of a session, which never opens a browser.
NO_PORT = "http://127.0.0.1/callback"
# Time for each request of a login. The package allows 5 seconds, too few for a busy server.
_REQUEST_SECONDS = 60.0
# A server's error if a call needs more rights (RFC 6750).
_LACKING = "insufficient_scope"
_EXPIRED = 1.0  # a time in the past, for tokens the server no longer accepts

ShowAddress = Callable[[str], Awaitable[None]]
WaitForCode = Callable[[], Awaitable[AuthorizationCodeResult]]


class LoginNeeded(MudroomError):
    """A server wants a login, and no user can be asked now."""


class _Storage:
    """The package's port TokenStorage, on top of a login file."""

    def __init__(self, spec: ServerSpec, file: LoginFile) -> None:
        self.file = file
        self.provider: LoginProvider | None = None
        self._spec = spec

    def load(self) -> StoredLogin:
        return self.file.load() or StoredLogin(self._spec.url)

    async def get_tokens(self) -> OAuthToken | None:
        tokens = self.load().tokens
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens before they are used: the server may accept a refresh token only once."""
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
        """Record for the next login that a call lacked rights. `scope` is "" if not named."""
        stored = self.load()
        needed = union_scopes(stored.needed_scope, scope) or ""
        self.file.store(replace(stored, lacks_rights=True, needed_scope=needed))

    def forget_lacking_rights(self) -> None:
        self.file.store(replace(self.load(), lacks_rights=False, needed_scope=""))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
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
        """Store the registered client, so that the next login does not register another."""
        stored = self.load()
        issuer = client_info.issuer or ""
        tokens = stored.tokens if stored.issuer == issuer else None
        self.file.store(replace(stored, client=_dump(client_info), issuer=issuer, tokens=tokens))


class LoginProvider(OAuthClientProvider):
    """The package's OAuth, plus expiry across sessions and a single refresh for all."""

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
        """Send the user to the login server, whose metadata is known by now."""
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
        """Handle the tokens of a login. Not called for a refresh, which gives no more rights."""
        await super()._handle_token_response(response)
        self._storage.forget_lacking_rights()

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        """Keep the tokens if the authorization server's trouble is only temporary."""
        if response.status_code >= 500 or response.status_code == 429:
            raise OAuthTokenError(f"the login server answered HTTP {response.status_code}")
        try:
            return await super()._handle_refresh_response(response)
        finally:
            await self._lock.aclose()

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the package's flow, with the tokens locked while they are refreshed.

        If the server refuses an unexpired token, a refresh is tried before a new login. If a
        session lacks rights, they are remembered for the next login.
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
            await flow.aclose()  # it holds one of this task's locks
            await self._lock.aclose()

    def _ask_for_scopes(self, response: httpx2.Response) -> httpx2.Response:
        """Alter an answer so that the package's flow asks for the right scopes.

        A login asks for the configured rights and those that calls lacked, even if the server
        accepts the current token; in that case also for the rights the token already had. If the
        server did not name what a call lacked, the package asks for everything that is published.
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
        """Lock the tokens if they must be refreshed; return whether a refresh follows.

        Another session may have just refreshed them.
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
    """Find the rights a request lacks, "" if unnamed; None if that was not why it was refused."""
    if response.status_code != 403:
        return None
    if extract_field_from_www_auth(response, "error") != _LACKING:
        return None
    return extract_scope_from_www_auth(response) or ""


def make_rights_error(spec: ServerSpec, scope: str) -> LoginNeeded:
    rights = f": {scope}" if scope else ""
    return LoginNeeded(
        f"server {spec.name} wants a login with more rights{rights}",
        where=spec.origin,
        remedy=make_login_remedy(spec.name, scope),
    )


def make_login_remedy(server: str, scope: str | None) -> str:
    """Word the login command, with advice if the server did not name the scope ("")."""
    remedy = f"Run: mudroom mcp login {server}"
    if scope != "":
        return remedy
    return f"{remedy}. If that is not enough, name the rights in `scopes` of its `oauth`"


def put_scope_first(challenge: str, scope: str) -> str:
    # The package reads the first `scope=` in the header, even inside quotes, so the server's own
    # challenge can stay unchanged.
    first = f'Bearer scope="{scope}"'
    return f"{first}, {challenge}" if challenge else first


def _dump(value: Any) -> dict[str, Any] | None:  # noqa: ANN401  a model of the package
    return value.model_dump(mode="json", exclude_none=True) if value else None


def choose_secret_method(
    metadata: Mapping[str, Any] | None,
) -> Literal["client_secret_basic", "client_secret_post"]:
    """Choose how a client sends its secret: in a header, if allowed (RFC 8414)."""
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
    """Log in to a server. Return False if it needs no login. Raises LoginNeeded with the reason."""
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
    """Parse the answer from the address the browser was redirected to. Raises ValueError."""
    query = httpx2.URL(target).params
    if error := query.get("error"):
        raise ValueError(f"{error} {query.get('error_description') or ''}".strip())
    code = query.get("code")
    if not code:
        raise ValueError("the address has no code")
    return AuthorizationCodeResult(code=code, state=query.get("state"), iss=query.get("iss"))
