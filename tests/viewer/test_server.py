"""The server of the viewer: access, session list, event pages, live streams, short addresses."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.half_open import check_half_open
from tests.viewer.sessions import SessionBuilder, SingleSession, write_session

from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._core.events import NoteInjected, SessionClosed, SessionOpened
from mudroom._platform.connection_limits import ConnectionLimits
from mudroom._viewer import listener
from mudroom._viewer.server import ViewerAddress, open_viewer, serve
from mudroom._viewer.sources import SessionSource, StoredSessions, make_session_link
from mudroom.errors import UsageError
from mudroom.testing.sample_events import every_event

FAMILIES = (socket.AF_INET6, socket.AF_INET)
SESSION = "5e55a1d0-0000-4000-8000-00000000abcd"


class Client:
    """Client of the viewer; sends its token unless other headers are passed."""

    def __init__(self, address: ViewerAddress, session: aiohttp.ClientSession) -> None:
        self.address = address
        self._session = session
        self.base = f"http://127.0.0.1:{address.port}"
        self.token = {"Authorization": f"Bearer {address.token}"}

    async def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str, Any]:
        async with self._session.get(
            self.base + path,
            headers=self.token if headers is None else headers,
            allow_redirects=False,
        ) as answer:
            return answer.status, await answer.text(), answer.headers

    async def fetch_json(self, path: str) -> Any:
        status, text, _ = await self.get(path)
        assert status == 200, text
        return json.loads(text)

    @asynccontextmanager
    async def open_stream(self, path: str, **headers: str) -> AsyncGenerator[Any]:
        async with self._session.get(self.base + path, headers={**self.token, **headers}) as answer:
            assert answer.status == 200 and answer.content_type == "text/event-stream"

            async def events() -> AsyncGenerator[tuple[int, Any]]:
                number = 0
                async for line in answer.content:
                    if line.startswith(b"id: "):
                        number = int(line[4:])
                    elif line.startswith(b"data: "):
                        yield number, json.loads(line[6:])

            yield events()


@asynccontextmanager
async def open_client(source: SessionSource, **options: Any) -> AsyncGenerator[Client]:
    async with (
        open_viewer(source, port=0, **options) as address,
        aiohttp.ClientSession() as session,
    ):
        yield Client(address, session)


def make_note(text: str) -> NoteInjected:
    return NoteInjected(at=1.0, run="1", text=text)


def open_journal(home: Path) -> SqliteJournal:
    return SqliteJournal.open(home / "sessions" / f"{SESSION}.db", session=SESSION, create=True)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[Client]:
    opened = open_journal(tmp_path)
    await opened.append(*every_event())
    await opened.close()
    async with open_client(StoredSessions(SqliteStore(tmp_path))) as client:
        yield client


PATHS = (
    "/",
    "/app.js",
    "/api/sessions",
    f"/api/sessions/{SESSION}/events",
    f"/api/sessions/{SESSION}/live",
)
WRONG_LOGINS: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer wrong"},
    {"Cookie": "mudroom-7575=wrong"},
)
FOREIGN_HOSTS = (
    "evil.example:{port}",
    "127.0.0.1:1",
    "localhost",
    "",
    "127.0.0.1.evil.example:{port}",
    "10.0.0.7:{port}",
)
FOREIGN_ORIGINS = ("http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1")
OTHER_FILES = (
    "/server.py",
    "/..%2fserver.py",
    "/page%2f..%2f..%2fguard.py",
    "/api/sessions/..%2f..%2fetc/events",
    "/api/sessions/x/events",
)


async def test_requests_without_the_token_are_refused(client: Client) -> None:
    for path in PATHS:
        for headers in WRONG_LOGINS:
            status, text, _ = await client.get(path, headers)
            assert status == 401 and "token is missing or wrong" in text
            assert (await client.get(f"{path}?token=wrong", headers))[0] == 401


async def test_the_token_in_the_address_becomes_a_protected_cookie(client: Client) -> None:
    status, _, headers = await client.get(f"/?token={client.address.token}", {})
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert (await client.get("/api/sessions", {"Cookie": cookie.split(";")[0]}))[0] == 200


async def test_foreign_hosts_and_origins_are_refused(client: Client) -> None:
    port = client.address.port
    for host in FOREIGN_HOSTS:
        headers = {**client.token, "Host": host.format(port=port)}
        assert (await client.get("/api/sessions", headers))[0] == 421, host
    for origin in FOREIGN_ORIGINS:
        headers = {**client.token, "Origin": origin.format(port=port)}
        assert (await client.get("/api/sessions", headers))[0] == 403, origin
    assert (await client.get("/api/sessions", {**client.token, "Origin": client.base}))[0] == 200


async def test_bound_to_all_addresses_it_accepts_ip_addresses_but_no_foreign_names(
    tmp_path: Path,
) -> None:
    async with open_client(StoredSessions(SqliteStore(tmp_path)), host="0.0.0.0") as client:
        own = {"Host": f"10.0.0.7:{client.address.port}"}
        foreign = {"Host": f"evil.example:{client.address.port}"}
        assert (await client.get("/api/sessions", {**client.token, **own}))[0] == 200
        assert (await client.get("/api/sessions", {**client.token, **foreign}))[0] == 421
        assert (await client.get("/api/sessions", own))[0] == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost", "127.0.0.1", "::1"])
async def test_the_address_shown_for_a_host_can_be_opened(tmp_path: Path, host: str) -> None:
    async with open_client(StoredSessions(SqliteStore(tmp_path)), host=host) as client:
        client.base = client.address.url.partition("/?")[0]
        assert (await client.get("/api/sessions"))[0] == 200


async def test_every_response_has_the_security_headers(client: Client) -> None:
    for path in (*PATHS[:4], "/nothing"):
        _, _, headers = await client.get(path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


async def test_only_page_files_and_sessions_are_served(client: Client) -> None:
    for path in OTHER_FILES:
        assert (await client.get(path))[0] == 404, path


async def test_sessions_are_listed_with_their_outcome(client: Client) -> None:
    (listed,) = (await client.fetch_json("/api/sessions"))["sessions"]
    assert (
        listed["id"] == SESSION
        and listed["folder"] == "/home/someone/project"
        and listed["state"] == "finished"
        and listed["children"] == 1
    )


async def test_a_session_with_several_roots_and_children_is_summarized(tmp_path: Path) -> None:
    script = SessionBuilder()
    script.open_session()
    script.start_run("1", "Find the author.", script.at, agent="explore", depth=1)
    script.finish_run("1", script.at + 1, "Ada Bootscraper")
    script.close_session()
    await write_session(tmp_path, script)
    async with open_client(StoredSessions(SqliteStore(tmp_path))) as client:
        (listed,) = (await client.fetch_json("/api/sessions?limit=9"))["sessions"]
        status, body, _ = await client.get("/api/sessions?limit=x")
        found = await client.fetch_json(f"/api/sessions?start={script.session[:8]}")
        others = await client.fetch_json("/api/sessions?start=ffff")
    assert found == {"sessions": [listed], "total": 1}
    assert others == {"sessions": [], "total": 0}
    assert (status, body) == (400, "`limit` must be a number of sessions.\n")
    assert (listed["reason"], listed["prompt"], listed["children"]) == (
        "GOAL",
        "Find the author.",
        0,
    )
    assert listed["model"] == "anthropic:claude-sonnet-4-5"


async def test_events_start_after_a_position(client: Client) -> None:
    whole = await client.fetch_json(f"/api/sessions/{SESSION}/events")
    assert [number for number, _ in whole["events"]] == list(range(1, len(every_event()) + 1))
    assert (
        whole["events"][0][1]["type"] == "session_opened"
        and whole["more"] is False
        and whole["error"] == ""
    )
    rest = await client.fetch_json(f"/api/sessions/{SESSION}/events?after=5")
    assert rest["events"] == whole["events"][5:]
    assert (await client.get(f"/api/sessions/{SESSION}/events?after=-1"))[0] == 400


async def test_a_long_session_is_sent_in_pages(tmp_path: Path) -> None:
    source = SingleSession(SESSION, [make_note("x" * 400_000) for _ in range(11)])
    async with open_client(source) as client:
        first = await client.fetch_json(f"/api/sessions/{SESSION}/events")
        assert first["more"] and len(first["events"]) == 6
        second = await client.fetch_json(f"/api/sessions/{SESSION}/events?after=6")
        assert not second["more"] and len(second["events"]) == 5


def _encode_note(text: str) -> dict[str, Any]:
    return {"type": "note_injected", "at": 1.0, "run": "1", "text": text}


WRITER = """
import asyncio, sys
from mudroom._core.events import NoteInjected
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.store import SqliteStore
async def write():
    journal = SqliteJournal.open(sys.argv[1], session=sys.argv[2], create=True)
    for line in sys.stdin:
        await journal.append(NoteInjected(at=1.0, run="1", text=line.strip()))
        print("written", flush=True)
    await journal.close()
