"""Tests of what a key may pass on its way: proxies, tunnels, and certificates of servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from mudroom._platform.http1.parser import CannotConnect, UntrustedServer
from mudroom._platform.http1.pool import ConnectionPool, parse_url

from ..waiting import SECONDS
from .test_http1 import (
    HELLO,
    NAMES,
    ProxyServer,
    RawServer,
    make_certificate,
    open_pool,
    open_proxy,
)

KEY = "sk-very-secret"
HEADERS = {"X-Api-Key": KEY, "Authorization": f"Bearer {KEY}", "Cookie": f"session={KEY}"}
PROXY = "http://ada:pw@127.0.0.1:3128"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def ask(pool: ConnectionPool, url: str) -> bytes:
    """Return the answer to a request that has a key."""
    async with asyncio.timeout(SECONDS):
        response = await pool.post(url, HEADERS, lambda: f"body with {KEY}".encode())
        answer = b""
        while data := await response.read():
            answer += data
        response.close(is_answered=True)
        return answer


def dns(*names: str) -> Sequence[x509.GeneralName]:
    return [x509.DNSName(name) for name in names]


TRUSTED = {
    "its name": (dns("models.invalid"), "models.invalid"),
    "its name in capitals": (dns("MODELS.invalid"), "models.INVALID"),
    "a wildcard for one label": (dns("*.models.invalid"), "api.models.invalid"),
    "its address": ([x509.IPAddress(ip_address("192.0.2.1"))], "192.0.2.1"),
    "its address of IPv6": ([x509.IPAddress(ip_address("2001:db8::1"))], "[2001:db8:0::1]"),
}
UNTRUSTED = {
    "another name": (dns("other.invalid"), "models.invalid"),
    "a longer name": (dns("models.invalid.example"), "models.invalid"),
    "a name below": (dns("models.invalid"), "api.models.invalid"),
    "a wildcard for two labels": (dns("*.invalid"), "api.models.invalid"),
    "a wildcard for its own domain": (dns("*.models.invalid"), "models.invalid"),
    "a wildcard inside": (dns("api.*.invalid"), "api.models.invalid"),
    "a wildcard for everything": (dns("*"), "models.invalid"),
    "another address": ([x509.IPAddress(ip_address("192.0.2.2"))], "192.0.2.1"),
    "its address as a name": (dns("192.0.2.1"), "192.0.2.1"),
    "a wildcard for addresses": (dns("*.0.2.1"), "192.0.2.1"),
    "its address as a common name": ((), "192.0.2.1"),
    "only a common name": ((), "models.invalid"),
    "its mail address": ([x509.RFC822Name("a@models.invalid")], "models.invalid"),
    "its name as an address on the web": (
        [x509.UniformResourceIdentifier("https://models.invalid/")],
        "models.invalid",
    ),
}


async def connect(
    folder: Path, monkeypatch: pytest.MonkeyPatch, names: Sequence[x509.GeneralName], host: str
) -> tuple[RawServer, ProxyServer, BaseException | bytes]:
    """Send a request with a key to a host; return what the server and the proxy received."""
    certificate, tls = make_certificate(folder, names, common_name=host.strip("[]"))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = RawServer(HELLO)
    async with open_pool(server, tls=tls) as pool:
        proxy = ProxyServer(server.port)
        async with open_proxy(proxy) as address:
            monkeypatch.setenv("HTTPS_PROXY", f"http://ada:pw@{address}")
            results = await asyncio.gather(ask(pool, f"https://{host}/v1"), return_exceptions=True)
    return server, proxy, results[0]


@pytest.mark.parametrize("name", TRUSTED)
async def test_a_key_is_sent_inside_a_tunnel_to_the_server_of_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    names, host = TRUSTED[name]
    server, proxy, answer = await connect(tmp_path, monkeypatch, names, host)
    assert answer == b"hello"
    assert KEY in server.requests[0][0] and "Proxy-Authorization" not in server.requests[0][0]
    assert proxy.heads[0].startswith(f"CONNECT {host}:443 HTTP/1.1\r\n") or name != "its name"
    assert "Proxy-Authorization: Basic YWRhOnB3\r\n" in proxy.heads[0]
    assert KEY not in proxy.heads[0]


@pytest.mark.parametrize("name", UNTRUSTED)
async def test_no_byte_is_sent_to_a_server_with_another_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    names, host = UNTRUSTED[name]
    server, proxy, error = await connect(tmp_path, monkeypatch, names, host)
    assert isinstance(error, UntrustedServer), error
    assert "certificate verify failed" in str(error)
    assert server.requests == []
    assert KEY not in "".join(proxy.heads)


@pytest.mark.parametrize(
    ("days", "reason"), [((-9, -1), "certificate has expired"), ((1, 9), "not yet valid")]
)
async def test_no_byte_is_sent_outside_the_time_of_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: tuple[int, int], reason: str
) -> None:
    certificate, tls = make_certificate(tmp_path, days=days)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = RawServer(HELLO)
    async with open_pool(server, tls=tls) as pool:
        with pytest.raises(UntrustedServer, match=reason):
            await ask(pool, f"https://localhost:{server.port}/")
    assert server.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n\r\n",
        b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
        b"HTTP/1.1 500 No\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + HELLO,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
        b"",
    ],
)
async def test_a_proxy_without_a_tunnel_is_named_and_gets_no_key(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    proxy = ProxyServer(0, answer or b" ")
    pool = ConnectionPool(read_timeout=SECONDS)
    async with open_proxy(proxy) as address:
        monkeypatch.setenv("HTTPS_PROXY", address)
        with pytest.raises(CannotConnect, match=f"the proxy {address}") as error:
            await ask(pool, "https://models.invalid/v1")
        await pool.close()
    assert b" 407 " not in answer or "answered 407" in str(error.value)
    assert len(proxy.heads) == 1 and KEY not in proxy.heads[0]


async def test_a_proxy_cannot_answer_in_place_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trusted itself, but for another name."""
    certificate, tls = make_certificate(tmp_path, NAMES)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = RawServer(HELLO)
    async with open_pool(server, tls=tls) as pool:
        async with open_proxy(ProxyServer(server.port)) as address:
            monkeypatch.setenv("HTTPS_PROXY", address)
            with pytest.raises(UntrustedServer):
                await ask(pool, "https://api.example/v1")
    assert server.requests == []


