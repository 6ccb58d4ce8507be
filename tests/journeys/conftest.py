"""Fixtures that run the real program: in a process, at a pseudo terminal, in tmux."""

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
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from tests.signals import send_signal

from mudroom.testing.model_server import ModelServer

from .tmux_control import TmuxControl

MODEL = ("--model", "anthropic:claude-sonnet-4-5")

_STOP_NANOSECONDS = 200_000
"""Processor time of a process that is only stopped. A drawing takes more than a millisecond."""


class ProcessResult(NamedTuple):
    """Exit code and output of a finished process."""

    code: int
    out: str
    err: str


class Mudroom:
    """The program with a state folder, settings and a project of its own.

    Arguments:
        base: folder that contains them.
    """

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.project = base / "project"
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
        stdin: int = asyncio.subprocess.DEVNULL,
        stdout: int | IO[bytes] = asyncio.subprocess.PIPE,
        stderr: int = asyncio.subprocess.PIPE,
        preexec_fn: Callable[[], None] | None = None,
    ) -> asyncio.subprocess.Process:
        """Start the program.

        Arguments:
            url: address of the model server.
            env: additional environment variables.
            by: "-m" or "-c" to run another module, or a program text.
        """
        environ = {**self.env, **({"ANTHROPIC_BASE_URL": url} if url else {}), **(env or {})}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *([by] if by else ["-m", "mudroom"]),
            *arguments,
            cwd=self.project,
            env=environ,
            limit=1 << 24,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            preexec_fn=preexec_fn,
        )

    async def __call__(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        url: str = "",
        env: Mapping[str, str] | None = None,
    ) -> ProcessResult:
        """Run the program to its end.

        Arguments:
            stdin: bytes to send.
        """
        pipe = asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE
        process = await self.start(*arguments, url=url, env=env, stdin=pipe)
        out, err = await process.communicate(stdin)
        return _to_result(process, out, err)

    @asynccontextmanager
    async def start_at_terminal(
        self,
        *arguments: str,
        url: str = "",
        columns: int = 80,
        env: Mapping[str, str] | None = None,
        by: str = "",
    ) -> "AsyncGenerator[Terminal]":
        """Start the program at a pseudo terminal."""
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
            preexec_fn=_take_terminal,
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

    async def run_and_interrupt(
        self,
        *arguments: str,
        url: str,
        when: asyncio.Event,
        by: tuple[signal.Signals, ...] = (signal.SIGINT,),
        pause: float = 0.3,
    ) -> ProcessResult:
        """Run the program and send it signals after `when` is set.

        Arguments:
            by: the signals.
            pause: seconds between two signals.
        """
        process = await self.start(*arguments, url=url)
        ending = asyncio.ensure_future(process.communicate())
        await when.wait()
        for n, number in enumerate(by):
            await asyncio.sleep(pause if n else 0.1)
            send_signal(process, number)
        out, err = await ending
        return _to_result(process, out, err)


class Terminal:
    """The user's side of a pseudo terminal."""

    def __init__(self, descriptor: int, process: asyncio.subprocess.Process) -> None:
        self.seen = ""
        self.process = process
        self._descriptor = descriptor
        self._is_closed = False
        self._has_output = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._is_closed = True
        self.seen += data.decode("utf-8", "replace")
        self._has_output.set()

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._descriptor, text.encode())

    async def expect(self, text: str, *, since: int = 0, seconds: float = 60) -> int:
        """Wait until the output contains `text` after index `since`; return the index behind it."""
        async with asyncio.timeout(seconds):
            while (at := self.seen.find(text, since)) < 0:
                self._has_output.clear()
                await self._has_output.wait()
        return at + len(text)

    async def read_all(self, seconds: float = 60) -> str:
        """Wait for the end of the output; return it."""
        async with asyncio.timeout(seconds):
            while not self._is_closed:
                self._has_output.clear()
                await self._has_output.wait()
        return self.seen

    async def end(self, seconds: float = 60) -> int:
        """Wait for the process; return its exit code."""
        async with asyncio.timeout(seconds):
            code = await self.process.wait()
        assert "Traceback" not in self.seen
        return code


