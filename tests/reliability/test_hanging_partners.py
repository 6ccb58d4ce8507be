"""A partner that is stopped, at each of its messages, does not hold what must end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mudroom import Budget, Integrations, Permissions, Reason, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.agents import Mode
from mudroom._platform.processes import list_processes
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from ..integrations.hook_helpers import make_spec
from ..integrations.mcp_servers.servers import make_quick, read_log
from ..waiting import SECONDS, is_alive, wait_until

HOOK = "echo $$ > hook; kill -STOP $$"
MESSAGES = {
    "server": ("initialize", "tools/list", "tools/call"),
    "hook": ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"),
    "sandbox": ("a command",),
}
STOPS = ("cancel", "limit", "close")
CASES = [
    (partner, message, stop)
    for partner, messages in MESSAGES.items()
    for (place, message), (number, stop) in product(enumerate(messages), enumerate(STOPS))
    if os.environ.get("MUDROOM_LONG")
    or place % len(STOPS) == number
    or partner == "sandbox"
    or (message, stop) == ("SessionStart", "limit")
]


class Partner:
    """A program that a run uses and that is stopped at one of its messages."""

    def __init__(self, folder: Path, kind: str, message: str) -> None:
        self.folder = folder
        self.is_server = kind == "server"
        self.options: dict[str, Any] = {"sandbox": "off"}
        self.find_pid: Callable[[], int] = self._find_pid_in_file
        if kind == "server":
            # A long text, so that its tools are found and called by name.
            text = {"ADD_TEXT": "Add two numbers. " + "x" * 4_000}
            spec = make_quick(fault=f"stops at {message}", log=folder / "log", env=text)
            self.options["integrations"] = Integrations(mcp_servers=[spec])
            self.find_pid = lambda: self._find_server(message)
        elif kind == "hook":
            hooks = [make_spec(message, HOOK)]
            self.options["integrations"] = Integrations(hook_programs=hooks)
        else:
            self.options["sandbox"] = "auto"

    def _find_pid_in_file(self) -> int:
        path = self.folder / "hook"
        return int(path.read_text() or 0) if path.exists() else 0

    def _find_server(self, message: str) -> int:
        lines = read_log(self.folder / "log")
        starts = [line for line in lines if line.startswith("start ")]
        return int(starts[0].split()[1]) if message in lines else 0

    def answer(self, request: Request) -> Answer:
        if self.is_server and request.turn < 2:
            if not request.turn:
                return call("mcp_find", query="add numbers")
            return call("mcp_call", tool="mcp__quick__add", arguments={"a": 1, "b": 2})
        if request.turn:
            return "done"
        return call("bash", command="touch ran; sleep 60" if self.is_sandbox else "true")

    @property
    def is_sandbox(self) -> bool:
        """True if the sandbox daemon is stopped, from outside."""
        return self.options["sandbox"] != "off"


def find_daemon() -> int:
    """Return the id of the sandbox daemon that this process has started last."""
    daemons = [
        process
        for process in list_processes()
        if process.parent == os.getpid()
        and not process.is_dead
        and b"linux.daemon.main" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    ]
    return max(daemons, key=lambda process: process.started).pid


async def wait_for_hang(partner: Partner) -> int:
    """Wait until the partner is stopped, and return its id."""
    if partner.is_sandbox:
        await wait_until((partner.folder / "ran").exists)
        pid = find_daemon()
        os.kill(pid, signal.SIGSTOP)
        return pid
    await wait_until(partner.find_pid)
    return partner.find_pid()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("kind", "message", "stop"), CASES)
async def test_a_partner_that_hangs_does_not_hold_the_end(
    tmp_path: Path, kind: str, message: str, stop: str
) -> None:
    partner = Partner(tmp_path, kind, message)
    journal = MemoryJournal()
    session = Session(
        model=ScriptedModel(partner.answer),
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        journal=journal,
        permissions=Permissions(mode=Mode.BYPASS),
        prompt_budget=Budget(seconds=3 if stop == "limit" else None),
        **partner.options,
    )
    async with session:
        running = asyncio.create_task(session.run("Work."))
        pid = await wait_for_hang(partner)
        if stop == "cancel":
            session.runs.cancel()
        if stop != "close":
            report = await asyncio.wait_for(running, SECONDS)
            reasons = {"cancel": {Reason.CANCELLED}, "limit": {Reason.TIMEOUT, Reason.GOAL}}
            assert report.reason in reasons[stop]
    await asyncio.wait((running,), timeout=SECONDS)
    assert running.done()
    await wait_until(lambda: not is_alive(pid))
    assert find_violations(journal.events) == []
    if stop == "limit" and kind == "hook":
        await replay(journal.events)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("has_run", [True, False])
async def test_a_hook_that_hangs_at_the_end_does_not_hold_it(
    tmp_path: Path, *, has_run: bool
) -> None:
    partner = Partner(tmp_path, "hook", "SessionEnd")
    session = Session(
        model=ScriptedModel(lambda _: "done"),
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        journal=MemoryJournal(),
        **partner.options,
    )
    async with asyncio.timeout(SECONDS):
        async with session:
            if has_run:
                assert (await session.run("Work.")).reason is Reason.GOAL
    pid = partner.find_pid()
    assert pid
    await wait_until(lambda: not is_alive(pid))
