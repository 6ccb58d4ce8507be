"""OAuth logins of HTTP servers, with a real login server: login, refresh, failures, logout."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from msgspec.structs import replace

from mudroom import ServerSpec
from mudroom._adapters.integrations.mcp_servers import oauth
from mudroom._adapters.integrations.mcp_servers.listing import ListedTool
from mudroom._adapters.integrations.mcp_servers.server_connection import Connection, ServerError
from mudroom._adapters.integrations.mcp_servers.stored_logins import LoginFile
from mudroom._cli.actions.programs import server_logins
from mudroom._platform.connection_limits import ConnectionLimits

from ...half_open import check_half_open, open_half
from ...postgres_server import find_free_port

ADD = ListedTool("add", "", {})


class Guarded:
    def __init__(self, port: int, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.folder = folder
        self.logins = str(folder / "logins")
        self.spec = ServerSpec(
            name="web", origin="test", scope="option", transport="http", url=f"{self.url}/mcp"
        )
        self.file = LoginFile(self.logins, self.spec.url)

    def control(self, **change: Any) -> dict[str, int]:
        """Change what the login server does; return the counts of its requests."""
        data = json.dumps(change).encode()
        with urllib.request.urlopen(f"{self.url}/control", data) as response:
            return json.load(response)

    async def log_in(self) -> None:
        """Log in as a browser does that follows the redirect."""
        targets: list[str] = []

        async def show_address(address: str) -> None:
            targets.append(await asyncio.to_thread(follow, address))

        async def wait_for_code() -> Any:
            return oauth.parse_redirect(targets[0])

        redirect = "http://127.0.0.1:9/callback"
        assert await oauth.log_in(self.spec, self.file, redirect, show_address, wait_for_code)

    def connect(self) -> Connection:
        return Connection(self.spec, str(self.folder), {}, lambda _: None, logins=self.logins)

    async def add(self) -> str:
        """Call the tool in a session of its own."""
        connection = self.connect()
        try:
            result = await connection.call(ADD, {"a": 1, "b": 2}, print)
            return result.content[0].text
        finally:
            await connection.close()


def follow(address: str) -> str:
    """Return the address that a login page redirects to."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        target = connection.getresponse().getheader("Location")
    finally:
        connection.close()
    assert target
    return target


