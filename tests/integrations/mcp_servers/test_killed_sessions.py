"""MCP servers of a session that is killed: their end, and the run that continues."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import block_until, is_alive

from mudroom import Integrations, Session
from mudroom._adapters.journals.sessions import open_store
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.events import AnyEvent, ToolCallFinished

from .servers import count_starts, make_quick, read_log

ROUNDS = 50 if os.environ.get("MUDROOM_LONG") else 1
PROGRAM = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from mudroom import Integrations, Session
from mudroom.testing import ScriptedModel, call
from tests.integrations.mcp_servers.servers import make_quick

async def main(folder):
    tools = ["mcp__quick__pid", "mcp__quick__sleep"]
    calls = [[call("mcp_call", tool=tool, arguments={})] for tool in tools]
    script = [[call("mcp_find", query="pid")], *calls]
    server = make_quick(fault="ignores_end", log=folder / "log")
    async with Session(
        model=ScriptedModel(script), cwd=str(folder), home=str(folder / "home"), environ={},
        sandbox="off", integrations=Integrations(mcp_servers=[server]),
    ) as session:
        await session.run("Work.")

asyncio.run(main(Path(sys.argv[1])))
"""


def run_until_killed(folder: Path) -> Path:
    """Run a session until its second call works, kill it, and wait for the end of the server.

    Return the log of the server.
    """
    root = str(Path(__file__).parents[3])
    log = folder / "log"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), root]) as process:
        block_until(lambda: read_log(log).count("tools/call") == 2 or process.poll() is not None)
        os.kill(process.pid, signal.SIGKILL)
    pid = int(read_log(log)[0].split()[1])
    block_until(lambda: not is_alive(pid))
    return log


def test_a_call_of_a_killed_session_is_not_repeated(tmp_path: Path) -> None:
    folder = tmp_path
    log = run_until_killed(folder)
    for number in range(1, ROUNDS):
        (tmp_path / str(number)).mkdir()
        run_until_killed(tmp_path / str(number))
    texts: list[str] = []

    def answer(request: Request) -> Answer:
        texts.append(str(request.messages[-1]))
        return "done" if len(texts) > 1 else [call("mcp__quick__add", a=1, b=2)]

    async def resume() -> list[str]:
        home = str(folder / "home")
        (info,) = await open_store(home).list()
        server = make_quick(fault="ignores_end", log=log)
        async with Session(
            model=ScriptedModel(answer),
            home=home,
            resume=info.id,
            environ={},
            sandbox="off",
            integrations=Integrations(mcp_servers=[server]),
        ) as session:
            results: list[str] = []

            def note(event: AnyEvent) -> None:
                if isinstance(event, ToolCallFinished):
                    results.append(event.result.text)

            session.watch(note)
            assert await session.resume_unfinished()
            return results

    results = asyncio.run(resume())
    assert results[0].startswith("Interrupted before it gave a result")
    assert results[1:] == ["3"]
    assert "MCP servers that you called before may have been started again (quick)" in texts[0]
    assert count_starts(log) == 2
    assert read_log(log).count("tools/call") == 3
