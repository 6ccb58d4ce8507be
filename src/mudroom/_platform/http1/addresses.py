"""Addresses of requests, from a URL and the proxy variables of the environment."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from urllib.parse import SplitResult, quote, unquote, urlsplit

from msgspec import Struct

from .errors import InvalidRequest

_PORTS = {"http": 80, "https": 443}
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~?"


class Proxy(Struct, frozen=True):
    """A proxy. `authorization`: value of its header, "" if it needs none."""

    host: str
    port: int
    is_tls: bool
    authorization: str


class Address(Struct, frozen=True):
    """Destination of a request.

    Arguments:
        host, port: of the server.
        is_tls: the connection is encrypted.
        target: the request target: path and query; the whole URL for a plain request to a proxy.
        host_header: value of the `Host` header.
        authorization: value of the header for the user name in the URL, "" if there is none.
        proxy: None connects to the server itself.
    """

    host: str
    port: int
    is_tls: bool
    target: str
    host_header: str
    authorization: str
    proxy: Proxy | None

    @property
    def origin(self) -> tuple[str, int, bool]:
        """The server of a connection; requests with the same one can share it."""
        return self.host, self.port, self.is_tls


def parse_url(url: str, *, allows_proxy: bool = True) -> Address:
    """Return the address of a URL, with the proxy that the environment names for it.

    Raises InvalidRequest.

    Arguments:
        allows_proxy: false connects to the server itself in any case.
    """
    parts = _split_url(url)
    host = _encode_host(parts.hostname or "")
    is_tls = parts.scheme == "https"
    port = parts.port or _PORTS[parts.scheme]
    shown_host = f"[{host}]" if ":" in host else host
    host_header = shown_host if port == _PORTS[parts.scheme] else f"{shown_host}:{port}"
    target = quote(parts.path or "/", safe=_SAFE_IN_PATH)
    if parts.query:
        target += f"?{quote(parts.query, safe=_SAFE_IN_PATH)}"
    proxy = _find_proxy(parts.scheme, host, f"{shown_host}:{port}") if allows_proxy else None
    if proxy is not None and not is_tls:
        target = f"http://{host_header}{target}"
    return Address(host, port, is_tls, target, host_header, _make_authorization(parts), proxy)


def _split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:
        raise InvalidRequest("this is not a URL") from None
    if not is_valid:
        raise InvalidRequest("this is not a URL")
    return parts


def _encode_host(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidRequest("this is not a URL") from None


def _make_authorization(parts: SplitResult) -> str:
    """Return the value of a Basic header for the user name in a URL, "" if there is none."""
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def is_this_machine(host: str) -> bool:
    """Return whether a host is this machine, which is reached without a proxy."""
    return host.startswith("127.") or host in ("localhost", "::1")


def _find_proxy(scheme: str, host: str, host_and_port: str) -> Proxy | None:
    """Return the proxy that the environment names for a host; None for this machine."""
    names_proxy = sys.platform == "darwin" or any(
        name.lower().endswith("_proxy") for name in os.environ
    )
    if is_this_machine(host) or not names_proxy:
        return None
    from urllib.request import getproxies, proxy_bypass  # takes about 20 ms

    # NO_PROXY may name a host, or one port of it.
    if proxy_bypass(host) or proxy_bypass(host_and_port):
        return None
    proxies = getproxies()
    url = proxies.get(scheme) or proxies.get("all")
    if not url:
        return None
    try:
        parts = _split_url(url if "://" in url else f"http://{url}")
    except InvalidRequest:
        raise InvalidRequest(
            f"the proxy in {scheme.upper()}_PROXY or ALL_PROXY is not an HTTP proxy"
        ) from None
    port = parts.port or _PORTS[parts.scheme]
    return Proxy(parts.hostname or "", port, parts.scheme == "https", _make_authorization(parts))
