"""Walled-in commands from the harness's side: keep the launching program running, send it commands, hear how they went."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from ..._core.ports import CommandResult
from ..._platform.scratch_dirs import remove_orphans_in_background, remove_orphans_once
from ...errors import WorkspaceError
from ..output_pipe import OutputPipe
from .daemon.protocol import MAX_MESSAGE_BYTES

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from mudroom.sandboxes.linux.daemon.main import main; main()"
_SOURCE_DIR = str(Path(__file__).resolve().parents[3])
_GRACE = 4.0
_TAIL = 4096
_DENIALS = re.compile(
    rb"[Rr]ead-only file system|EROFS|Operation not permitted|EPERM|Permission denied|EACCES|Network is unreachable|ENETUNREACH"
    rb"|[Cc]ould not resolve|[Nn]ame resolution|[Nn]ame or service not known|Cannot assign requested address|EAI_AGAIN"
)

_NOT_FOUND = re.compile(rb"(/[^\s:'\"]+)['\"]?: No such file or directory")


class ResourceLimits(Struct, frozen=True):
    """What one command may use.

    Arguments:
        processes: at once. memory: bytes of data of each process. file: bytes of one file. open: descriptors of each process.
        temporary: bytes in /tmp and in the home folder, where these are in memory.
    """

    processes: int = 512
    memory: int = 4 << 30
    file: int = 4 << 30
    open: int = 4096
    temporary: int = 512 << 20


class SandboxSetup(Struct, frozen=True, kw_only=True):
    """What is the same for all commands of a sandbox.

    Arguments:
        root: the workspace. away: folder for what had to be moved out of it. tier: as the model reads it.
        limits: see Limits. filter: seccomp program.
        late: bubblewrap builds the walls; etc: what it shows as /etc, contents by path, b"" for a folder to mount another on.
        ruleset: descriptor of a Landlock ruleset that the launching program lays on each command, -1 is none.
        restore: whether changed protected files are put back.
        other: whether commands run as another user, who owns nothing but the workspace; reach: what he must reach beside it.
        shared_count: whether the number of processes is the user's, all others' included; the limit is then on top of these.
    """

    workspace: str
    quarantine: str
    tier: str
    limits: ResourceLimits
    seccomp_filter: bytes = b""
    uses_bwrap: bool = False
    etc_files: Mapping[str, bytes] = {}
    landlock_ruleset: int = -1
    restore_existing: bool = False
    other_user: bool = False
    extra_dirs: tuple[str, ...] = ()
    counts_user_threads: bool = False


class DaemonClient:
    """Starts the launching program when it is first needed, and again if it has died; it ends with this object or this process."""

    def __init__(self, walls: SandboxSetup) -> None:
        self._walls = walls
        self._control: socket.socket | None = None
        self._ending: weakref.finalize[Any, Any] | None = None
        self._going = list[int]()

    async def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        timeout: float,
        sink: Callable[[bytes], None],
    ) -> CommandResult:
        """Run one program behind the walls; as the port Sandbox says.

        Raises WorkspaceError when the walls could not be built: nothing of the command has run then.
        """
        reading, writing = os.pipe()
        wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._send({"argv": [*argv], "env": {**env}}, [writing, theirs.fileno()])
        except BaseException:
            os.close(reading)
            wire.close()
            raise
        finally:
            os.close(writing)
            theirs.close()
        self._going.append(reading)
        try:
            return await self._see(reading, wire, timeout, sink)
        finally:
            self._going.remove(reading)
            wire.close()

    async def _see(
        self, reading: int, wire: socket.socket, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        over, seen, timed_out = asyncio.Event(), _TailSink(sink), False
        pipe = OutputPipe(reading, seen, over)
        report = _ResultReader(wire, over)
        try:
            try:
                async with asyncio.timeout(timeout):
                    await over.wait()
            except TimeoutError:
                timed_out = True
            finally:
                await report.end()
        finally:
            pipe.close()
        if pipe.sink_error:
            raise pipe.sink_error
        said = report.said
        if not said:
            remove_orphans_in_background()  # it has died: who waited at a gate of it waits still
        if said.get("failed"):
            raise _not_started(str(said["failed"]), seen.tail)
        code = int(said.get("code", -signal.SIGKILL))
        self._explain(seen, code, said.get("mended", ()))
        return CommandResult(-signal.SIGKILL if timed_out else code, timed_out)

    def _explain(self, seen: _TailSink, code: int, mended: Sequence[str]) -> None:
        """Tell the model what the walls did, where it could not know."""
        words = [
            f"[sandbox: {path} is protected and may not be changed: what the command did to it was undone. Ask the user to do it.]"
            for path in mended
        ]
        if code != 0 and not mended and (_DENIALS.search(seen.tail) or self._hides(seen.tail)):
            words.append(
                f"[sandbox {self._walls.tier}: commands may write only in {self._walls.workspace} and in temporary folders, not to protected "
                "files (hooks and settings of git, agents, editors, shells), and reach neither the network nor other programs. "
                "If it was refused for that, do without, or ask the user.]"
            )
        if words:
            gap = "" if seen.tail.endswith(b"\n") or not seen.tail else "\n"
            seen(f"{gap}{chr(10).join(words)}\n".encode())

    def _hides(self, said: bytes) -> bool:
        """Whether a path that was not found is there, but outside."""
        named = {os.fsdecode(path) for path in _NOT_FOUND.findall(said)}
        inside = self._walls.workspace.rstrip("/") + "/"
        return any(not path.startswith(inside) and os.path.lexists(path) for path in named)

    def _send(self, message: dict[str, Any], fds: list[int]) -> None:
        data = json.dumps(message).encode()
        if len(data) >= MAX_MESSAGE_BYTES // 4:
            raise WorkspaceError(
                "the command is too long for the sandbox", remedy="Write it to a file and run that."
            )
        for again in (True, False):
            if self._control is None:
                self._start()
            assert self._control is not None
            try:
                socket.send_fds(self._control, [data], fds)
                return
            except OSError as error:  # it has died; the message was not taken, so nothing has run
                self.close()
                if not again:
                    raise WorkspaceError(
                        f"the sandbox cannot be started: {error.strerror}"
                    ) from error

    def _start(self) -> None:
        walls = self._walls
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE_BYTES)
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        data = [
            _in_memory(part)
            for part in (
                (walls.seccomp_filter, *walls.etc_files.values()) if walls.uses_bwrap else ()
            )
        ]
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _SOURCE_DIR],
                {},
                file_actions=actions,
            )
            setup = {
                "root": walls.workspace,
                "away": walls.quarantine,
                "limits": {
                    **asdict(walls.limits),
                    "processes": walls.limits.processes
                    + (_threads() if walls.counts_user_threads else 0),
                },
                "late": walls.uses_bwrap,
                "etc": [*walls.etc_files],
                "filter": walls.seccomp_filter.hex(),
                "restore": walls.restore_existing,
                "other": walls.other_user,
                "reach": walls.extra_dirs,
            }
            socket.send_fds(
                ours,
                [json.dumps(setup).encode()],
                [*([walls.landlock_ruleset] if walls.landlock_ruleset >= 0 else []), *data],
            )
        except OSError as error:
            ours.close()
            raise WorkspaceError(
                f"the sandbox cannot be started: {error.strerror}", where=sys.executable
            ) from error
        finally:
            theirs.close()
            for fd in data:
                os.close(fd)
        remove_orphans_once()
        self._control, self._ending = ours, weakref.finalize(self, _end, ours, pid, self._going)

    def close(self) -> None:
        """End the launching program. Commands that run go on to their own end."""
        if self._ending is not None:
            self._ending()
        self._control = self._ending = None


class _TailSink:
    """A sink that remembers the last of what it passed on."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink, self.tail = sink, b""

    def __call__(self, chunk: bytes) -> None:
        self.tail = (self.tail + chunk[-_TAIL:])[-_TAIL:]
        self._sink(chunk)


