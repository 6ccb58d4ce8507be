"""The real command line, with a scripted provider, sent signals at a chosen moment."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..waiting import wait_until
from .providers import CLAUDE

MODEL = ("--model", CLAUDE)
PROGRAM = ("-m", "mudroom")
Script = Callable[[ServerRequest], ServerAnswer | Awaitable[ServerAnswer]]


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


async def start(
    folder: Path, url: str, *words: str, program: Sequence[str] = PROGRAM
) -> asyncio.subprocess.Process:
    """Start a command line in the folder `work`."""
    (folder / "work").mkdir(exist_ok=True)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, *program, *words),
        cwd=folder / "work",
        env=make_environ(folder, url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def start_prompt(
    folder: Path, answer: Script, *flags: str, program: Sequence[str] = PROGRAM
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a prompt with a scripted model; all calls are allowed."""
    words = (*MODEL, "--permission-mode", "bypassPermissions", *flags, "-p", "Work.")
    async with ModelServer(answer) as server:
        process = await start(folder, server.url, *words, program=program)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


async def run(
    folder: Path,
    url: str,
    *words: str,
    until: Callable[[], object] | None = None,
    by: Sequence[int] = (),
) -> tuple[int | None, str, str]:
    """Run a command line; send signals when `until` is true; return code, stdout and stderr."""
    process = await start(folder, url, *words)
    if until:
        await wait_until(until)
        for number in by:
            process.send_signal(number)
    out, err = await process.communicate()
    assert b"Traceback" not in err and b"never retrieved" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()