class Tmux:
    """The program in a real terminal: a tmux server of its own.

    Arguments:
        mudroom: provides the state folder and the project.
    """

    def __init__(self, mudroom: Mudroom) -> None:
        self.mudroom = mudroom
        self._name = ""
        self._control: TmuxControl | None = None
        self._exit_code_file = mudroom.home.with_name("ended")

    async def start(
        self,
        *arguments: str,
        url: str = "",
        columns: int = 80,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
        gate: Path | None = None,
    ) -> "Tmux":
        """Start the program; return this object.

        Arguments:
            gate: the program starts when this file exists.
        """
        self._name = f"mudroom-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        environ = {
            **self.mudroom.env,
            **({"ANTHROPIC_BASE_URL": url} if url else {}),
            "TERM": "screen-256color",
            **(env or {}),
        }
        variables = [f"{name}={value}" for name, value in environ.items()]
        program = ["env", "-i", *variables, sys.executable, "-m", "mudroom", *arguments]
        self._exit_code_file.unlink(missing_ok=True)
        exit_code_file = shlex.quote(str(self._exit_code_file))
        command = f"{shlex.join(program)}; echo $? >{exit_code_file}"
        if gate:
            command = f"until [ -e {shlex.quote(str(gate))} ]; do sleep 0.05; done; {command}"
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
        await _run_tmux(
            self._name,
            *("-f", "/dev/null", *conf, "new-session", "-d", *size, "-c", folder),
            *("sh", "-c", command),
        )
        self._control = TmuxControl(self._name)
        return self

    async def open(self, server: ModelServer, *flags: str, **options: Any) -> None:
        """Start the program with a scripted model, and wait until its session is open."""
        await self.start(*MODEL, *flags, url=server.url, **options)
        await self.expect("claude-s", ">>")

    async def leave(self) -> None:
        """Leave the prompt, and check that the program ends well."""
        await self.press("C-d")
        assert await self.end() == 0

    async def type(self, text: str) -> None:
        """Press the keys of a text."""
        await self.run_tmux("send-keys", "-l", "--", text)

    async def press(self, *keys: str) -> None:
        """Press keys by their tmux names: Enter, Escape, C-c, Up."""
        await self.run_tmux("send-keys", *keys)

    async def say(self, text: str) -> None:
        """Type a line and send it."""
        await self.type(text)
        await self.press("Enter")

    async def paste(self, text: str) -> None:
        """Paste a text in brackets, as terminals do. A program asks for them with its prompt."""
        await self.expect(">>")
        await self.run_tmux("set-buffer", "--", text)
        await self.run_tmux("paste-buffer", "-p")

    async def resize(self, columns: int, rows: int) -> None:
        """Resize the terminal while the program is stopped; wait until it and tmux are idle again.

        Bytes that the program wrote for one width must not reach tmux at another width.
        """
        async with self._stop_between_drawings():
            await self.run_tmux("resize-window", "-x", str(columns), "-y", str(rows))
        await self.wait_until_idle()

    @asynccontextmanager
    async def _stop_between_drawings(self, seconds: float = 60) -> AsyncGenerator[None]:
        """Stop the program while it waits for events and tmux has read all that it wrote."""
        pid = await self.read_pid()
        async with asyncio.timeout(seconds):
            while True:
                await self.wait_until_idle()
                before = _read_cpu_time(pid)
                was_idle = _read_states(pid) == {"S"}
                os.kill(pid, signal.SIGSTOP)
                await _wait_until_stopped(pid)
                if was_idle and _read_cpu_time(pid) - before < _STOP_NANOSECONDS:
                    break
                os.kill(pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    async def read_screen(self, *, colors: bool = False) -> str:
        """Return the text on the screen."""
        return await self.run_tmux("capture-pane", "-p", *(["-e"] if colors else []))

    async def scroll(self) -> str:
        """Return the text of the scrollback and the screen."""
        return await self.run_tmux("capture-pane", "-p", "-J", "-S", "-")

    async def expect(
        self, *texts: str, gone: str = "", seconds: float = 60, colors: bool = False
    ) -> str:
        """Wait until all texts are on the screen and `gone` is not; return the screen."""
        shown = ""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    shown = await self.read_screen(colors=colors)
                    if all(text in shown for text in texts) and not (gone and gone in shown):
                        return shown
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise AssertionError(
                f"{texts} not on the screen, or {gone!r} still on it:\n{shown}"
            ) from None

    async def expect_scrolled(self, text: str, times: int, seconds: float = 60) -> None:
        """Wait until scrollback and screen contain a text at least `times` times."""
        seen = ""
        for _ in range(round(seconds / 0.05)):
            if (seen := await self.scroll()).count(text) >= times:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{text} not printed {times} times:\n{seen}")

    async def read_pid(self) -> int:
        """Return the process id of the program."""
        shell = (await self.run_tmux("display-message", "-p", "#{pane_pid}")).strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    async def wait_until_idle(self, seconds: float = 60) -> None:
        """Wait until the program and the tmux server both wait for events."""
        server = int(await self.run_tmux("display-message", "-p", "#{pid}"))
        pids = [await self.read_pid(), server]
        until = time.monotonic() + seconds
        idle_samples = 0
        while idle_samples < 3:
            assert time.monotonic() < until, "the program or tmux is busy all the time"
            is_idle = all(_read_states(pid) == {"S"} for pid in pids)
            idle_samples = idle_samples + 1 if is_idle else 0
            await asyncio.sleep(0.005)

    async def end(self, seconds: float = 60) -> int:
        """Wait for the end of the program; return its exit code."""
        until = time.monotonic() + seconds
        while not (
            self._exit_code_file.exists() and (status := self._exit_code_file.read_text().strip())
        ):
            assert time.monotonic() < until, (
                f"the program does not end:\n{await self.read_screen()}"
            )
            await asyncio.sleep(0.03)
        assert "Traceback" not in await self.scroll()
        return int(status)

    async def run_tmux(self, *arguments: str) -> str:
        """Run one command of tmux; return its output."""
        assert self._control, "the terminal is not started"
        return await self._control.run(*arguments)

    async def close(self) -> None:
        """Close the terminal."""
        if self._control:
            await self._control.close()
        await _run_tmux(self._name, "kill-server", check=False)


async def _run_tmux(name: str, *arguments: str, check: bool = True) -> None:
    """Run a tmux process for the server with a socket name."""
    process = await asyncio.create_subprocess_exec(
        "tmux",
        "-u",
        "-L",
        name,
        *arguments,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 0 or not check, err.decode()


async def _wait_until_stopped(pid: int) -> None:
    while True:
        if _read_states(pid) == {"T"}:
            return
        await asyncio.sleep(0.001)


def _read_cpu_time(pid: int) -> int:
    """Return the nanoseconds that the main thread of a process has used a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _read_states(pid: int) -> set[str]:
    """Return the state letters of a process's threads: "S" if one waits, "R" if it runs."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return {path.read_text().rpartition(")")[2].split()[0] for path in threads}


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _to_result(process: asyncio.subprocess.Process, out: bytes, err: bytes) -> ProcessResult:
    assert process.returncode is not None
    assert b"Traceback" not in err and b"Traceback" not in out, err.decode()
    assert b"sk-planted-key" not in err + out
    return ProcessResult(process.returncode, out.decode(), err.decode())


@pytest.fixture
async def tmux(mudroom: Mudroom) -> AsyncGenerator[Tmux]:
    """Return a terminal in the folder of the test; not started yet."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Tmux(mudroom)
    try:
        yield terminal
    finally:
        await terminal.close()


@pytest.fixture
def mudroom(tmp_path: Path) -> Mudroom:
    """Return a program that sees no settings of the user of this machine."""
    return Mudroom(tmp_path)