@contextmanager
def serve(folder: Path) -> Generator[Guarded]:
    command = [sys.executable, str(Path(__file__).with_name("oauth_server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            yield Guarded(int(process.stdout.readline()), folder)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Generator[Guarded]:
    with serve(tmp_path_factory.mktemp("server")) as guarded:
        yield guarded


@pytest.fixture
def guarded(process: Guarded, tmp_path: Path) -> Guarded:
    process.control(ttl=3600, fail=0, needed="", names=True)
    return Guarded(int(process.url.rpartition(":")[2]), tmp_path)


async def test_a_login_is_stored_privately_and_used_by_later_sessions(guarded: Guarded) -> None:
    with pytest.raises(ServerError, match="Run: mudroom mcp login web"):
        await guarded.add()
    await guarded.log_in()
    assert await guarded.add() == "3"
    (path,) = Path(guarded.logins).glob("*.json")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    login = guarded.file.load()
    assert login and login.issuer.rstrip("/") == guarded.url


async def test_a_call_that_needs_more_rights_gets_them_by_a_new_login(guarded: Guarded) -> None:
    await guarded.log_in()
    guarded.control(needed="write")
    connection = guarded.connect()
    try:
        text = r"wants a login with more rights:? write\. Run: mudroom mcp login web"
        with pytest.raises(ServerError, match=text):
            await connection.call(ADD, {"a": 1, "b": 2}, print)
        before = guarded.control()
        await guarded.log_in()
        result = await connection.call(ADD, {"a": 1, "b": 2}, print)
    finally:
        await connection.close()
    assert result.content[0].text == "3"
    login = guarded.file.load()
    assert login and login.tokens
    assert set(login.tokens["scope"].split()) == {"read", "write"}
    assert login.needed_scope == ""
    after = guarded.control()
    assert after["authorize"] - before["authorize"] == 1
    assert after["register"] == before["register"]


async def test_scopes_that_the_server_did_not_name_need_a_login_with_those_of_the_configuration(
    guarded: Guarded,
) -> None:
    await guarded.log_in()
    guarded.control(needed="write", names=False)
    text = r"login with more rights\. Run: mudroom mcp login web\. If .* `scopes` of its `oauth`"
    with pytest.raises(ServerError, match=text):
        await guarded.add()
    login = guarded.file.load()
    assert login and login.lacks_rights and login.needed_scope == ""
    guarded.spec = replace(guarded.spec, oauth={"scopes": ["write"]})
    before = guarded.control()
    await guarded.log_in()
    assert await guarded.add() == "3"
    assert guarded.control()["authorize"] - before["authorize"] == 1
    login = guarded.file.load()
    assert login and login.tokens and not login.lacks_rights
    assert set(login.tokens["scope"].split()) == {"read", "write"}


async def test_a_refresh_keeps_the_rights_that_the_next_login_asks_for(guarded: Guarded) -> None:
    guarded.control(ttl=-1)
    await guarded.log_in()
    guarded.control(ttl=3600)
    login = guarded.file.load()
    assert login
    guarded.file.store(replace(login, needed_scope="write"))  # without the later `lacks_rights`
    before = guarded.control()
    assert await guarded.add() == "3"
    login = guarded.file.load()
    assert login and login.needed_scope == "write"
    guarded.file.store(replace(login, expires_at=1.0))
    await guarded.log_in()
    after = guarded.control()
    assert after["refresh"] - before.get("refresh", 0) == 2
    assert after["authorize"] - before["authorize"] == 1
    login = guarded.file.load()
    assert login and login.tokens
    assert set(login.tokens["scope"].split()) == {"read", "write"}
    assert login.needed_scope == ""


async def test_a_login_after_a_refused_refresh_asks_for_the_rights_of_before_too(
    guarded: Guarded,
) -> None:
    guarded.control(ttl=-1)
    await guarded.log_in()
    guarded.control(ttl=3600, forget=True)
    login = guarded.file.load()
    assert login
    guarded.file.store(replace(login, lacks_rights=True, needed_scope="write"))
    await guarded.log_in()
    login = guarded.file.load()
    assert login and login.tokens
    assert set(login.tokens["scope"].split()) == {"read", "write"}


@pytest.mark.parametrize(
    "challenge",
    [
        "Bearer",
        'Bearer scope="a", error="e"',
        "Bearer error=e, scope=a",
        'Bearer error_description="it needs scope=a", error="e"',
        'Bearer error_description="it needs, scope=a, \\"b\\"", scope="c"',
        'Bearer x-scope="a", resource_metadata="http://here/scope=a"',
        'Basic realm="a", Bearer scope="b", Digest realm="c"',
        "Negotiate YWJj==",
    ],
)
def test_the_rights_of_a_login_leave_the_rest_of_a_challenge_alone(challenge: str) -> None:
    with_rights = oauth.put_scope_first(challenge, "read write")
    response = httpx2.Response(401, headers={"WWW-Authenticate": with_rights})
    assert extract_scope_from_www_auth(response) == "read write"
    before = httpx2.Response(401, headers={"WWW-Authenticate": challenge})
    for name in ("error", "resource_metadata"):
        value = extract_field_from_www_auth(before, name)
        assert extract_field_from_www_auth(response, name) == value
    assert with_rights.removeprefix('Bearer scope="read write", ').endswith(challenge)


@pytest.mark.skipif(not os.environ.get("MUDROOM_LONG"), reason="takes 6 s")
async def test_a_login_waits_for_a_busy_server(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(6.0)
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": {}})

    app = web.Application()
    app.router.add_post("/mcp", answer)
    async with TestServer(app) as running:
        port = running.make_url("").port
        assert port
        guarded = Guarded(port, tmp_path)

        async def refuse(*_: object) -> Any:
            raise AssertionError

        login = oauth.log_in(guarded.spec, guarded.file, oauth.NO_PORT, refuse, refuse)
        assert await login is False


async def test_an_expired_token_is_refreshed_once_for_all_sessions_and_the_new_one_is_kept(
    guarded: Guarded,
) -> None:
    guarded.control(ttl=-1)
    await guarded.log_in()
    first = guarded.file.load()
    guarded.control(ttl=3600)
    before = guarded.control()
    assert await asyncio.gather(*(guarded.add() for _ in range(4))) == ["3"] * 4
    assert await guarded.add() == "3"
    after = guarded.control()
    assert after["refresh"] - before.get("refresh", 0) == 1
    assert after["authorize"] == before["authorize"]
    assert after["register"] == before["register"]
    second = guarded.file.load()
    assert first and second and first.tokens != second.tokens


async def test_a_token_that_the_server_refuses_is_refreshed(guarded: Guarded) -> None:
    await guarded.log_in()
    guarded.control(revoke=True)
    before = guarded.control()
    assert await guarded.add() == "3"
    after = guarded.control()
    assert after["refresh"] - before.get("refresh", 0) == 1
    assert after["authorize"] == before["authorize"]


async def test_trouble_of_the_login_server_deletes_no_login(guarded: Guarded) -> None:
    guarded.control(ttl=-1)
    await guarded.log_in()
    stored = guarded.file.load()
    guarded.control(fail=503)
    with pytest.raises(ServerError, match="the login server answered HTTP 503"):
        await guarded.add()
    assert guarded.file.load() == stored
    guarded.control(fail=0, ttl=3600)
    assert await guarded.add() == "3"


async def test_a_login_that_has_ended_says_which_command_renews_it(guarded: Guarded) -> None:
    guarded.control(ttl=-1)
    await guarded.log_in()
    guarded.control(forget=True)
    with pytest.raises(ServerError, match="mudroom mcp login web"):
        await guarded.add()
    registered = guarded.control()["register"]
    guarded.control(ttl=3600)
    await guarded.log_in()
    assert await guarded.add() == "3"
    assert guarded.control()["register"] == registered, "the registered client is kept"


def test_login_and_logout_at_the_command_line(guarded: Guarded) -> None:
    project = guarded.folder / "project"
    project.mkdir()
    entry = {"mcpServers": {"web": {"type": "http", "url": guarded.spec.url}}}
    (guarded.folder / ".claude.json").write_text(json.dumps(entry))
    environ = {
        **{name: value for name, value in os.environ.items() if not name.endswith("DISPLAY")},
        "HOME": str(guarded.folder),
        "MUDROOM_HOME": str(guarded.folder / "state"),
        "CI": "1",
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mudroom", *words],
            cwd=project,
            env=environ,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    with subprocess.Popen(
        [sys.executable, "-m", "mudroom", "mcp", "login", "web"],
        cwd=project,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as login:
        assert login.stdin and login.stderr and login.stdout
        text = ""
        while not (found := re.search(r"^http\S+$", text, re.MULTILINE)):
            line = login.stderr.readline()
            assert line, text
            text += line
        login.stdin.write(follow(found[0]) + "\n")
        login.stdin.flush()
        assert login.wait(60) == 0, login.stderr.read()
        assert "Logged in to web." in login.stdout.read()
    called = run("mcp", "call", "web", "add", '{"a": 20, "b": 22}')
    assert (called.returncode, called.stdout) == (0, "42\n"), called.stderr
    assert guarded_file(guarded).load()
    assert run("mcp", "logout", "web").returncode == 0
    assert guarded_file(guarded).load() is None


def test_a_login_to_a_server_that_does_not_run_names_the_cause_and_the_remedy(
    tmp_path: Path,
) -> None:
    url = f"http://127.0.0.1:{find_free_port()}/mcp"
    entry = {"mcpServers": {"web": {"type": "http", "url": url}}}
    (tmp_path / ".claude.json").write_text(json.dumps(entry))
    done = subprocess.run(
        [sys.executable, "-m", "mudroom", "mcp", "login", "web"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "MUDROOM_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("mudroom: the login to server web failed: "), "no traceback"
    assert done.stderr.endswith("whether it runs: mudroom mcp get web\n")


def guarded_file(guarded: Guarded) -> LoginFile:
    return LoginFile(str(guarded.folder / "state" / "mcp" / "logins"), guarded.spec.url)


@pytest.mark.parametrize(
    ("allowed", "method"),
    [
        (None, "client_secret_basic"),
        (["client_secret_basic", "client_secret_post"], "client_secret_basic"),
        (["client_secret_post"], "client_secret_post"),
        (["none"], "client_secret_basic"),
    ],
)
def test_a_secret_is_sent_in_the_way_that_the_login_server_allows(
    allowed: list[str] | None, method: str
) -> None:
    metadata = {"token_endpoint_auth_methods_supported": allowed} if allowed else None
    assert oauth.choose_secret_method(metadata) == method


async def test_half_open_connections_do_not_keep_the_browser_out() -> None:
    browser = server_logins._Browser(ConnectionLimits(head_seconds=0.5, total=4))
    async with AsyncExitStack() as stack:
        url = await browser.open(stack, 0)

        async def ask() -> None:
            async with httpx2.AsyncClient() as http:
                assert "no answer to a login" in (await http.get(f"{url}/x")).text

        port = httpx2.URL(url).port
        assert port
        await check_half_open(port, 40, ask)
        long = await open_half(port, b"GET /" + b"x" * 100_000)
        await long.wait_until_cut()
        long.close()
