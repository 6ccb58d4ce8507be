"""Clients of the HTTP server: a real server on loopback, its sessions, and their streams."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace
from tests.waiting import SECONDS

from mudroom import Session
from mudroom._adapters.journals.sessions import open_store
from mudroom._core.agents import Agent, Mode
from mudroom._core.ports import Approver, SessionStore
from mudroom.driving import ServerAddress
from mudroom.permissions.rules import Permissions
from mudroom.testing import ScriptedModel
from mudroom_postgres.connections import get_background_loop
from mudroom_serve.server import HttpServer
from mudroom_serve.setup import CommandLine, ServedSessionPlan, ServiceOptions
from mudroom_serve.state.state_file import StateFile
from mudroom_serve.state.tokens import TokenRecords

Line = dict[str, Any]
READER = Agent(name="reader", description="It reads.", instructions="Read.", tools=("read",))


class Client:
    """A client of the server with one token."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self.headers = {"Authorization": f"Bearer {token}"}
        self._http = http

    async def send(
        self, method: str, path: str, body: Any = None, *, key: str = "", **headers: str
    ) -> tuple[int, Any]:
        """Send a request; return its status and the JSON of its response."""
        headers = {**self.headers, **headers}
        if key:
            headers["Idempotency-Key"] = key
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        url = self.url + path
        sent = None if data is None else io.BytesIO(data)
        async with self._http.request(method, url, data=sent, headers=headers) as response:
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text

    async def get(self, path: str) -> Any:
        status, value = await self.send("GET", path)
        assert status == 200, value
        return value

    async def create(self, **body: Any) -> Line:
        status, session = await self.send("POST", "/v1/sessions", body)
        assert status == 201, session
        return session

    async def post(self, session: str, kind: str, **fields: Any) -> Line:
        body = {"type": kind, **fields}
        status, item = await self.send("POST", f"/v1/sessions/{session}/events", body)
        assert status == 202, item
        return item

    @asynccontextmanager
    async def open_stream(
        self, session: str, *, last_id: str = "", **query: str
    ) -> AsyncGenerator[AsyncIterator[Line]]:
        """Open the stream of a session; each line has `event`, `data` and perhaps `id`."""
        headers = {**self.headers, **({"Last-Event-ID": last_id} if last_id else {})}
        url = f"{self.url}/v1/sessions/{session}/stream"
        timeout = aiohttp.ClientTimeout(sock_read=SECONDS)
        async with self._http.get(
            url, headers=headers, params=query, timeout=timeout, read_bufsize=1 << 20
        ) as response:
            assert response.status == 200, await response.text()
            yield read_messages(response)

    async def wait_until(
        self, session: str, is_last: Callable[[Line], bool], **query: str
    ) -> list[Line]:
        messages: list[Line] = []
        async with asyncio.timeout(SECONDS), self.open_stream(session, **query) as stream:
            async for message in stream:
                messages.append(message)
                if is_last(message):
                    return messages
        raise AssertionError(f"the stream has ended after {messages[-3:]}")

    async def finish(self, session: str) -> Line:
        messages = await self.wait_until(session, is_idle)
        return messages[-1]["data"]

    async def run(self, prompt: Any) -> str:
        """Run a prompt in a new session; return the id of the session."""
        session: str = (await self.create(prompt=prompt))["id"]
        await self.finish(session)
        return session

    async def read_pages(self, path: str, limit: int = 100) -> list[Line]:
        items: list[Line] = []
        after = ""
        while True:
            page = await self.get(f"{path}?limit={limit}&after={after}")
            items += page["data"]
            if not page.get("has_more", page["next"]):
                return items
            after = page["next"]

    async def list_events(self, session: str, query: str = "") -> list[Line]:
        page = await self.get(f"/v1/sessions/{session}/events{query}")
        return [each["event"] for each in page["data"]]


async def read_messages(response: aiohttp.ClientResponse) -> AsyncIterator[Line]:
    fields: Line = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = json.loads(value) if name == "data" else value
        elif "data" in fields:
            yield fields
            fields = {}
        else:
            fields = {}


def is_idle(message: Line) -> bool:
    data = message["data"]
    is_status = message["event"] == "status" and data["status"] == "idle"
    return bool(is_status and data["last"] and data["last"]["state"] == "done")


class Site:
    """A server with scripted sessions. `folder`: has the state folder and the workspaces."""

    def __init__(
        self, folder: Path, script: Any, options: dict[str, Any], session_options: dict[str, Any]
    ) -> None:
        self.model = ScriptedModel(script)
        self.notices: list[str] = []
        self.plans: list[ServedSessionPlan] = []
        self.home = str(folder / "home")
        project = folder / "project"
        project.mkdir(exist_ok=True)
        self.project = project
        base = ServiceOptions(
            home=self.home,
            workspaces={"default": str(project), "other": str(project)},
            port=0,
            idle_seconds=5.0,
            drain_seconds=5.0,
        )
        self.options = replace(base, **options)
        self._session_options = session_options
        self._state = StateFile(self.home)
        self.tokens = TokenRecords(self._state)
        self.server: HttpServer | None = None
        self.store: Any = None

    def add_token(self, owner: str = "ada", **fields: Any) -> str:
        return self.tokens.add(owner, **fields)[1]

    def close(self) -> None:
        self._state.close()

    def prepare(self, plan: ServedSessionPlan, approver: Approver, store: SessionStore) -> Session:
        self.plans.append(plan)
        permissions = Permissions(mode=Mode(plan.mode) if plan.mode else Mode.DEFAULT, can_ask=True)
        options: Line = {"agents": [READER], "sandbox": "off", **self._session_options}
        return Session(
            model=self.model,
            cwd=plan.cwd,
            home=self.home,
            store=store,
            permissions=permissions,
            approver=approver,
            agent=plan.agent,
            prompt_budget=plan.budget,
            resume=plan.id if plan.is_recorded else "",
            id="" if plan.is_recorded else plan.id,
            environ={"HOME": os.path.dirname(self.home)},
            **options,
        )

    def make_server(self) -> HttpServer:
        command_line = CommandLine(prepare=self.prepare, list_agents=lambda _: [READER])
        store = self.store or open_store(self.home)
        state = StateFile(self.home)
        self.server = HttpServer(command_line, self.options, store, self.notices.append, state)
        return self.server

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[ServerAddress]:
        async with self.make_server().open() as address:
            yield address

    @asynccontextmanager
    async def connect(self, **fields: Any) -> AsyncGenerator[Client]:
        connector = aiohttp.TCPConnector(limit=0)
        async with self.serve() as address, aiohttp.ClientSession(connector=connector) as http:
            yield Client(http, address.url, self.add_token(**fields))


class WrappedStore:
    """A store some of whose methods a test replaces; `store`: has the others."""

    def __init__(self, store: SessionStore, **methods: Any) -> None:
        self.store = store
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


MakeSite = Callable[..., Site]


@pytest.fixture(scope="module")
def database_loop() -> None:
    """Start the thread of databases, which lives as long as the process, before the first test."""
    get_background_loop()


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    with ExitStack() as stack:

        def make(script: Any, *, options: Line | None = None, **session_options: Any) -> Site:
            site = Site(tmp_path, script, options or {}, session_options)
            stack.callback(site.close)
            return site

        yield make