@pytest.mark.parametrize("name", ["{}_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("change", [str.upper, str.lower])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("value", [PROXY, "ada:pw@127.0.0.1:3128"])
def test_a_proxy_is_named_in_every_spelling(
    monkeypatch: pytest.MonkeyPatch, name: str, change: type[str], scheme: str, value: str
) -> None:
    monkeypatch.setenv(change(name.format(scheme)), value)
    address = parse_url(f"{scheme}://models.invalid/v1")
    assert address.proxy and (address.proxy.host, address.proxy.port) == ("127.0.0.1", 3128)
    assert address.proxy.authorization == "Basic YWRhOnB3"
    assert address.authorization == ""
    if name != "ALL_PROXY":
        other = {"http": "https", "https": "http"}[scheme]
        assert parse_url(f"{other}://models.invalid/v1").proxy is None


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize(
    ("value", "url", "has_proxy"),
    [
        ("models.invalid", "https://models.invalid/", False),
        ("models.invalid", "https://api.models.invalid/", False),
        (".models.invalid", "https://api.models.invalid/", False),
        ("a.example, MODELS.invalid", "https://models.invalid/", False),
        ("*", "https://models.invalid/", False),
        ("models.invalid", "https://notmodels.invalid/", True),
        ("models.invalid", "https://models.invalid.example/", True),
        ("models.invalid:8443", "https://models.invalid:8443/", False),
        ("models.invalid:443", "https://models.invalid/", False),
        ("models.invalid:8443", "https://models.invalid/", True),
        ("192.0.2.1", "https://192.0.2.1:8443/", False),
        ("2001:db8::1", "https://[2001:db8::1]:8443/", False),
        ("", "https://models.invalid/", True),
    ],
)
def test_no_proxy_names_hosts_and_ports(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, url: str, has_proxy: bool
) -> None:
    monkeypatch.setenv("ALL_PROXY", PROXY)
    monkeypatch.setenv(name, value)
    assert (parse_url(url).proxy is not None) is has_proxy
