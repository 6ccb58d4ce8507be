"""The reference MCP servers for Node and Python, as servers of a session. Run: make fits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
from tests.waiting import is_alive, wait_until

from mudroom import Integrations, Reason, ServerSpec, Session
from mudroom._adapters.integrations.mcp_servers.listing import ListedTool
from mudroom._adapters.integrations.mcp_servers.server_connection import Connection
from mudroom._adapters.models.scripted import ScriptedModel, call
from mudroom.events import AnyEvent, Delta, RunStarted, ToolCallFinished

PLACE = os.environ.get("MUDROOM_FITS", "")
MAX_MORE_BYTES = 1_800
"""Bytes that a request may grow by with about 36 deferred tools of three servers."""
THOUGHT = {
    "thought": "One step.",
    "nextThoughtNeeded": False,
    "thoughtNumber": 1,
    "totalThoughts": 1,
}

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of Node; run make fits"),
    pytest.mark.timeout(180),
]


def make_spec(name: str, *args: str, is_python: bool = False, **env: str) -> ServerSpec:
    programs = Path(PLACE, "python", "bin") if is_python else Path(PLACE, "node_modules", ".bin")
    return ServerSpec(
        name=name,
        origin="test",
        scope="option",
        command=str(programs / f"mcp-server-{name}"),
        args=args,
        env={"PATH": os.environ["PATH"], **env},
        start_timeout=90.0,
    )


def list_servers(folder: Path) -> list[ServerSpec]:
    return [
        make_spec("everything"),
        make_spec("filesystem", str(folder)),
        make_spec("memory", MEMORY_FILE_PATH=str(folder / "memory.json")),
        make_spec("sequential-thinking"),
        make_spec("fetch", "--ignore-robots-txt", "--allow-private-ips", is_python=True),
        make_spec("git", is_python=True),
        make_spec("sqlite", "--db-path", str(folder / "data.db"), is_python=True),
        make_spec("time", "--local-timezone", "UTC", is_python=True),
    ]


def open_session(folder: Path, script: Any, servers: Sequence[ServerSpec]) -> Session:
    return Session(
        model=ScriptedModel(script),
        cwd=str(folder),
        home=str(folder / "home"),
        environ=dict(os.environ),
        sandbox="off",
        integrations=Integrations(mcp_servers=servers),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the servers, a Git repository."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


async def test_reference_servers_list_answer_and_end(folder: Path) -> None:
    (folder / "a.txt").write_text("hello")
    (folder / "page.html").write_text("<h1>A page</h1><p>with words</p>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    web = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=web.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{web.server_port}/page.html"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("everything__echo", {"message": "hi"}),
        ("filesystem__read_text_file", {"path": str(folder / "a.txt")}),
        ("memory__read_graph", {}),
        ("sequential-thinking__sequentialthinking", THOUGHT),
        ("fetch__fetch", {"url": address, "raw": True}),
        ("git__git_status", {"repo_path": str(folder)}),
        ("sqlite__read_query", {"query": "SELECT 6 * 7 AS answer"}),
        ("time__get_current_time", {"timezone": "UTC"}),
    ]
    script = [
        [call("mcp_find", query="echo")],
        [call("mcp_call", tool=name, arguments=arguments) for name, arguments in calls],
        "done",
    ]
    async with open_session(folder, script, list_servers(folder)) as session:
        stream = session.stream("Work.")
        events = [event async for event in stream]
        states = session.mcp.servers
    web.shutdown()
    web.server_close()
    assert [state.state for state in states] == ["ready"] * len(calls)
    results = [event.result for event in events if isinstance(event, ToolCallFinished)]
    assert not [result.text for result in results if result.error]
    assert "hi" in results[1].text and results[2].text == "hello"
    words = ["with words", "a.txt", "42", '"timezone": "UTC"']
    assert all(word in result.text for word, result in zip(words, results[5:], strict=True)), (
        results
    )
    await wait_until(lambda: not any(is_alive(state.pid or 0) for state in states))

    def measure(events: Sequence[AnyEvent]) -> int:
        return next(
            len(msgspec.json.encode(event.head))
            for event in events
            if isinstance(event, RunStarted)
        )

    # The next session knows the tools without a start.
    sizes: list[int] = []
    for servers in ([], list_servers(folder)[:3]):
        async with open_session(folder, ["done"], servers) as session:
            stream = session.stream("Do nothing.")
            sizes.append(measure([event async for event in stream]))
            assert {state.state for state in session.mcp.servers} <= {"not started"}
            assert sum(state.tools or 0 for state in session.mcp.servers) >= 36 * bool(servers)
    assert 0 < sizes[1] - sizes[0] <= MAX_MORE_BYTES


@pytest.mark.parametrize("number", range(8))
async def test_a_call_of_each_server_is_cancelled_and_the_next_one_answers(
    number: int, folder: Path
) -> None:
    spec = list_servers(folder)[number]
    tool, arguments = {
        "everything": ("echo", {"message": "hi"}),
        "filesystem": ("list_allowed_directories", {}),
        "memory": ("read_graph", {}),
        "sequential-thinking": ("sequentialthinking", THOUGHT),
        "fetch": ("fetch", {"url": "http://127.0.0.1:1/", "max_length": 5}),
        "git": ("git_status", {"repo_path": str(folder)}),
        "sqlite": ("list_tables", {}),
        "time": ("get_current_time", {"timezone": "UTC"}),
    }[spec.name]
    listed = ListedTool(tool, "", {})
    connection = Connection(spec, str(folder), dict(os.environ), lambda _: None)
    try:
        await connection.open()
        pid = connection.pid
        assert pid
        os.kill(pid, signal.SIGSTOP)  # so it cannot answer before the cancel
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.call(listed, arguments, print), 0.5)
        os.kill(pid, signal.SIGCONT)
        result = await connection.call(listed, arguments, print)
        assert result.content and result.is_error is (spec.name == "fetch")
        assert connection.starts == 1
    finally:
        await connection.close()
    assert not is_alive(pid)


async def test_a_long_call_shows_progress_and_is_cancelled(tmp_path: Path) -> None:
    long = {"duration": 60, "steps": 60}
    name = "everything__trigger-long-running-operation"
    script = [
        [call("mcp_find", query="long running")],
        [call("mcp_call", tool=name, arguments=long)],
        [call("mcp_call", tool="everything__echo", arguments={"message": "hi"})],
        "done",
    ]
    async with open_session(tmp_path, script, [make_spec("everything")]) as session:
        has_progress = asyncio.Event()

        def note(event: AnyEvent) -> None:
            if isinstance(event, Delta) and event.kind == "progress":
                has_progress.set()

        session.watch(note)
        running = asyncio.create_task(session.run("Work."))
        await has_progress.wait()
        session.runs.cancel()
        assert (await running).reason is Reason.CANCELLED
        assert session.mcp.servers[0].state == "ready"
