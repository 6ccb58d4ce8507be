"""Tier "full": commands in namespaces of their own, built by bubblewrap: the system read-only, the workspace, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from ..._core.ports import CommandResult
from ...errors import WorkspaceError
from ..environment import select_allowed
from .daemon.protocol import ETC_PLACEHOLDER, FILTER_FD, GATE_FD, MARK_VARIABLE, STATUS_FD
from .daemon_client import DaemonClient, ResourceLimits, SandboxSetup
from .exposed_paths import (
    ETC_DIRS,
    ETC_FILES,
    SELF_TEST_TIMEOUT,
    SYSTEM_DIRS,
    SelfTest,
    find_linked_git,
    find_protected,
    find_secret_dirs,
    find_toolchains,
    make_git_config,
)
from .seccomp import build_filter

SANDBOX_HOME = "/home/user"
"""Home folder of commands: empty, in memory, gone with the command."""

NAMESPACES = (
    "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --disable-userns "
    "--die-with-parent --new-session --cap-drop ALL"
)
"""What every command is put into, as bubblewrap's arguments; the network's comes on top unless it is granted."""

_ROOTS = "sysrq-trigger irq bus fs acpi scsi mtrr"
"""What root's number alone may write in procfs, without any capability."""

_FILES = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:{SANDBOX_HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class BubblewrapSandbox:
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
        workspace: str,
        bwrap: str,
        *,
        quarantine: str,
        environ: Mapping[str, str],
        network: bool = False,
        hidden_dirs: tuple[str, ...] = (),
        limits: ResourceLimits | None = None,
        keep_root_uid: bool = False,
    ) -> None:
        self._root, self._bwrap, self._network, self._hidden = (
            os.path.realpath(workspace),
            bwrap,
            network,
            hidden_dirs,
        )
        self._limits = limits or ResourceLimits()
        self._home = os.path.realpath(environ.get("HOME", "/nonexistent"))
        self._env = {
            "PATH": os.defpath,
            **select_allowed(environ),
            "HOME": SANDBOX_HOME,
            "USER": "user",
            "LOGNAME": "user",
            "SHELL": "/bin/bash",
        }
        etc = _etc(("resolv.conf",) if network else ()) | {
            "gitconfig": make_git_config(self._home).encode()
        }
        tools = find_toolchains(environ, self._home)
        reach = (*tools, *find_linked_git(self._root))
        root = os.geteuid() == 0
        self._exposed = _ROOTS.split() if root and keep_root_uid else []
        other = root and not keep_root_uid
        self._launcher = DaemonClient(
            SandboxSetup(
                workspace=self._root,
                quarantine=quarantine,
                tier=self.tier,
                limits=self._limits,
                seccomp_filter=build_filter(allow_internet=True),
                uses_bwrap=True,
                etc_files=etc,
                other_user=other,
                extra_dirs=reach,
            )
        )
        self._fixed = [*self._spaces(), *self._system(tools)]
        self._trial = SelfTest(self._run)

    def close(self) -> None:
        """End the program that starts commands; those that run go on to their own end."""
        self._launcher.close()

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run the command behind the walls; see the port. Raises WorkspaceError when they cannot be built or do not hold."""
        await self._trial.ensure_passed()
        return await self._run(command, sink, timeout)

    async def _run(
        self, command: str, sink: Callable[[bytes], None], timeout: float = SELF_TEST_TIMEOUT
    ) -> CommandResult:
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
        yield from ("--unsetenv", MARK_VARIABLE)
        yield from ("--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
        if not self._network:
            yield "--unshare-net"
        for name, value in self._env.items():
            yield from ("--setenv", name, value)
        yield from (
            "--json-status-fd",
            str(STATUS_FD),
            "--block-fd",
            str(GATE_FD),
            "--seccomp",
            str(FILTER_FD),
        )

    def _system(self, tools: list[str]) -> Iterator[str]:
        """What is there beside the workspace: read-only, or empty and in memory. Every mount costs time at every command."""
        for folder in SYSTEM_DIRS:
            if os.path.islink(folder):
                yield from ("--symlink", os.readlink(folder), folder)
            elif os.path.isdir(folder) and (folder != "/opt" or os.listdir(folder)):
                yield from ("--ro-bind", folder, folder)
        yield from ("--ro-bind", ETC_PLACEHOLDER, "/etc")
        for name in ETC_DIRS:
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
        yield from ("--symlink", "/tmp", "/var/tmp", "--symlink", "/tmp/.home", SANDBOX_HOME)
        for folder in tools:
            yield from ("--ro-bind-try", folder, folder)

    def _workspace(self) -> Iterator[str]:
        """The workspace, and in it what may not be changed."""
        for folder in find_linked_git(self._root):
            yield from ("--ro-bind", folder, folder)
        yield from ("--bind", self._root, self._root)
        for folder in (*find_secret_dirs(self._root, self._home), *self._hidden):
            if folder.startswith(self._root + "/") and os.path.isdir(folder):
                yield from ("--tmpfs", folder, "--remount-ro", folder)
        for path, moves in find_protected(self._root):
            yield from ("--bind" if moves else "--ro-bind", path, path)


def _etc(more: tuple[str, ...]) -> dict[str, bytes]:
    """What commands see of /etc, by path in it: few files, and places to mount folders on."""
    found = {path: text.encode() for path, text in _FILES.items()} | {
        name: b"" for name in ETC_DIRS if os.path.isdir(f"/etc/{name}")
    }
    for name in (*ETC_FILES, *more):
        try:
            with open(f"/etc/{name}", "rb") as file:
                found[name] = file.read(1 << 20) or b"\n"
        except OSError:
            continue
    return found