class _ResultReader:
    """What the watcher of one command says at its end."""

    def __init__(self, wire: socket.socket, over: asyncio.Event) -> None:
        self._wire, self._over, self._data = wire, over, b""
        self._whole = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        wire.setblocking(False)
        self._loop.add_reader(wire, self._read)

    @property
    def said(self) -> dict[str, Any]:
        """Its words; without any it has died."""
        return json.loads(self._data) if self._data else {}

    async def end(self) -> None:
        """Have the command ended if it has not, and wait until nothing of it is left."""
        try:
            self._wire.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            async with asyncio.timeout(_GRACE):
                await self._whole.wait()
        except TimeoutError:
            pass
        finally:
            self._loop.remove_reader(self._wire)

    def _read(self) -> None:
        try:
            chunk = self._wire.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._data += chunk
        if not chunk:
            self._loop.remove_reader(self._wire)
            self._whole.set()
            self._over.set()


def _not_started(why: str, said: bytes) -> WorkspaceError:
    words = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return WorkspaceError(
        f"the command was not run: its sandbox could not be built ({words or why})",
        remedy="mudroom doctor says what is missing; without a sandbox commands run only with --sandbox off.",
    )


def _threads() -> int:
    """How many threads this user has, as the kernel counts them against the limit of processes."""
    count = 0
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdecimal() and entry.stat().st_uid == os.getuid():
                with open(f"/proc/{entry.name}/stat", "rb") as file:
                    count += int(file.read().rpartition(b")")[2].split()[17])
        except OSError:
            continue
    return count


def _in_memory(data: bytes) -> int:
    found = os.memfd_create("mudroom", os.MFD_CLOEXEC)
    os.write(found, data)
    return found


def _end(control: socket.socket, pid: int, going: list[int]) -> None:
    """Let the launching program end. It ends with its last command, which nobody here waits for."""
    control.close()
    if going:
        threading.Thread(target=_wait, args=(pid,), daemon=True).start()
    else:
        _wait(pid)


def _wait(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
