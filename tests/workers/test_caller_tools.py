"""Tools of the caller in worker processes: by name, in the session's process, or refused."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.workers.far_place import get_worker

from mudroom import Effect, Reason, Session, Tool, ToolContext, UsageError, tool
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.permissions.rules import Permissions
from mudroom.testing.invariants import find_violations

from ..waiting import wait_until
from ..worker_kinds import RAY

ANY_WORKER = pytest.mark.parametrize("worker", ["process:1", RAY])

MODULE = """
import os
from mudroom import ToolContext, tool

@tool
def where(context: ToolContext, word: str) -> str:
    "Say a word and where it is said."
    return f"{word} {os.getpid()} {context.run_id} {context.workspace.root}"

number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module with a tool; only the present import path has it."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "caller_tools_of_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("__main__.shout", shout, raising=False)
    monkeypatch.delitem(sys.modules, "caller_tools_of_test", raising=False)
    return "caller_tools_of_test"


def open_session(folder: Path, tools: Sequence[Tool | str], **options: Any) -> Session:
    """Open a session whose tasks make one call, which their prompt names, and report its result."""

    def answer(request: Request) -> Answer:
        if request.turn:
            return request.results[0].text
        name, _, argument = request.prompt.partition(" ")
        return call(name, word=argument)

    defaults: dict[str, Any] = {
        "cwd": str(folder),
        "home": str(folder / "home"),
        "journal": "memory",
        "sandbox": "off",
        "worker": "process:1",
    }
    return Session(model=ScriptedModel(answer), tools=tools, **(defaults | options))


@ANY_WORKER
async def test_a_tool_given_by_name_runs_in_the_process_of_its_run(
    worker: str, module: str, tmp_path: Path
) -> None:
    async with open_session(tmp_path, [f"{module}:where"], worker=worker) as session:
        report = await session.task("where hello")
        (pid,) = session._require_open().resources.worker.pids  # pyright: ignore
    word, said_by, run_id, root = report.text.split()
    assert (word, run_id, root) == ("hello", report.run_id, str(tmp_path))
    assert int(said_by) == pid != os.getpid()


@ANY_WORKER
async def test_a_function_of_the_caller_runs_in_the_process_of_the_session(
    worker: str, tmp_path: Path
) -> None:
    words: list[str] = []

    @tool(effect=Effect.PURE)
    def keep(word: str) -> str:
        "Keep a word."
        words.append(word)
        return f"{len(words)} {os.getpid()}"

    async with open_session(tmp_path, [keep], worker=worker) as session:
        report = await session.task("keep a")
        wrong = await session.task("keep")
        resources = session._require_open().resources
        events = [event async for event in resources.journal.read()]
    assert words == ["a", ""]
    assert report.text == f"1 {os.getpid()}"
    assert wrong.reason is Reason.GOAL
    assert not find_violations(events)


async def test_an_invalid_argument_for_such_a_function_is_an_error_result(tmp_path: Path) -> None:
    @tool
    def double(number: int) -> int:
        "Double a number."
        return 2 * number

    async with open_session(tmp_path, [double]) as session:
        report = await session.task("double x")
    assert report.text.startswith("Invalid arguments for double: word: unknown")


@ANY_WORKER
@pytest.mark.parametrize("end", ["cancel", "loss of its process"])
async def test_a_function_of_the_caller_ends_with_its_run(
    end: str, worker: str, tmp_path: Path
) -> None:
    states: list[str] = []

    @tool
    async def wait(word: str) -> str:
        "Wait for ever."
        states.append("begun")
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            states.append("ended")

    async with open_session(tmp_path, [wait], worker=worker) as session:
        task = asyncio.create_task(session.task("wait x"))
        await wait_until(lambda: states == ["begun"])
        if end == "cancel":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_until(lambda: states == ["begun", "ended"])
            return
        os.kill(get_worker(session).pids[0], signal.SIGKILL)
        report = await task
        assert states == ["begun", "ended"]
    assert "Interrupted" in report.text


async def test_rules_of_the_session_hold_for_tools_of_the_caller_in_processes(
    tmp_path: Path,
) -> None:
    @tool
    def keep(word: str) -> str:
        "Keep a word."
        raise AssertionError(word)

    async with open_session(tmp_path, [keep], permissions=Permissions.of(deny=["keep"])) as session:
        report = await session.task("keep a")
    assert "There is no tool 'keep'" in report.text


@tool
def look(context: ToolContext, word: str) -> str:
    "Look at the files of the run."
    return context.workspace.root


@tool
def shout(word: str) -> str:
    "Shout a word."
    return word.upper()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (look, "the tool look cannot be used in worker processes.*package.module:name"),
        (replace(shout, get_key=str), "the tool shout cannot be used in worker processes"),
        (replace(shout, propose=print), "the tool shout cannot be used in worker processes"),
        ("no_such_module_here:tool", "the tool no_such_module_here:tool cannot be imported: Mod"),
        ("caller_tools_of_test:missing", "cannot be imported: AttributeError"),
        ("caller_tools_of_test:number", "caller_tools_of_test:number is no tool, but int"),
        ("caller_tools_of_test", "cannot be imported"),
        ("__main__:shout", "the tool __main__:shout cannot be used in worker processes"),
    ],
    ids=["context", "key", "proposal", "module", "name", "number", "colon", "program"],
)
@pytest.mark.usefixtures("module")
async def test_a_tool_that_cannot_travel_is_refused_when_the_session_opens(
    given: Tool | str, text: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=text):
        async with open_session(tmp_path, [given]):
            pass


async def test_a_run_whose_processes_cannot_import_a_tool_says_so(
    module: str, tmp_path: Path
) -> None:
    path = tmp_path / "modules" / f"{module}.py"
    path.write_text(f"import sys\nassert 'pytest' in sys.modules, 'no test here'\n{MODULE}")
    async with open_session(tmp_path, [f"{module}:where"]) as session:
        report = await session.task("where hello")
    assert report.reason is Reason.LOST
    assert f"the tool {module}:where cannot be imported: AssertionError: no test" in report.error


@pytest.mark.parametrize("worker", [RAY])
async def test_a_node_that_cannot_import_a_tool_is_refused_when_the_session_opens(
    worker: str, module: str, tmp_path: Path
) -> None:
    path = tmp_path / "modules" / f"{module}.py"
    path.write_text(f"import sys\nassert 'pytest' in sys.modules, 'no test here'\n{MODULE}")
    text = f"cannot import tools: {module}:where .AssertionError: no test here"
    with pytest.raises(UsageError, match=text):
        async with open_session(tmp_path, [f"{module}:where"], worker=worker):
            pass


async def test_a_tool_given_by_name_works_without_worker_processes(
    module: str, tmp_path: Path
) -> None:
    async with open_session(tmp_path, [f"{module}:where"], worker="local") as session:
        report = await session.task("where hello")
    assert report.text.startswith(f"hello {os.getpid()} ")
