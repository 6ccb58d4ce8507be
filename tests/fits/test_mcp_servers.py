"""The reference MCP servers for Node, as servers of a session. Run: make fits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.waiting import is_alive, wait_until

from mudroom import Reason, ServerSpec, Session
from mudroom.events import AnyEvent, Delta, RunStarted, ToolCallFinished
from mudroom.models.scripted import ScriptedModel, call

PLACE = os.environ.get("MUDROOM_FITS", "")
MAX_MORE_BYTES = 1_800
"""Bytes that a request may grow by with about 36 deferred tools of three servers."""

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of Node; run make fits"),
    pytest.mark.timeout(180),
]


def make_spec(name: str, *args: str, **env: str) -> ServerSpec:
    return ServerSpec(
        name=name,
        origin="test",
        scope="option",
        command=str(Path(PLACE, "node_modules", ".bin", f"mcp-server-{name}")),
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
    ]


def open_session(folder: Path, script: Any, servers: Sequence[ServerSpec]) -> Session:
    return Session(
        model=ScriptedModel(script),
        cwd=str(folder),
        home=str(folder / "home"),
        environ=dict(os.environ),
        sandbox="off",
        mcp_servers=servers,
    )


async def test_reference_servers_list_answer_and_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    thought = {
        "thought": "One step.",
        "nextThoughtNeeded": False,
        "thoughtNumber": 1,
        "totalThoughts": 1,
    }
    calls: list[tuple[str, dict[str, Any]]] = [
        ("everything__echo", {"message": "hi"}),
        ("filesystem__read_text_file", {"path": str(tmp_path / "a.txt")}),
        ("memory__read_graph", {}),
        ("sequential-thinking__sequentialthinking", thought),
    ]
    script = [
        [call("mcp_find", query="echo")],
        [call("mcp_call", tool=name, arguments=arguments) for name, arguments in calls],
        "done",
    ]
    async with open_session(tmp_path, script, list_servers(tmp_path)) as session:
        stream = session.stream("Work.")
        events = [event async for event in stream]
        states = session.mcp_servers
    assert [state.state for state in states] == ["ready"] * 4
    results = [event.result for event in events if isinstance(event, ToolCallFinished)]
    assert not any(result.error for result in results), results
    assert "hi" in results[1].text and results[2].text == "hello"
    await wait_until(lambda: not any(is_alive(state.pid or 0) for state in states))

    def measure(events: Sequence[AnyEvent]) -> int:
        return next(
            len(msgspec.json.encode(event.head))
            for event in events
            if isinstance(event, RunStarted)
        )

    # The next session knows the tools without a start.
    sizes: list[int] = []
    for servers in ([], list_servers(tmp_path)[:3]):
        async with open_session(tmp_path, ["done"], servers) as session:
            stream = session.stream("Do nothing.")
            sizes.append(measure([event async for event in stream]))
            assert {state.state for state in session.mcp_servers} <= {"not started"}
            assert sum(state.tools or 0 for state in session.mcp_servers) >= 36 * bool(servers)
    assert 0 < sizes[1] - sizes[0] <= MAX_MORE_BYTES


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
        session.cancel()
        assert (await running).reason is Reason.CANCELLED
        assert session.mcp_servers[0].state == "ready"
