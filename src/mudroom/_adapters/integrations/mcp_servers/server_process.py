"""A stdio server's process: starts it, keeps its last error output, and ends its group."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from ....errors import UsageError
from .spec import Redact, ServerPlace, ServerSpec

MAX_LINE = 16 << 20  # bytes of a server's message
_MAX_STDERR = 64 << 10  # bytes of error output to keep
_TAIL_LINES = 5  # lines of error output to show in an error message
_TAIL_CHARACTERS = 1_000
_EXIT_POLL = 0.01  # seconds between checks of whether a process has ended
# Signals, with the seconds to wait after each; 0 means closing its input.
_STOP_STEPS = ((0, 0.7), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.5))
# Kills a process group one second after its own input ends, as it does when this process dies.
_KEEPER = 'read -r _; sleep 1; kill -s KILL -- "-$0"'
# Counts the mudroom servers a server works for, so that they cannot nest without end.
NESTING_VARIABLE = "MUDROOM_MCP_NESTING"
_INHERITED = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    NESTING_VARIABLE,
)


class ServerProcess:
    """The running process of a stdio server.

    It leads its own process group. A keeper, a small shell, kills the group if this process is
    killed and cannot do it itself.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        keeper: asyncio.subprocess.Process,
        redact: Redact,
    ) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = bytearray()
        self._process = process
        self._keeper = keeper
        self._redact = redact
        self._reader = asyncio.create_task(self._read_stderr(process.stderr))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(1 << 16):
            self.stderr += data
            del self.stderr[:-_MAX_STDERR]

    def get_last_lines(self) -> str:
        if not self.stderr:
            return ""
        # Redacted before cutting, because the cut could split a secret.
        text = self._redact(self.stderr.decode("utf-8", "replace")).rstrip()
        return "\n".join(text[-_TAIL_CHARACTERS:].strip().splitlines()[-_TAIL_LINES:])

    async def describe_end(self) -> str:
        await self._wait(0.5)
        code = self._process.returncode
        if code is None:
            how = "it closed its output"
        else:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
        lines = self.get_last_lines()
        return f"{how}; last lines: {lines}" if lines else how

    async def stop(self) -> None:
        """End the process and its group: end of input, SIGTERM, SIGKILL. Takes at most 2 s."""
        self.stdin.close()
        for number, seconds in _STOP_STEPS:
            if number:
                _kill_group(self.pid, number)
            if await self._wait(seconds):
                break
        _kill_group(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            self._keeper.kill()
        self._reader.cancel()
        await asyncio.gather(self._reader, self._keeper.wait(), return_exceptions=True)

    async def _wait(self, seconds: float) -> bool:
        """Wait for the process to end. Return False if it is still running."""
        loop = asyncio.get_running_loop()
        # Polled, because `Process.wait` also waits for the output to close, which a grandchild can
        # keep open.
        deadline = loop.time() + seconds
        while self._process.returncode is None:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(_EXIT_POLL)
        return True


async def start_server_process(spec: ServerSpec, place: ServerPlace) -> ServerProcess:
    """Start a stdio server's process. Raises UsageError if that fails.

    It gets only a few of the session's variables, plus those in its configuration: the rest may
    hold other services' keys.
    """
    environ = place.environ
    env = {name: environ[name] for name in _INHERITED if name in environ} | dict(spec.env)
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            spec.command,
            *spec.args,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=env,
            cwd=os.path.join(place.folder, spec.cwd),
            start_new_session=True,
            limit=MAX_LINE,
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the program {spec.command!r} cannot be started: "
            f"{getattr(error, 'strerror', None) or error}",
            where=spec.origin,
            remedy="Install it, or correct the entry.",
        ) from error
    try:
        keeper = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", _KEEPER, str(process.pid), stdin=pipe, start_new_session=True
        )
    except BaseException:
        _kill_group(process.pid, signal.SIGKILL)
        raise
    return ServerProcess(process, keeper, place.redact)


def _kill_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
