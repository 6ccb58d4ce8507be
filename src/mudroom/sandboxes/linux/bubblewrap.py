"""Tier "full": commands in namespaces of their own, built by bubblewrap: the system read-only, the workspace, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from ..._core.ports import Finished
from ...errors import WorkspaceError
from ..environment import narrow
from .daemon.protocol import DATA, ETC, GATE, MARK, STATUS
from .daemon_client import Launcher, Limits, Walls
from .exposed_paths import (
    COPIES,
    FOLDERS,
    SYSTEM,
    TRIAL,
    Trial,
    git_settings,
    linked_git,
    protected_in,
    secrets_in,
    toolchains,
)
from .seccomp import program

HOME = "/home/user"
"""Home folder of commands: empty, in memory, gone with the command."""

NAMESPACES = (
    "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --disable-userns "
    "--die-with-parent --new-session --cap-drop ALL"
)
"""What every command is put into, as bubblewrap's arguments; the network's comes on top unless it is granted."""

_ROOTS = "sysrq-trigger irq bus fs acpi scsi mtrr"
"""What root's number alone may write in procfs, without any capability."""

_FILES = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:{HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class Bubblewrap:
    """The port Sandbox, tier "full".

    Arguments:
        cwd: the workspace, writable at its own path. bwrap: path of the program. away: see Walls.
        network: whether commands reach it. hidden: further folders no command sees, wherever they lie.
        environ: the environment to take the allowed variables from. limits: see Limits.
        keeps_root: where this is root, whether commands keep root's number, because the workspace cannot be made another's; else
            that it cannot is an error, and nothing runs.
    """

    tier = "full"

    def __init__(
        self,
        cwd: str,
        bwrap: str,
        *,
        away: str,
        environ: Mapping[str, str],
        network: bool = False,
        hidden: tuple[str, ...] = (),
        limits: Limits | None = None,
        keeps_root: bool = False,
    ) -> None:
        self._root, self._bwrap, self._network, self._hidden = (
            os.path.realpath(cwd),
            bwrap,
            network,
            hidden,
        )
        self._limits = limits or Limits()
        self._home = os.path.realpath(environ.get("HOME", "/nonexistent"))
        self._env = {
            "PATH": os.defpath,
            **narrow(environ),
            "HOME": HOME,
            "USER": "user",
            "LOGNAME": "user",
            "SHELL": "/bin/bash",
        }
        etc = _etc(("resolv.conf",) if network else ()) | {
            "gitconfig": git_settings(self._home).encode()
        }
        tools = toolchains(environ, self._home)
        reach = (*tools, *linked_git(self._root))
        root = os.geteuid() == 0
        self._exposed = _ROOTS.split() if root and keeps_root else []
        other = root and not keeps_root
        self._launcher = Launcher(
            Walls(
                root=self._root,
                away=away,
                tier=self.tier,
                limits=self._limits,
                filter=program(internet=True),
                late=True,
                etc=etc,
                other=other,
                reach=reach,
            )
        )
        self._fixed = [*self._spaces(), *self._system(tools)]
        self._trial = Trial(self._run)

    def close(self) -> None:
        """End the program that starts commands; those that run go on to their own end."""
        self._launcher.close()

    async def run(self, command: str, *, timeout: float, sink: Callable[[bytes], None]) -> Finished:
        """Run the command behind the walls; see the port. Raises WorkspaceError when they cannot be built or do not hold."""
        await self._trial.passed()
        return await self._run(command, sink, timeout)

    async def _run(
        self, command: str, sink: Callable[[bytes], None], timeout: float = TRIAL
    ) -> Finished:
        try:
            argv = self._argv(command)
        except OSError as error:
            raise WorkspaceError(
                f"the workspace cannot be read: {error.strerror}", where=self._root
            ) from error
        return await self._launcher.run(argv, {}, timeout=timeout, sink=sink)

    def _argv(self, command: str) -> list[str]:
        return [
            *self._fixed,
            *self._workspace(),
            "--remount-ro",
            "/",
            "--chdir",
            self._root,
            "--",
            "/bin/bash",
            "-c",
            command,
        ]

    def _spaces(self) -> Iterator[str]:
        """Namespaces, identity, environment, filter."""
        yield self._bwrap
        yield from NAMESPACES.split()
        yield from ("--unsetenv", MARK)
        yield from ("--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
        if not self._network:
            yield "--unshare-net"
        for name, value in self._env.items():
            yield from ("--setenv", name, value)
        yield from (
            "--json-status-fd",
            str(STATUS),
            "--block-fd",
            str(GATE),
            "--seccomp",
            str(DATA),
        )

    def _system(self, tools: list[str]) -> Iterator[str]:
        """What is there beside the workspace: read-only, or empty and in memory. Every mount costs time at every command."""
        for folder in SYSTEM:
            if os.path.islink(folder):
                yield from ("--symlink", os.readlink(folder), folder)
            elif os.path.isdir(folder) and (folder != "/opt" or os.listdir(folder)):
                yield from ("--ro-bind", folder, folder)
        yield from ("--ro-bind", ETC, "/etc")
        for name in FOLDERS:
            if os.path.isdir(path := f"/etc/{name}"):
                yield from ("--ro-bind", os.path.realpath(path), path)
        yield from ("--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
        for name in self._exposed:
            yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
        yield from (
            "--size",
            str(self._limits.temporary),
            "--tmpfs",
            "/tmp",
            "--dir",
            "/tmp/.home",
            "--dir",
            "/run",
        )
        yield from ("--symlink", "/tmp", "/var/tmp", "--symlink", "/tmp/.home", HOME)
        for folder in tools:
            yield from ("--ro-bind-try", folder, folder)

    def _workspace(self) -> Iterator[str]:
        """The workspace, and in it what may not be changed."""
        for folder in linked_git(self._root):
            yield from ("--ro-bind", folder, folder)
        yield from ("--bind", self._root, self._root)
        for folder in (*secrets_in(self._root, self._home), *self._hidden):
            if folder.startswith(self._root + "/") and os.path.isdir(folder):
                yield from ("--tmpfs", folder, "--remount-ro", folder)
        for path, moves in protected_in(self._root):
            yield from ("--bind" if moves else "--ro-bind", path, path)


def _etc(more: tuple[str, ...]) -> dict[str, bytes]:
    """What commands see of /etc, by path in it: few files, and places to mount folders on."""
    found = {path: text.encode() for path, text in _FILES.items()} | {
        name: b"" for name in FOLDERS if os.path.isdir(f"/etc/{name}")
    }
    for name in (*COPIES, *more):
        try:
            with open(f"/etc/{name}", "rb") as file:
                found[name] = file.read(1 << 20) or b"\n"
        except OSError:
            continue
    return found
