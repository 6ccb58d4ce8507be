"""ProxyLogin: owners whose login a proxy has checked; it names them in a header."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from aiohttp import web

from mudroom.errors import UsageError

from .setup import ServiceOptions
from .state.tokens import Token, is_owner_name

_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_OWN_HEADERS = ("authorization", "host", "origin", "content-type", "content-length")

Network = IPv4Network | IPv6Network


class ProxyLogin:
    """Logins of one proxy.

    Arguments:
        header: name of the header with the owner.
        networks: addresses of the proxy, or ranges such as 10.0.0.0/24.
        usd_per_day, tokens_per_day: limits of each owner's spending each day; None for none.

    Raises UsageError for a header or a network that cannot be used.
    """

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
        """Return whether an address may name owners."""
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    def find(self, request: web.Request) -> Token | None:
        """Return the rights of the owner that a request names, None if it names none.

        A header that stands twice, or has a list, names none: one of them may be a client's.
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
    """Return the logins that options allow, None for none. Raises UsageError."""
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
    """Return addresses and ranges. Raises UsageError."""
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
