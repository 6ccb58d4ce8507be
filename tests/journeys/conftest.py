"""The real command line as a process of its own, in a home of its own."""

import asyncio
import fcntl
import os
import pty
import shlex
import shutil
import signal
import struct
import sys
import termios
import time
import uuid
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

    async def start(
        self,
        *arguments: str,
        url: str = "",
        env: Mapping[str, str] | None = None,
        by: str = "",
        **pipes: Any,
    ) -> asyncio.subprocess.Process:
        """A running one. `url`: of the model server. `by`: -m or -c, to run another module, or a program."""
        environ = {**self.env, **({"ANTHROPIC_BASE_URL": url} if url else {}), **(env or {})}
        pipes = {
            "stdin": asyncio.subprocess.DEVNULL,
            "stdout": asyncio.subprocess.PIPE,
            "stderr": asyncio.subprocess.PIPE,
        } | pipes
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *([by] if by else ["-m", "mudroom"]),
            *arguments,
            cwd=self.project,
            env=environ,
            limit=1 << 24,
            **pipes,
        )

    async def __call__(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        url: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Done:
        """Run one to its end."""
        pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE} if stdin is not None else {}
        process = await self.start(*arguments, url=url, env=env, **pipes)
        out, err = await process.communicate(stdin)
        return _done(process, out, err)

    @asynccontextmanager
    async def at_terminal(
        self,
        *arguments: str,
        url: str = "",
        columns: int = 80,
        env: Mapping[str, str] | None = None,
        by: str = "",
    ) -> "AsyncGenerator[Terminal]":
        """One whose stdin, stdout and stderr are a terminal."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        process = await self.start(
            *arguments,
            url=url,
            env={"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})},
            by=by,
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
        self,
        *arguments: str,
        url: str,
        when: asyncio.Event,
        by: tuple[signal.Signals, ...] = (signal.SIGINT,),
        pause: float = 0.3,
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


class Tmux:
    """The real program in a real terminal: a tmux of its own. `mudroom`: whose home and project it has."""

    def __init__(self, mudroom: Mudroom) -> None:
        self.mudroom, self._name = mudroom, ""
        self._ended = mudroom.home.with_name("ended")

    async def start(
        self,
        *arguments: str,
        url: str = "",
        columns: int = 80,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
    ) -> "Tmux":
        """Start it; the same object, to be asked for what is on the screen."""
        self._name = f"mudroom-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        environ = {
            **self.mudroom.env,
            **({"ANTHROPIC_BASE_URL": url} if url else {}),
            "TERM": "screen-256color",
            **(env or {}),
        }
        program = [
            "env",
            "-i",
            *(f"{name}={value}" for name, value in environ.items()),
            sys.executable,
            "-m",
            "mudroom",
            *arguments,
        ]
        self._ended.unlink(missing_ok=True)
        command = f"{' '.join(map(shlex.quote, program))}; echo $? >{shlex.quote(str(self._ended))}"
        size = ["-x", str(columns), "-y", str(rows)]
        conf = [
            "set-option",
            "-g",
            "remain-on-exit",
            "on",
            ";",
            "set-option",
            "-g",
            "history-limit",
            "9999",
            ";",
        ]
        folder = str(self.mudroom.project)
        await self._tmux(
            "-f", "/dev/null", *conf, "new-session", "-d", *size, "-c", folder, "sh", "-c", command
        )
        return self

    async def type(self, text: str) -> None:
        """Press the keys of a text."""
        await self._tmux("send-keys", "-l", "--", text)

    async def press(self, *keys: str) -> None:
        """Press keys by their tmux names: Enter, Escape, C-c, Up."""
        await self._tmux("send-keys", *keys)

    async def say(self, text: str) -> None:
        """Type a line and send it."""
        await self.type(text)
        await self.press("Enter")

    async def paste(self, text: str) -> None:
        """Paste as terminals do that say where a paste begins and ends."""
        await self._tmux("set-buffer", "--", text)
        await self._tmux("paste-buffer", "-p")

    async def resize(self, columns: int, rows: int) -> None:
        """Make the terminal another size."""
        await self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    async def screen(self, *, colors: bool = False) -> str:
        """What is on the screen now."""
        return await self._tmux("capture-pane", "-p", *(["-e"] if colors else []))

    async def scroll(self) -> str:
        """What is on the screen and has left it upwards."""
        return await self._tmux("capture-pane", "-p", "-J", "-S", "-")

    async def expect(self, *texts: str, gone: str = "", seconds: float = 20) -> str:
        """Wait until all texts are on the screen, and `gone` is not; the screen."""
        shown = ""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    shown = await self.screen()
                    if all(text in shown for text in texts) and not (gone and gone in shown):
                        return shown
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise AssertionError(
                f"{texts} did not come, or {gone!r} did not go:\n{shown}"
            ) from None

    async def expect_scrolled(self, text: str, times: int, seconds: float = 10) -> None:
        """Wait until a text has been on the screen so many times, whether or not it is still there."""
        seen = ""
        for _ in range(round(seconds / 0.05)):
            if (seen := await self.scroll()).count(text) >= times:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{text} did not come {times} times:\n{seen}")

    async def pid(self) -> int:
        """Its process id."""
        shell = (await self._tmux("display-message", "-p", "#{pane_pid}")).strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    async def end(self, seconds: float = 20) -> int:
        """Wait for its end; the exit code."""
        until = time.monotonic() + seconds
        while not (self._ended.exists() and (status := self._ended.read_text().strip())):
            assert time.monotonic() < until, f"it does not end:\n{await self.screen()}"
            await asyncio.sleep(0.03)
        assert "Traceback" not in await self.scroll()
        return int(status)

    async def close(self) -> None:
        """Take the terminal away."""
        await self._tmux("kill-server", check=False)

    async def _tmux(self, *arguments: str, check: bool = True) -> str:
        process = await asyncio.create_subprocess_exec(
            "tmux",
            "-u",
            "-L",
            self._name,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0 or not check, err.decode()
        return out.decode()


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _done(process: asyncio.subprocess.Process, out: bytes, err: bytes) -> Done:
    assert process.returncode is not None
    assert b"Traceback" not in err and b"Traceback" not in out, err.decode()
    assert b"sk-planted-key" not in err + out
    return Done(process.returncode, out.decode(), err.decode())


@pytest.fixture
async def tmux(mudroom: Mudroom) -> AsyncGenerator[Tmux]:
    """A terminal that lies in the test's own folder; not started yet."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Tmux(mudroom)
    try:
        yield terminal
    finally:
        await terminal.close()


@pytest.fixture
def mudroom(tmp_path: Path) -> Mudroom:
    """A command line that knows nothing of this machine's user."""
    return Mudroom(tmp_path)
