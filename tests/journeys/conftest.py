"""The real command line as a process of its own, in a home of its own."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Done(NamedTuple):
    """How it ended."""

    code: int
    out: str
    err: str


class Mudroom:
    """Starts it.

    Arguments:
        base: a folder for its home, its settings and the project it works on.
    """

    def __init__(self, base: Path) -> None:
        self.home, self.project = base / "home", base / "project"
        self.project.mkdir()
        for n in range(5):
            (self.project / f"f{n}.txt").write_text(f"MUD-{n}\n" + "line of mud\n" * 300)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(base / "person"),
            "MUDROOM_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(base / "etc"),
            "LANG": "C.UTF-8",
            "ANTHROPIC_API_KEY": "sk-planted-key",
        }

    async def start(self, *arguments: str, url: str = "", env: Mapping[str, str] | None = None, **pipes: Any) -> asyncio.subprocess.Process:
        """A running one. `url`: of the model server."""
        environ = {**self.env, **({"ANTHROPIC_BASE_URL": url} if url else {}), **(env or {})}
        pipes = {"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE} | pipes
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mudroom", *arguments, cwd=self.project, env=environ, limit=1 << 24, **pipes
        )

    async def __call__(self, *arguments: str, stdin: bytes | None = None, url: str = "", env: Mapping[str, str] | None = None) -> Done:
        """Run one to its end."""
        pipes = {"stdin": asyncio.subprocess.PIPE} if stdin is not None else {}
        process = await self.start(*arguments, url=url, env=env, **pipes)
        out, err = await process.communicate(stdin)
        return _done(process, out, err)

    @asynccontextmanager
    async def at_terminal(self, *arguments: str, url: str = "", columns: int = 80) -> "AsyncGenerator[Terminal]":
        """One whose stdin, stdout and stderr are a terminal."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        process = await self.start(
            *arguments,
            url=url,
            env={"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)
        terminal = Terminal(ours, process)
        try:
            yield terminal
        finally:
            asyncio.get_running_loop().remove_reader(ours)
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(ours)

    async def interrupted(
        self, *arguments: str, url: str, when: asyncio.Event, by: tuple[signal.Signals, ...] = (signal.SIGINT,), pause: float = 0.3
    ) -> Done:
        """Run one, and send it signals, `pause` seconds apart, once `when` is set."""
        process = await self.start(*arguments, url=url)
        ending = asyncio.ensure_future(process.communicate())
        await when.wait()
        for n, number in enumerate(by):
            await asyncio.sleep(pause if n else 0.1)
            if process.returncode is None:
                process.send_signal(number)
        out, err = await ending
        return _done(process, out, err)


class Terminal:
    """The person's side of a pseudo terminal."""

    def __init__(self, descriptor: int, process: asyncio.subprocess.Process) -> None:
        self.seen, self.process = "", process
        self._descriptor, self._came = descriptor, asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self.seen += data.decode("utf-8", "replace")
        self._came.set()

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._descriptor, text.encode())

    async def expect(self, text: str, *, since: int = 0, seconds: float = 20) -> int:
        """Wait until `text` is on the screen after place `since`; the place behind it."""
        async with asyncio.timeout(seconds):
            while (at := self.seen.find(text, since)) < 0:
                self._came.clear()
                await self._came.wait()
        return at + len(text)

    async def end(self, seconds: float = 20) -> int:
        """Wait for the process; its exit code."""
        async with asyncio.timeout(seconds):
            code = await self.process.wait()
        assert "Traceback" not in self.seen
        return code


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _done(process: asyncio.subprocess.Process, out: bytes, err: bytes) -> Done:
    assert process.returncode is not None
    assert b"Traceback" not in err and b"Traceback" not in out, err.decode()
    assert b"sk-planted-key" not in err + out
    return Done(process.returncode, out.decode(), err.decode())


@pytest.fixture
def mudroom(tmp_path: Path) -> Mudroom:
    """A command line that knows nothing of this machine's user."""
    return Mudroom(tmp_path)