asyncio.run(write())
"""


async def test_events_of_another_process_are_streamed(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    path = tmp_path / "sessions" / f"{SESSION}.db"
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), SESSION, stdin=pipe, stdout=pipe
    )
    assert writer.stdin and writer.stdout
    writer.stdin.write(b"first\n")
    assert await writer.stdout.readline() == b"written\n"
    async with (
        open_client(StoredSessions(SqliteStore(tmp_path))) as client,
        client.open_stream(f"/api/sessions/{SESSION}/live?after=1") as events,
    ):
        assert (await client.fetch_json("/api/sessions"))["sessions"][0]["state"] == "live"
        writer.stdin.write(b"second\n")
        async with asyncio.timeout(60):
            assert await anext(events) == (2, _encode_note("second"))
        writer.stdin.close()
        assert await writer.wait() == 0
        assert (await client.fetch_json("/api/sessions"))["sessions"][0]["state"] != "live"


async def test_a_stream_continues_after_the_last_event_id(client: Client) -> None:
    last = len(every_event())
    headers = {"Last-Event-ID": str(last - 2)}
    async with client.open_stream(f"/api/sessions/{SESSION}/live?after=1", **headers) as events:
        assert [(await anext(events))[0], (await anext(events))[0]] == [last - 1, last]


async def test_a_damaged_session_is_shown_up_to_the_damage(tmp_path: Path) -> None:
    writer = open_journal(tmp_path)
    await writer.append(
        SessionOpened(at=1.0, session=SESSION, cwd="/", version="1"),
        make_note("good"),
        make_note("bad"),
        SessionClosed(at=2.0),
    )
    await writer.close()
    with sqlite3.connect(tmp_path / "sessions" / f"{SESSION}.db") as connection:
        connection.execute("UPDATE events SET body = CAST('{}' AS BLOB) WHERE seq = 3")
    connection.close()
    async with open_client(StoredSessions(SqliteStore(tmp_path))) as client:
        page = await client.fetch_json(f"/api/sessions/{SESSION}/events")
        assert [number for number, _ in page["events"]] == [1, 2] and "record 3 is damaged" in page[
            "error"
        ]
        async with client.open_stream(f"/api/sessions/{SESSION}/live?after=2") as events:
            assert "record 3 is damaged" in (await anext(events))[1]
            assert [event async for event in events] == []  # the stream ends


async def test_the_viewer_does_not_change_session_files(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "sessions" / f"{SESSION}.db"
    before = path.read_bytes()
    await client.fetch_json("/api/sessions")
    await client.fetch_json(f"/api/sessions/{SESSION}/events")
    assert path.read_bytes() == before


async def test_the_next_free_port_is_used(tmp_path: Path) -> None:
    async with (
        open_viewer(StoredSessions(SqliteStore(tmp_path)), port=0) as first,
        open_viewer(StoredSessions(SqliteStore(tmp_path)), port=first.port) as second,
    ):
        assert first.port < second.port < first.port + listener.PORT_TRIES
        assert first.token != second.token and first.token in first.url


async def test_a_foreign_bind_address_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot listen"):
        async with open_viewer(StoredSessions(SqliteStore(tmp_path)), host="203.0.113.9"):
            pass


async def test_the_viewer_closes_with_an_open_stream(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as session:
        async with open_viewer(SingleSession(SESSION, [make_note("x")]), port=0) as address:
            url = f"http://127.0.0.1:{address.port}/api/sessions/{SESSION}/live"
            answer = await session.get(url, headers={"Authorization": f"Bearer {address.token}"})
            assert await answer.content.readline()
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 50
        answer.close()


async def test_an_idle_live_stream_reads_the_session_rarely(tmp_path: Path) -> None:
    source = StoredSessions(SqliteStore(tmp_path))
    writer = open_journal(tmp_path)
    await writer.append(make_note("x"))
    began = os.times()
    for _ in range(4):
        await source.read_change_stamp(SESSION)
    ended = os.times()
    await writer.close()
    assert ended.user + ended.system - began.user - began.system < 0.05


def test_an_address_family_that_the_machine_lacks_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = socket.socket

    def refuse_version_6(family: int = -1, *arguments: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return make(family, *arguments)

    def find_both(*_: object, **__: object) -> list[object]:
        return [(family, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)) for family in FAMILIES]

    monkeypatch.setattr(socket, "getaddrinfo", find_both)
    monkeypatch.setattr(socket, "socket", refuse_version_6)
    found = listener.listen(host="localhost", port=0)
    families = [each.family for each in found.sockets]
    found.close()
    assert families == [socket.AF_INET]


async def test_half_open_connections_are_cut_and_keep_nobody_out(tmp_path: Path) -> None:
    source = StoredSessions(SqliteStore(str(tmp_path)))
    limits = ConnectionLimits(head_seconds=0.5, total=4)
    async with serve(source, listener.listen(port=0), limits) as address:

        async def ask() -> None:
            async with aiohttp.ClientSession() as http:
                assert (await Client(address, http).get("/"))[0] == 200

        await check_half_open(address.port, 40, ask)


URL = "http://127.0.0.1:7575/?token=" + 32 * "t"
FIRST = "5e55a1d0-0000-4000-8000-000000000001"
SECOND = "5e55a1d0-0000-4000-8000-000000000002"
OTHER = "0ther000-0000-4000-8000-000000000003"


async def store_sessions(home: Path, *sessions: str) -> StoredSessions:
    for session in sessions:
        path = home / "sessions" / f"{session}.db"
        journal = SqliteJournal.open(path, session=session, create=True)
        await journal.append(SessionOpened(at=1.0, session=session, cwd="/", version="1"))
        await journal.close()
    return StoredSessions(SqliteStore(home))


async def test_an_address_is_short_unless_the_start_of_the_id_does_not_name_the_session(
    tmp_path: Path,
) -> None:
    for number, (stored, shown) in enumerate(
        (((FIRST, OTHER), "5e55a1d0"), ((FIRST, SECOND), FIRST), ((OTHER,), FIRST))
    ):
        sessions = await store_sessions(tmp_path / str(number), *stored)
        link = await make_session_link(URL, sessions, FIRST)
        assert link == f"{URL}#session={shown}"
        assert len(link) < 80 or shown == FIRST


async def test_the_log_of_another_program_has_a_short_address() -> None:
    source = SingleSession(FIRST, [])
    assert await make_session_link(URL, source, FIRST) == f"{URL}#session=5e55a1d0"
    assert await make_session_link(URL, source, "") == URL
