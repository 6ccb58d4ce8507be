"""Logins by a proxy: its header names the owner, and only listed addresses may send it."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom.errors import UsageError
from mudroom_serve.server import ProxyLogin, make_proxy_login, parse_networks
from mudroom_serve.setup import ServiceOptions

from .conftest import Client, MakeSite, is_idle
from .test_shares import spend

HEADER = "X-Forwarded-Email"
LOCAL: dict[str, Any] = {
    "is_behind_proxy": True,
    "host_names": ("agents.example",),
    "login_header": HEADER,
    "login_networks": ("127.0.0.0/8", "::1"),
}


def log_in(client: Client, owner: str) -> Client:
    user = Client(client._http, client.url, "")
    user.headers = {HEADER: owner}
    return user


async def test_the_header_of_the_proxy_names_the_owner(make_site: MakeSite) -> None:
    site = make_site(["Mine.", "Yours."], options={**LOCAL, "keepalive_seconds": 0.05})
    async with site.connect(owner="cy", scopes=("read",)) as token:
        ada, bob = log_in(token, "ada@example.com"), log_in(token, "bob@example.com")
        session = (await ada.create(prompt="Go."))["id"]
        assert (await ada.finish(session))["last"]["reason"] == "GOAL"
        assert (await bob.get("/v1/sessions"))["data"] == []
        assert (await bob.send("GET", f"/v1/sessions/{session}"))[0] == 404
        assert (await bob.send("GET", "/metrics"))[0] == 403
        silent = 0
        async with ada.open_stream(session) as stream:
            async for message in stream:  # a stream of a login outlives checks of tokens
                if is_idle(message):
                    silent += 1
                    if silent == 1:
                        await ada.post(session, "user.message", text="Again.")
                    if message["data"]["last"]["id"] == "in_2":
                        break
        ada.headers["Authorization"] = "Bearer eyJhbGciOi.of.the-proxy"
        assert len((await ada.get("/v1/sessions"))["data"]) == 1
        ada.headers["Authorization"] = f"Bearer {token.token}"
        assert (await ada.get("/v1/sessions"))["data"] == []  # that of the token's owner
        assert (await ada.send("POST", "/v1/sessions", {}))[0] == 403
        ada.headers["Authorization"] = f"Bearer {token.token}x"
        assert (await ada.send("GET", "/v1/sessions"))[0] == 401


async def test_wrong_names_are_no_login(make_site: MakeSite) -> None:
    async with make_site([], options=LOCAL).connect() as client:
        for name in ("", " ", "a" * 101, "ada, bob", "token owner\u00a0"):
            assert (await log_in(client, name).send("GET", "/v1/sessions"))[0] == 401, name


async def test_other_addresses_cannot_log_in(make_site: MakeSite) -> None:
    site = make_site([], options={**LOCAL, "login_networks": ("192.0.2.0/24",)})
    async with site.connect() as client:
        status, value = await log_in(client, "ada").send("GET", "/v1/sessions")
        assert (status, value["error"]["code"]) == (401, "wrong_token")
        assert (await client.get("/v1/sessions"))["data"] == []


async def test_the_budget_of_a_login_is_of_each_owner(make_site: MakeSite) -> None:
    site = make_site([spend(120_000), "Fine."], options={**LOCAL, "login_tokens_per_day": 100_000})
    async with site.connect() as client:
        ada, bob = log_in(client, "ada"), log_in(client, "bob")
        await ada.finish((await ada.create(prompt="Go."))["id"])
        assert (await ada.send("POST", "/v1/sessions", {"prompt": "Go."}))[0] == 429
        assert (await bob.finish((await bob.create(prompt="Go."))["id"]))["last"][
            "reason"
        ] == "GOAL"


def test_networks_are_addresses_or_ranges() -> None:
    login = ProxyLogin(HEADER, ("10.1.0.0/16", "::1", "fd00::/8"), None, None)
    assert login.is_trusted("10.1.2.3")
    assert login.is_trusted("::ffff:10.1.2.3")
    assert login.is_trusted("fd00::1%eth0")
    assert not login.is_trusted("10.2.2.3")
    assert not login.is_trusted("")
    with pytest.raises(UsageError, match="'proxy' is no address"):
        parse_networks(("proxy",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"login_networks": ()}, "--login-from"),
        ({"login_header": ""}, "--login-header"),
        ({"login_header": "Bad Name"}, "is no name of a header"),
        ({"login_header": "Authorization"}, "is no name of a header"),
        ({"is_behind_proxy": False}, "--behind-proxy"),
        ({"login_networks": ("0.0.0.0/0",)}, "any address"),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], message: str) -> None:
    options = ServiceOptions(home="/x", workspaces={"default": "/x"}, **{**LOCAL, **changes})
    with pytest.raises(UsageError, match=message):
        make_proxy_login(options)
