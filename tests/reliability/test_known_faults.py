"""Known faults of other systems (F1 to F26). Here are those that no other test tries.

F1 to F3 and F5: `tests/engine/test_normalize.py`. F6 to F8: `tests/journals/test_sqlite.py`. F9:
`test_streams.py`. F10: `test_cancel.py`. F11, F25 and F26: `tests/tools/test_bash.py`. F12:
`test_load.py`. F15 and F21: `test_storm.py`. F16: `test_stall.py`. F18: `test_crash.py`. F19:
`tests/engine/test_firewall.py`. F24: `tests/engine/test_loop_detection.py`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom import Agent, AnyEvent, Budget, Effect, Reason, Report, Session, ToolResult
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import ToolCallFinished, TurnFinished
from mudroom.errors import ContextOverflow, ModelRefused

from ..waiting import wait_until
from .conftest import CheckRecord
from .recorded import make_tool, open_scripted

Run = Callable[..., tuple[Report, list[AnyEvent]]]


async def look(_context: object, _arguments: object) -> ToolResult:
    return ToolResult("nothing new")


LOOK = make_tool("look", look, effect=Effect.PURE)


@pytest.fixture
def run(tmp_path: Path, check_record: CheckRecord) -> Run:
    """Run a scripted model; return its report and its record, which is checked."""

    def run(script: Callable[[Request], Answer], **options: Any) -> tuple[Report, list[AnyEvent]]:
        events: list[AnyEvent] = []
        options = {"journal": "memory", "tools": [LOOK], "sandbox": "off", **options}

        async def work() -> Report:
            async with open_scripted(tmp_path, script, **options) as session:
                session.watch(events.append)
                report = await session.run("PARENT")
                assert (await session.run("AGAIN")).text == "I continue."
                return report

        report = asyncio.run(work())
        asyncio.run(check_record(events))
        return report, events

    return run


def script_family(
    parent: Callable[[Request], Answer], child: Callable[[Request], Answer]
) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        if "AGAIN" in str(request.messages[-1]):
            return "I continue."
        return parent(request) if request.prompt == "PARENT" else child(request)

    return answer


def start(count: int, **arguments: Any) -> Callable[[Request], Answer]:
    """Return a parent that starts children, and then says what they returned."""

    def parent(request: Request) -> Answer:
        if request.turn:
            return str([result.text for result in request.results])
        return [call("task", prompt=f"CHILD {n}", **arguments) for n in range(count)]

    return parent


def test_f4_no_tool_is_offered_twice(run: Run) -> None:
    offered: list[list[str]] = []

    def child(request: Request) -> Answer:
        offered.append(list(request.tools))
        return "Done."

    agent = Agent(name="odd", tools=("read", "Read", "re*", "read_file", "grep", "*"))
    run(script_family(start(1, agent="odd"), child), agents=[agent])
    (names,) = offered
    assert len(set(names)) == len(names) and "read" in names


async def test_f13_processes_of_a_session_do_not_outlive_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    command = "nohup sleep 500 >/dev/null 2>&1 & setsid sleep 500 & disown -a; touch ended"
    model = ScriptedModel([[call("bash", command=command)], "Done."])
    async with Session(model=model, cwd=str(work), home=str(tmp_path / "home")) as session:
        assert (await session.run("Go.")).ok

    def list_folders() -> set[str]:
        return {os.path.realpath(link) for link in Path("/proc").glob("[0-9]*/cwd")}

    await wait_until(lambda: str(work) not in list_folders())


async def test_f14_a_program_without_its_terminal_ends(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "MUDROOM_HOME": str(tmp_path / "home"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mudroom", "--model", "offline"),
        cwd=tmp_path,
        env=env,
        preexec_fn=take_terminal,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    await asyncio.to_thread(os.read, ours, 1)
    await asyncio.sleep(0.5)
    os.close(ours)
    async with asyncio.timeout(60):
        await process.wait()


def test_f17_a_child_that_fails_does_not_affect_its_siblings(run: Run) -> None:
    def child(request: Request) -> Answer:
        if request.prompt == "CHILD 2":
            return RuntimeError("a fault of the adapter")
        return ModelRefused("no") if request.prompt == "CHILD 3" else f"report of {request.prompt}"

    report, _ = run(script_family(start(5), child))
    assert report.ok
    reported = [n for n in range(5) if f"report of CHILD {n}" in report.text]
    assert reported == [0, 1, 4]


def test_f20_a_child_has_its_limit_and_its_report_names_it(run: Run) -> None:
    def child(request: Request) -> Answer:
        return [call("look", turn=request.turn)] if request.tools else "what I have"

    report, events = run(script_family(start(1, max_turns=3), child))
    words = "[MAX_TURNS: stopped after 3 turns, its limit; what follows is its summary"
    assert words in report.text
    assert sum(isinstance(event, TurnFinished) and event.run == "1.1.1" for event in events) == 4


def test_f22_failing_children_are_not_started_without_end(run: Run) -> None:
    def parent(request: Request) -> Answer:
        tasks = [call("task", prompt=f"CHILD {request.turn} {n}") for n in range(3)]
        return tasks if request.tools else "I give up."

    script = script_family(parent, lambda _: ModelRefused("no"))
    report, events = run(script, prompt_budget=Budget(turns=20, children=7))
    assert len({event.run for event in events if "." in event.run}) == 7
    assert report.reason in (Reason.MAX_TURNS, Reason.LOOP)
    results = [event.result.text for event in events if isinstance(event, ToolCallFinished)]
    assert any("budget of 7 children" in text for text in results)


def test_f23_a_conversation_that_is_too_large_ends_and_does_not_loop(run: Run) -> None:
    requests: list[Request] = []

    def parent(request: Request) -> Answer:
        requests.append(request)
        return ContextOverflow("the prompt is too long")

    report, _ = run(script_family(parent, parent))
    assert report.reason is Reason.ERROR and "too long" in report.error
    assert len(requests) == 1
