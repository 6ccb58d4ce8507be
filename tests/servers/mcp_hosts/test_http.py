"""MCP hosts over HTTP: tokens and owners, wrong requests, questions, closed connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from tests.waiting import SECONDS

from mudroom import Budget, Session
from mudroom._platform.connection_limits import ConnectionLimits
from mudroom.driving import Listener, ListenOptions, SessionDriver
from mudroom.errors import MudroomError, UsageError
from mudroom.testing import Request, ScriptedModel
from mudroom_hosts.mcp import http as http_server
from mudroom_hosts.mcp.host_tasks import HostTasks, Owner, TaskArguments
from mudroom_hosts.mcp.http import serve_http
from mudroom_hosts.mcp.protocol import McpProtocol
from mudroom_hosts.mcp.protocol_tasks import ProtocolTasks
from mudroom_hosts.mcp.results import AnswerMaker

from ...half_open import check_half_open, open_half
from .conftest import ERAS, INITIALIZE, HttpHost, TaskHost, get_text, get_values, make_request
from .test_questions import User, write_twice

MakeHttpHost = Callable[..., HttpHost]
MEANS_YES: dict[str, Any] = {"action": "accept", "content": {"answer": "allow once"}}
DISCOVER = make_request(1, "server/discover", {}, declares=False)
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "server/discover",
}


@pytest.mark.parametrize("era", ERAS)
async def test_owners_have_tasks_of_their_own(make_http_host: MakeHttpHost, era: str) -> None:
    seen: list[str | None] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message if progress and total is None else None)

    host = make_http_host(["It is about mud."])
    alice = host.make_token("alice")
    bob = host.make_token("bob", agents=("explore",))
    async with host.serve(), host.connect(alice, era) as client:
        task = {"prompt": "What is it about?"}
        result = await client.call_tool("task", task, progress_callback=report)
        own = await client.call_tool("task_result", {})
        async with host.connect(bob, era) as other:
            foreign = await other.call_tool("task_result", {"task": "t1"})
            listed = await other.call_tool("task_result", {})
            refused = await other.call_tool("task", {"prompt": "Write.", "agent": "general"})
            agents = await other.call_tool("agents", {})
    assert get_text(result).startswith("It is about mud.\n\n[evidence: ")
    assert seen[0] == "waiting"
    assert [each["task"] for each in get_values(own)["results"]] == ["t1"]
    assert foreign.is_error
    assert "unknown task 't1'" in get_text(foreign)
    assert get_values(listed)["results"] == []
    assert refused.is_error
    assert "unknown agent 'general'" in get_text(refused)
    assert get_text(agents).startswith("explore: ")


async def test_requests_without_rights_are_refused(make_http_host: MakeHttpHost) -> None:
    host = make_http_host([])
    token = host.make_token("alice")
    reader = host.make_token("bob", scopes=("read",))
    limited = host.make_token("carol", usd_per_day=1.0)
    elsewhere = host.make_token("dave", workspaces=("docs",))
    cases: list[tuple[str, dict[str, str], int, str]] = [
        (token, {}, 200, '"supportedVersions":["2026-07-28"]'),
        ("", {}, 401, "mudroom serve token add"),
        (token[:-1], {}, 401, "the token is missing or wrong"),
        (reader, {}, 403, "does not have the scope run"),
        (limited, {}, 403, "limits for each day"),
        (elsewhere, {}, 403, "not for the workspace default"),
        (token, {"Host": "evil.example:80"}, 421, "not known by this host name"),
        (token, {"Origin": "http://evil.example"}, 403, "a page of another site"),
        (token, {"Origin": "http://localhost.evil.example"}, 403, "a page of another site"),
        (token, {"Origin": "http://localhost:18912"}, 200, "supportedVersions"),
        (token, {"Origin": "https://app.example"}, 200, "supportedVersions"),
        ("", {"Origin": "https://app.example"}, 401, "mudroom serve token add"),
    ]
    async with (
        host.serve(allowed_origins=("https://app.example",)),
        httpx2.AsyncClient(timeout=SECONDS) as http,
    ):
        for secret, more, status, text in cases:
            shown = {"Authorization": f"Bearer {secret}"} if secret else {}
            headers = {**HEADERS, **shown, **more}
            answer = await http.post(host.url, headers=headers, json=DISCOVER)
            assert (answer.status_code, text in answer.text) == (status, True), answer.text
            assert ("www-authenticate" in answer.headers) is (status == 401)
            assert answer.headers["x-content-type-options"] == "nosniff"
        other = host.url.removesuffix("mcp")
        answer = await http.post(other, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 404


async def test_pages_of_allowed_sites_may_send_their_token(make_http_host: MakeHttpHost) -> None:
    host = make_http_host([])
    asked = "authorization,mcp-protocol-version"
    question = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
    async with host.serve(allowed_origins=("https://app.example",)), httpx2.AsyncClient() as http:
        for origin, is_allowed in {
            "https://app.example": True,
            "http://127.0.0.1:5173": True,
            "https://app.example.evil": False,
            "null": False,
        }.items():
            answer = await http.options(host.url, headers={**question, "Origin": origin})
            allowed = answer.headers.get("access-control-allow-origin")
            assert (answer.status_code, allowed) == ((200, origin) if is_allowed else (400, None))
            assert answer.headers["access-control-allow-headers"] == asked


async def test_a_session_of_the_older_revision_belongs_to_its_owner(
    make_http_host: MakeHttpHost,
) -> None:
    host = make_http_host([])
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    accept = {"Accept": HEADERS["Accept"]}
    tokens = [host.make_token(name) for name in ("alice", "bob")]
    alice, bob = ({**accept, "Authorization": f"Bearer {token}"} for token in tokens)
    async with host.serve(), httpx2.AsyncClient(timeout=SECONDS) as http:
        answer = await http.post(host.url, headers=alice, json=INITIALIZE)
        session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        foreign = await http.post(host.url, headers={**bob, **session}, json=ping)
        own = await http.post(host.url, headers={**alice, **session}, json=ping)
    assert (foreign.status_code, own.status_code) == (404, 200)


@pytest.mark.parametrize("era", ERAS)
async def test_questions_reach_the_user_of_their_owner(
    make_http_host: MakeHttpHost, tmp_path: Path, era: str
) -> None:
    host = make_http_host(write_twice)
    alice = host.make_token("alice")
    bob = host.make_token("bob")
    silent = host.make_token("carol", scopes=("read", "run"))
    users = [User("always allow"), User("no", "no"), User()]
    denied: list[int] = []
    async with host.serve():
        for token, user in zip((alice, bob, silent), users, strict=True):
            async with host.connect(token, era, elicitation_callback=user) as client:
                result = await client.call_tool("task", {"prompt": "Write."})
                denied.append(len(get_values(result)["permission_denials"]))
    assert denied == [0, 2, 2]
    assert [len(user.texts) for user in users] == [1, 2, 0]
    assert len(list((tmp_path / "project").iterdir())) == 2


async def test_a_closed_response_ends_its_task_only(make_http_host: MakeHttpHost) -> None:
    started = asyncio.Event()
    released = asyncio.Event()

    async def answer(request: Request) -> str:
        if request.prompt == "Wait.":
            started.set()
            await asyncio.Event().wait()
        await released.wait()
        return "Done."

    host = make_http_host(answer)
    token = host.make_token("alice")
    async with host.serve(), host.connect(token) as client:
        other = asyncio.create_task(client.call_tool("task", {"prompt": "Go on."}))
        async with host.connect(token) as leaving:
            call = asyncio.create_task(leaving.call_tool("task", {"prompt": "Wait."}))
            await started.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        ended = await client.call_tool("task_result", {"task": "t2", "wait": SECONDS})
        released.set()
        assert get_values(await other)["reason"] == "GOAL"
    assert get_values(ended)["reason"] == "CANCELLED"


async def test_many_tasks_of_one_owner_do_not_delay_those_of_others(
    make_http_host: MakeHttpHost,
) -> None:
    released = asyncio.Event()
    order: list[str] = []

    async def answer(request: Request) -> str:
        order.append(request.prompt)
        await released.wait()
        return "Done."

    host = make_http_host(answer, parallel=1)
    alice = host.make_token("alice")
    bob = host.make_token("bob")
    async with host.serve(), host.connect(alice) as client, host.connect(bob) as other:
        tasks = [{"prompt": f"alice {n}"} for n in range(3)]
        await client.call_tool("task_many", {"tasks": tasks, "wait": 0})
        await other.call_tool("task", {"prompt": "bob", "wait": 0})
        released.set()
        await client.call_tool("task_result", {"task": "t3", "wait": SECONDS})
    assert order == ["alice 0", "bob", "alice 1", "alice 2"]


async def test_results_are_kept_for_each_owner(tmp_path: Path) -> None:
    tasks = HostTasks(Budget(), kept=1)
    owners = [Owner(name="bob"), Owner(name="alice"), Owner(name="alice")]
    session = Session(
        model=ScriptedModel(["Done."] * 3), cwd=str(tmp_path), home=str(tmp_path), sandbox="off"
    )
    async with SessionDriver(lambda plan, start: session, None) as driver:
        tasks.open(driver)
        for owner in owners:
            task = tasks.start(TaskArguments(prompt="Go."), owner)
            changed = asyncio.Event()
            task.watchers.add(changed)
            while not task.has_ended:
                changed.clear()
                await changed.wait()
            await asyncio.sleep(0)
        kept = [[each.id for each in tasks.list_tasks(owner)] for owner in owners[:2]]
    assert kept == [["t1"], ["t3"]]


async def test_a_request_without_an_owner_is_refused(tmp_path: Path) -> None:
    """It has reached the protocol by another way than the check of tokens."""
    tasks = HostTasks(Budget())
    protocol_tasks = ProtocolTasks(tasks, str(tmp_path), "s")
    protocol = McpProtocol(tasks, AnswerMaker("s", str(tmp_path)), protocol_tasks)
    async with Client(protocol.make_server(None)) as client:
        with pytest.raises(MCPError, match="the request has no owner"):
            await client.call_tool("task_result", {})


async def test_a_server_that_fails_says_so() -> None:
    with closing(socket.socket(type=socket.SOCK_DGRAM)) as wrong:
        wrong.bind(("127.0.0.1", 0))
        serving = serve_http(
            Server("x"),
            HostTasks(Budget()),
            wrong,
            Listener(ListenOptions()),
            find_no_owner,
            asyncio.Event(),
            print,
        )
        with pytest.raises(MudroomError, match="the HTTP server has failed: ValueError: "):
            await serving


async def find_no_owner(_: str) -> Owner:
    return Owner()


async def test_the_end_of_the_server_ends_the_tasks_of_all_hosts(
    make_http_host: MakeHttpHost,
) -> None:
    started = asyncio.Semaphore(0)

    async def answer(_: Request) -> str:
        started.release()
        await asyncio.Event().wait()
        return ""

    host = make_http_host(answer)
    token = host.make_token("alice")
    reasons: list[str] = []

    async def call(era: str) -> None:
        async with host.connect(token, era) as client:
            result = await client.call_tool("task", {"prompt": "Wait."})
            reasons.append(get_values(result)["reason"])

    async with host.serve():
        calls = [asyncio.create_task(call(era)) for era in ERAS]
        for _ in calls:
            await started.acquire()
    await asyncio.gather(*calls, return_exceptions=True)
    assert reasons == ["CANCELLED"] * len(ERAS)


async def test_other_addresses_need_tls(make_http_host: MakeHttpHost) -> None:
    host = make_http_host([])
    with pytest.raises(UsageError, match="as plain text"):
        async with host.serve(host="0.0.0.0"):
            pass


async def test_half_open_connections_are_cut_and_keep_nobody_out(
    make_http_host: MakeHttpHost,
) -> None:
    host = make_http_host([])
    token = host.make_token("alice")
    limits = ConnectionLimits(head_seconds=0.5, total=4)
    async with host.serve(connection_limits=limits):
        port = httpx2.URL(host.url).port
        assert port

        async def ask() -> None:
            headers = {**HEADERS, "Authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(timeout=SECONDS) as http:
                answer = await http.post(host.url, headers=headers, json=DISCOVER)
                assert answer.status_code == 200

        await check_half_open(port, 40, ask)
        first = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        late = await open_half(port, first)
        await late.wait_until_cut(b"X")  # The bytes begin the head of a second request.
        late.close()


async def test_long_and_slow_messages_are_refused(
    make_http_host: MakeHttpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_BODY_SECONDS", 0.2)
    host = make_http_host([])
    secret = {"Authorization": f"Bearer {host.make_token('alice')}"}
    async with host.serve(), httpx2.AsyncClient(timeout=SECONDS) as client:
        headers = {**HEADERS, **secret, "Content-Type": "application/json"}
        answer = await client.post(host.url, headers=headers, content=b" " * (5 << 20))
        assert (answer.status_code, "larger than 4 MiB" in answer.text) == (413, True)
        host_name, port = host.url.split("/")[2].split(":")
        reader, writer = await asyncio.open_connection(host_name, int(port))
        lines = [f"{name}: {value}" for name, value in headers.items()]
        lines = ["POST /mcp HTTP/1.1", f"Host: {host_name}:{port}", *lines, "Content-Length: 50"]
        writer.write("\r\n".join([*lines, "", "{"]).encode())
        async with asyncio.timeout(SECONDS):
            assert b" 408 " in await reader.readline()
        writer.close()


class HttpTaskHost(TaskHost):
    """A host of the newer revision over HTTP. `token`: of its owner."""

    def __init__(self, http: httpx2.AsyncClient, url: str, token: str) -> None:
        self._http = http
        self._url = url
        self._token = token

    async def ask(self, method: str, *, declares: bool = True, **params: Any) -> dict[str, Any]:
        headers = {
            **HEADERS,
            "Authorization": f"Bearer {self._token}",
            "Mcp-Method": method,
            "Mcp-Name": params.get("name") or params.get("taskId", ""),
        }
        body = make_request(1, method, params, declares=declares)
        return (await self._http.post(self._url, headers=headers, json=body)).json()


async def test_only_tokens_with_the_scope_answer_decide_questions(
    make_http_host: MakeHttpHost, tmp_path: Path
) -> None:
    host = make_http_host(write_twice)
    tokens = [
        host.make_token("alice"),
        host.make_token("alice", scopes=("read", "run")),
        host.make_token("bob"),
    ]
    async with host.serve(), httpx2.AsyncClient(timeout=SECONDS) as http:
        alice, reader, bob = (HttpTaskHost(http, host.url, token) for token in tokens)
        task = (await alice.start("Write."))["taskId"]
        asked = await alice.wait(task, "input_required")
        (key,) = asked["inputRequests"]
        responses = {key: MEANS_YES}
        seen = await reader.get(task)
        refused = await reader.ask("tasks/update", taskId=task, inputResponses=responses)
        left = await reader.call_tool("task_result", task="t1", wait=0.1)
        await alice.ask("tasks/update", taskId=task, inputResponses=responses)

        first = (await alice.call_tool("task_result", task="t1"))["result"]
        again: dict[str, Any] = {
            "name": "task_result",
            "arguments": {"task": "t1"},
            "requestState": first["requestState"],
            "inputResponses": dict.fromkeys(first["inputRequests"], MEANS_YES),
        }
        foreign = await bob.ask("tools/call", declares=False, **again)
        without = await reader.ask("tools/call", declares=False, **again)
        done = await alice.ask("tools/call", **again)
    assert (seen["status"], "inputRequests" in seen) == ("working", False)
    assert refused["error"]["message"] == "the token does not have the scope answer"
    assert left["result"]["structuredContent"]["state"] == "asking"
    assert foreign["error"]["message"] == "Unknown requestState"
    assert without["error"]["message"] == "the token does not have the scope answer"
    assert done["result"]["structuredContent"]["permission_denials"] == []
    assert len(list((tmp_path / "project").iterdir())) == 2
