"""Who may do what: every path with wrong tokens, other owners' sessions, other hosts and sites."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mudroom._platform.connection_limits import ConnectionLimits
from mudroom.driving.listening import check_listen_options
from mudroom.errors import UnknownName, UsageError
from mudroom_serve.route import Route
from mudroom_serve.setup import ServiceOptions

from ...half_open import check_half_open, open_half
from .conftest import Client, MakeSite

BODIES: dict[str, Any] = {
    "/v1/sessions": {},
    "/v1/chat/completions": {"model": "mudroom", "messages": [{"role": "user", "content": "x"}]},
    "/v1/responses": {"model": "mudroom", "input": "x"},
    "/v1/sessions/{session}/events": {"type": "user.message", "text": "Hello."},
}
"""A body for each path that takes one."""
NO_NAMES = {"model": "mudroom"} | dict.fromkeys(("session", "response"), "none")


def fill(route: Route, **names: str) -> str:
    return route.path.format(**{**NO_NAMES, **names})


def list_routes(site: Any) -> list[Route]:
    assert site.server
    return site.server.routes


async def test_sessions_of_others_do_not_exist(make_site: MakeSite) -> None:
    site = make_site(["Mine."])
    async with site.connect(owner="ada") as ada:
        session = (await ada.create(prompt="Go."))["id"]
        await ada.finish(session)
        scopes = ("read", "run", "answer", "admin")
        eve = Client(ada._http, ada.url, site.add_token("eve", scopes=scopes))
        tried = 0
        other = str(uuid.uuid4())
        names, wrong = (
            {"session": each, "response": f"resp_{each.replace('-', '')}_1"}
            for each in (session, other)
        )
        for route in list_routes(site):
            if not re.search(r"\{(session|response)\}", route.path):
                continue
            tried += 1
            body = BODIES.get(route.path)

            assert (await ada.send("GET", f"/v1/responses/{names['response']}"))[0] == 200
            others = await eve.send(route.method, fill(route, **names), body)
            missing = await eve.send(route.method, fill(route, **wrong), body)
            assert others[0] == missing[0] == 404, route.path
            assert others[1]["error"]["code"] == missing[1]["error"]["code"]
        assert tried >= 6
        previous: Any = {
            "model": "mudroom",
            "input": "x",
            "previous_response_id": names["response"],
        }
        assert (await eve.send("POST", "/v1/responses", previous))[0] == 404
        assert (await eve.get("/v1/sessions"))["data"] == []
        assert (await ada.get(f"/v1/sessions/{session}"))["last"]["reason"] == "GOAL"


async def test_every_path_needs_a_token(make_site: MakeSite) -> None:
    site = make_site([])
    async with site.connect() as client:
        secret = client.token.split("_", 2)[2]
        wrong = ("", "Bearer", f"Bearer {client.token}x", f"Bearer mudroom_00000000_{secret}")
        for route in list_routes(site):
            for header in wrong:
                client.headers = {"Authorization": header} if header else {}
                body = BODIES.get(route.path)
                status, value = await client.send(route.method, fill(route), body)
                assert status == (200 if route.scope is None else 401), route.path
                assert route.scope is None or value["error"]["code"] == "wrong_token"


async def test_every_path_needs_its_scope(make_site: MakeSite) -> None:
    site = make_site([])
    async with site.connect(scopes=("answer",)) as client:
        for route in list_routes(site):
            if route.scope in (None, "answer"):
                continue
            status, value = await client.send(route.method, fill(route), BODIES.get(route.path))
            assert (status, value["error"]["code"]) == (403, "wrong_scope"), route.path


async def test_events_need_the_scope_of_their_type(make_site: MakeSite) -> None:
    site = make_site([])
    async with site.connect() as client:
        session = (await client.create())["id"]
        path = f"/v1/sessions/{session}/events"
        answer = {"type": "question.answer", "question": "q_1", "allow": True}
        for scopes, body, status in (
            (("read",), BODIES["/v1/sessions/{session}/events"], 403),
            (("read",), answer, 403),
            (("read", "run"), answer, 403),
            (("read", "answer"), answer, 202),
        ):
            other = Client(client._http, client.url, site.add_token(scopes=scopes))
            assert (await other.send("POST", path, body))[0] == status


RIGHTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"agents": ("reader",)}, {}, "unknown_agent"),
    ({"agents": ("mudroom",)}, {"agent": "reader"}, "unknown_agent"),
    ({}, {"agent": "writer"}, "unknown_agent"),
    ({"workspaces": ("other",)}, {"workspace": "default"}, "unknown_workspace"),
    ({}, {"workspace": "../home"}, "unknown_workspace"),
    ({}, {"mode": "bypassPermissions"}, "unknown_mode"),
    ({"modes": ("plan",)}, {"mode": "bypassPermissions"}, "unknown_mode"),
]
"""Rights of a token, the body of a new session, and the error."""


async def test_a_token_allows_agents_modes_and_workspaces(make_site: MakeSite) -> None:
    site = make_site([])
    async with site.connect() as client:
        for rights, body, code in RIGHTS:
            other = Client(client._http, client.url, site.add_token(**rights))
            status, value = await other.send("POST", "/v1/sessions", body)
            assert (status, value["error"]["code"]) == (400, code), rights


async def test_lists_have_only_what_a_token_allows(make_site: MakeSite) -> None:
    site = make_site([])
    async with site.connect() as client:
        models = await client.get("/v1/models")
        assert [model["id"] for model in models["data"]] == ["mudroom", "reader"]
        agents = await client.get("/v1/agents")
        assert agents["workspaces"] == ["default", "other"]
        rights: dict[str, Any] = {"agents": ("reader",), "workspaces": ("other",)}
        rights["modes"] = ("plan",)
        narrow = Client(client._http, client.url, site.add_token(**rights))
        assert [each["id"] for each in (await narrow.get("/v1/models"))["data"]] == ["reader"]
        page = await narrow.get("/v1/agents")
        assert (page["workspaces"], page["modes"]) == (["other"], ["plan"])
        assert (await narrow.send("GET", "/v1/models/mudroom"))[0] == 404
        assert (await narrow.create(agent="reader"))["workspace"] == "other"


async def test_a_removed_token_ends_its_streams(make_site: MakeSite) -> None:
    site = make_site([], options={"keepalive_seconds": 0.05})
    async with site.connect() as client:
        session = (await client.create())["id"]
        token = site.tokens.list()[0]
        async with asyncio.timeout(30), client.open_stream(session) as stream:
            assert (await anext(stream))["event"] == "status"
            site.tokens.remove(token.id)
            assert [message async for message in stream] == []
        assert (await client.send("GET", "/v1/sessions"))[0] == 401


async def test_only_digests_of_tokens_are_stored(make_site: MakeSite) -> None:
    site = make_site([])
    token = site.add_token("ada")
    secret = token.split("_", 2)[2].encode()
    files = list(Path(site.home).glob("serve.sqlite3*"))
    assert files
    assert not [path for path in files if secret in path.read_bytes()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    with pytest.raises(UnknownName):
        site.tokens.remove("none")
    with pytest.raises(UsageError):
        site.add_token("a\nb")


async def test_pages_of_other_sites_are_refused(make_site: MakeSite) -> None:
    async with make_site([]).connect() as client:
        for name, value, status in (
            ("Host", "evil.example", 421),
            ("Host", "127.0.0.1:1", 421),
            ("Origin", "http://evil.example", 403),
            ("Origin", "null", 403),
        ):
            for path in ("/health", "/v1/sessions"):
                assert (await client.send("GET", path, **{name: value}))[0] == status, value


async def test_a_proxy_has_its_names(make_site: MakeSite) -> None:
    options = {"is_behind_proxy": True, "host_names": ("agents.example",)}
    async with make_site([], options=options).connect() as client:
        headers = {"Host": "agents.example", "Origin": "https://agents.example"}
        assert (await client.send("GET", "/v1/sessions", **headers))[0] == 200
        headers["Origin"] = "http://agents.example"
        assert (await client.send("GET", "/v1/sessions", **headers))[0] == 403
        assert (await client.send("GET", "/v1/sessions", Host="other.example"))[0] == 421


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"host": "0.0.0.0"}, "--tls-cert"),
        ({"host": "192.0.2.1"}, "--behind-proxy"),
        ({"tls_cert": "a.pem"}, "--tls-key"),
        ({"is_behind_proxy": True}, "--host-name"),
    ],
)
def test_an_address_without_protection_is_refused(values: dict[str, Any], remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        check_listen_options(ServiceOptions(home="h", workspaces={}, **values))


async def test_requests_that_are_no_http_are_counted_and_not_logged(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site([])
    async with site.connect(scopes=("read", "admin")) as client:
        port = int(client.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nX: \x00\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
        _, metrics = await client.send("GET", "/metrics")
        assert "mudroom_requests_malformed_total 1\n" in metrics
    assert not caplog.records
    assert not site.notices


async def test_long_and_slow_bodies_are_refused(make_site: MakeSite) -> None:
    options = {"max_body": 1_000, "body_seconds": 0.1}
    async with make_site([], options=options).connect() as client:
        body = {"prompt": "x" * 2_000}
        status, value = await client.send("POST", "/v1/sessions", body)
        assert (status, value["error"]["code"]) == (413, "too_large")
        host, port = client.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/sessions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 50\r\n"
        writer.write(f"{head}Authorization: Bearer {client.token}\r\n\r\n{{".encode())
        assert b"408" in await reader.readline()
        writer.close()


async def test_half_open_connections_are_cut_and_keep_nobody_out(make_site: MakeSite) -> None:
    limits = ConnectionLimits(head_seconds=0.5, total=4)
    site = make_site([], options={"connection_limits": limits})
    async with site.serve() as address:

        async def ask() -> None:
            async with aiohttp.ClientSession() as http:
                assert await Client(http, address.url, site.add_token()).get("/v1/sessions")

        await check_half_open(address.port, 40, ask)


async def test_a_silent_stream_outlives_the_limits_of_connections(make_site: MakeSite) -> None:
    limits = ConnectionLimits(head_seconds=0.1, idle_seconds=0.1)
    site = make_site(["Done."], options={"connection_limits": limits})
    async with site.connect() as client:
        session = (await client.create())["id"]
        async with asyncio.timeout(30), client.open_stream(session) as stream:
            assert (await anext(stream))["event"] == "status"
            for _ in range(3):  # All limits have passed several times.
                half_open = await open_half(int(client.url.rpartition(":")[2]))
                await half_open.wait_until_cut()
                half_open.close()
            await client.post(session, "user.message", text="Go.")
            while (await anext(stream))["event"] != "run_finished":
                pass


WRONG_BODIES: list[tuple[str, Any]] = [
    ("", b"{"),
    ("", b"\xff"),
    ("", b"[" * 100_000),
    ("", {"prompt": ""}),
    ("", {"prompt": " \n"}),
    ("", {"promt": "x"}),
    ("", {"budget": {"usd": -1}}),
    ("", {"budget": {"turns": 10**30}}),
    ("", {"prompt": "x", "outputs": {"type": "object", "properties": 3}}),
    ("/events", {}),
    ("/events", {"type": "user.shout", "text": "x"}),
    ("/events", {"type": "user.message"}),
    ("/events", {"type": "user.message", "text": "x", "extra": 1}),
    ("/events", {"type": "run.steer", "text": 3}),
]
WRONG_CURSORS = ("x", "!!!", "MQ", "YWFhYWFhYWEuMQ", "é", "LjE5OTk5OTk5OTk5OTk5OTk5")


async def test_wrong_bodies_and_cursors_are_refused(make_site: MakeSite) -> None:
    async with make_site([]).connect() as client:
        own = f"/v1/sessions/{(await client.create())['id']}"
        for path, body in WRONG_BODIES:
            path = f"{own}{path}" if path else "/v1/sessions"
            status, value = await client.send("POST", path, body)
            assert (status, value["error"]["type"]) == (400, "invalid_request_error"), body
            assert len(value["error"]["message"]) > 10
        for cursor in WRONG_CURSORS:
            for path in (f"{own}/events", f"{own}/stream"):
                status, value = await client.send("GET", f"{path}?after={cursor}")
                assert (status, value["error"]["param"]) == (400, "after"), cursor


async def test_tls_protects_another_address(make_site: MakeSite, tmp_path: Path) -> None:
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subject = ("-subj", "/CN=localhost", "-days", "1", "-nodes", "-keyout", key, "-out", cert)
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", *subject)
    subprocess.run(new, check=True, capture_output=True)  # noqa: ASYNC221
    options = {"tls_cert": cert, "tls_key": key}
    site = make_site([], options=options)
    async with site.serve() as address, aiohttp.ClientSession() as http:
        assert address.url.startswith("https://")
        async with http.get(f"{address.url}/health", ssl=False) as response:
            assert json.loads(await response.text())["status"] == "ok"
