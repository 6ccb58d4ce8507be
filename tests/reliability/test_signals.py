"""S8 at the command line: after Ctrl-C or SIGTERM no process remains, the session continues."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from mudroom import ToolCallBlock
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..waiting import find_processes
from .conftest import CheckRecord

LONG = bool(os.environ.get("MUDROOM_LONG"))


def make_environ(folder: Path, url: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "user"),
        "MUDROOM_HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "etc"),
        "LANG": "C.UTF-8",
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": url,
    }


@pytest.mark.parametrize("seed", range(50 if LONG else 4))
async def test_s8_ctrl_c_and_sigterm_leave_nothing_running(
    tmp_path: Path, seed: int, check_record: CheckRecord
) -> None:
    chance, mark = random.Random(seed), f"mark-{os.getpid()}-{seed}-"
    command, started = (
        f": {mark}; (setsid sleep 61 &); echo x >> effects.txt; sleep 60",
        asyncio.Event(),
    )
    stopped = asyncio.Event()

    def answer(request: ServerRequest) -> ServerAnswer:
        if stopped.is_set():
            return "I continue."
        started.set()
        if "task" in request.tools and not request.turn:
            return tuple(ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}"}) for n in range(3))
        return (ToolCallBlock("b", "bash", {"command": command}),)

    work, number = tmp_path / "work", (signal.SIGINT, signal.SIGTERM)[seed % 2]
    work.mkdir()
    async with ModelServer(answer) as server:
        words = (sys.executable, "-m", "mudroom", "--model", "anthropic:claude-sonnet-4-5", "-p")
        env, pipe = make_environ(tmp_path, server.url), asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *words, "PARENT", cwd=work, env=env, stdout=pipe, stderr=pipe
        )
        await started.wait()
        await asyncio.sleep(chance.random() * 0.5)
        process.send_signal(number)
        _, err = await process.communicate()
        stopped.set()
        assert b"Traceback" not in err
        assert process.returncode == 128 + number
        polls = 100  # two seconds, and more when the machine is busy
        while remaining := find_processes(mark):
            assert polls, remaining
            polls -= 1
            await asyncio.sleep(0.02)
        process = await asyncio.create_subprocess_exec(
            *words, "Again", "-c", cwd=work, env=env, stdout=pipe, stderr=pipe
        )
        out, err = await process.communicate()
        assert (process.returncode, out) == (0, b"I continue.\n"), err
    await check_record(open_reader(next((tmp_path / "home").glob("sessions/*.db"))).read())
